"""Lists of runs without a server: queries, pages, and summaries from search attributes and memo."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.client.feedback.inbox import MATCH_EVERY_REQUEST, InboxFilter
from dagwright.client.list_cursors import ListCursor
from dagwright.client.run_lists import RunFilter, owner_in_memo, run_summary
from dagwright.client.runs import Runs
from dagwright.core.boundary import wire
from dagwright.core.errors import Problem
from dagwright.core.model.states import RunStatus
from dagwright.server import Connection, SearchAttributesMissing, Server
from dagwright.store import open_store

EMPTY_MAPPING: Mapping[str, Any] = {}
STARTED_AT = datetime(2026, 1, 2, tzinfo=UTC)


class FakeWorkflowIterator:
    """Fake of Temporal's workflow iterator: reads executions in pages."""

    def __init__(self, executions: Sequence[Any], page_size: int, token: bytes | None) -> None:
        self._executions, self._page_size, self.next_page_token = executions, page_size, token
        self.current_page: Sequence[Any] | None = None

    async def fetch_next_page(self) -> None:
        start = int(self.next_page_token or b"0")
        self.current_page = self._executions[start : start + self._page_size]
        end = start + self._page_size
        self.next_page_token = b"%d" % end if end < len(self._executions) else None

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self._executions:
            yield each


class FakeNamespace:
    """Fake namespace that lists executions, evaluates only the cursor of a query, and records the queries.

    All executions are open and started at the same time, so they are ordered by run ID.
    """

    def __init__(self, executions: Sequence[Any]) -> None:
        self.executions = executions
        self.queries: list[str] = []

    def list_workflows(
        self, query: str, *, page_size: int, next_page_token: bytes | None = None
    ) -> FakeWorkflowIterator:
        self.queries.append(query)
        cursor_match = re.search(r"RunId > '(.+)'", query)
        remaining_runs = [run for run in self.executions if cursor_match is None or run.run_id > cursor_match[1]]
        return FakeWorkflowIterator(remaining_runs, page_size, next_page_token)

    async def count_workflows(self, query: str) -> Any:
        self.queries.append(query)
        return SimpleNamespace(count=len(self.executions))


def runs_of(namespace: FakeNamespace, *, missing_attributes: Sequence[str] = ()) -> Runs:
    connection = Connection(cast("Client", namespace), Server("nowhere", "default"), frozenset(missing_attributes))
    return Runs(connection, task_queue="q", store=open_store("unused"))


def execution(
    number: int = 1,
    memo: Mapping[str, Any] | Exception = EMPTY_MAPPING,
    *,
    status: WorkflowExecutionStatus = WorkflowExecutionStatus.RUNNING,
    attributes: Mapping[str, Any] = EMPTY_MAPPING,
) -> Any:
    async def read_memo() -> Mapping[str, Any]:
        if isinstance(memo, Exception):
            raise memo
        return memo

    keys: dict[type, Any] = {str: SearchAttributeKey.for_keyword, list: SearchAttributeKey.for_keyword_list}
    pairs = [SearchAttributePair(keys[type(value)](name), value) for name, value in attributes.items()]
    is_open = status is WorkflowExecutionStatus.RUNNING
    raw_info = WorkflowExecutionInfo()
    raw_info.start_time.FromDatetime(STARTED_AT)
    if not is_open:
        raw_info.close_time.FromDatetime(STARTED_AT)
    return SimpleNamespace(
        id=f"run-{number}",
        run_id=f"{number:08}-0000-4000-8000-000000000000",
        raw_info=raw_info,
        status=status,
        memo=read_memo,
        start_time=STARTED_AT,
        close_time=None if is_open else STARTED_AT,
        typed_search_attributes=TypedSearchAttributes(pairs),
    )


@pytest.mark.parametrize("limit", [1, 7, 10, 21, 50])
async def test_pages_list_each_run_once(limit: int) -> None:
    namespace = FakeNamespace([execution(number) for number in range(21)])
    actual: list[str] = []
    cursor: ListCursor | None = None
    while True:
        page, cursor = await runs_of(namespace).page_of_runs(limit=limit, after=cursor)
        actual += [run.run_id for run in page]
        assert len(page) <= limit
        if cursor is None:
            break
        cursor = ListCursor.parse(str(cursor))
    assert actual == [f"run-{number}" for number in range(21)]
    assert len(namespace.queries) == -(-21 // limit)


async def test_list_continues_after_the_cursor_of_each_run() -> None:
    namespace = FakeNamespace([execution(number) for number in range(5)])
    page, _ = await runs_of(namespace).page_of_runs(limit=4)
    for number, run in enumerate(page, 1):
        later_runs, _ = await runs_of(namespace).page_of_runs(limit=9, after=ListCursor.parse(str(run.cursor)))
        assert [each.run_id for each in later_runs] == [f"run-{later}" for later in range(number, 5)]
    assert [run.cursor for run in later_runs] == [None]


async def test_pages_skip_and_repeat_nothing_while_runs_are_deleted() -> None:
    namespace = FakeNamespace([_waiting_run(number, _request()) for number in range(10)])
    runs = runs_of(namespace)
    first_page = await runs.inbox(limit=4)
    page, cursor = await runs.page_of_runs(limit=4)
    assert [run.run_id for run in page] == ["run-0", "run-1", "run-2", "run-3"]
    # The run at the cursor is deleted too.
    namespace.executions = [run for run in namespace.executions if run.id not in ("run-0", "run-3", "run-5")]
    remaining_ids = ["run-4", "run-6", "run-7", "run-8", "run-9"]
    second_page = await runs.inbox(limit=4, after=first_page.cursor)
    third_page = await runs.inbox(limit=4, after=second_page.cursor)
    later_requests = [*second_page.requests, *third_page.requests]
    assert [request.request_ref.run_id for request in later_requests] == remaining_ids
    assert [run.run_id for run in (await runs.page_of_runs(limit=9, after=cursor))[0]] == remaining_ids


_RUN_ID = "0193a5c0-0000-4000-8000-0123456789ab"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (
            f"open.1767312000123456789.{_RUN_ID}",
            "(CloseTime IS NOT NULL OR StartTime < '2026-01-02T00:00:00.123456789Z' OR "
            f"(StartTime = '2026-01-02T00:00:00.123456789Z' AND RunId > '{_RUN_ID}'))",
        ),
        (
            f"1767312001000000000.0.{_RUN_ID}",
            "CloseTime <= '2026-01-02T00:00:01.000000000Z' AND (CloseTime < '2026-01-02T00:00:01.000000000Z' OR "
            f"StartTime < '1970-01-01T00:00:00.000000000Z' OR (StartTime = '1970-01-01T00:00:00.000000000Z' AND "
            f"RunId > '{_RUN_ID}'))",
        ),
    ],
)
def test_cursor_is_translated_to_a_condition_in_the_order_of_the_server(text: str, condition: str) -> None:
    cursor = ListCursor.parse(text)
    assert (str(cursor), cursor.condition()) == (text, condition)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2.x",
        f"1.2.{_RUN_ID}x",
        f"-1.2.{_RUN_ID}",
        f"open.{_RUN_ID}",
        f"open.{10**19}.{_RUN_ID}",
        f"open.١.{_RUN_ID}",
    ],
)
def test_text_that_is_not_a_cursor_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cursor of a list"):
        ListCursor.parse(text)


async def test_run_whose_memo_cannot_be_read_does_not_fail_the_list() -> None:
    attributes = {wire.SEARCH_STATE: "waiting", wire.SEARCH_TITLE: "Report", wire.SEARCH_PROGRESS: "1/3"}
    damaged_run = execution(2, ValueError("no codec"), attributes=attributes)
    actual = await runs_of(FakeNamespace([execution(1), damaged_run, execution(3)])).list_runs()
    expected = [("run-1", "running", None), ("run-2", "waiting", "Report"), ("run-3", "running", None)]
    assert [(run.run_id, run.status, run.title) for run in actual] == expected
    assert (actual[1].nodes_done, actual[1].nodes_total, actual[1].started_at) == (1, 3, STARTED_AT)


_TOP_RUNS_QUERY = f"{wire.RUN_WORKFLOWS_FILTER} AND DagwrightRoot IS NULL"
_LISTED_RUNS_QUERY = f"{_TOP_RUNS_QUERY} AND ExecutionStatus != 'ContinuedAsNew'"


@pytest.mark.parametrize(
    ("list_filter", "condition"),
    [
        (RunFilter(), ""),
        (RunFilter(owner="ann"), " AND DagwrightOwner = 'ann'"),
        (RunFilter(session_name="ann:it's"), " AND DagwrightSession = 'ann:it\u2019s'"),
        (RunFilter(template="sales"), " AND DagwrightTemplate = 'sales'"),
        (
            RunFilter(title='Say "x"'),
            " AND (DagwrightTitle STARTS_WITH 'Say \uff02x\uff02' OR WorkflowId STARTS_WITH 'Say ')",
        ),
        (RunFilter(title="it's"), " AND (DagwrightTitle STARTS_WITH 'it\u2019s' OR WorkflowId STARTS_WITH 'it''s')"),
        # A query cannot have an ID prefix that starts with a quote, so it has no condition for the ID.
        (RunFilter(title="''"), " AND DagwrightTitle STARTS_WITH '\u2019\u2019'"),
        (
            RunFilter(status="waiting", since=0.0, tags={"team": "blue", "who": "o'neill"}),
            " AND ExecutionStatus = 'Running' AND DagwrightState = 'waiting'"
            " AND StartTime >= '1970-01-01T00:00:00.000Z'"
            " AND DagwrightTags = 'team=blue' AND DagwrightTags = 'who=o\u2019neill'",
        ),
    ],
)
def test_filter_is_translated_to_a_query(list_filter: RunFilter, condition: str) -> None:
    assert list_filter.query() == f"{_LISTED_RUNS_QUERY}{condition}"


def test_filter_is_case_sensitive_and_compares_the_start_time_of_the_first_execution() -> None:
    tags = {"team": "blue", "env": "test"}
    memo = {wire.MEMO_TAGS: tags, wire.MEMO_OWNER: "ann", wire.MEMO_STARTED_AT: "2026-01-02T00:00:00.000Z"}
    run = execution(attributes={wire.SEARCH_TITLE: "It\u2019s on"})
    start = STARTED_AT.timestamp()
    expected: list[tuple[RunFilter, bool]] = [
        (RunFilter(tags={"team": "blue"}, owner="ann"), True),
        (RunFilter(tags={"team": "blue", "env": "test"}), True),
        (RunFilter(tags={"team": "blue", "x": "y"}), False),
        (RunFilter(tags={"team": "Blue"}), False),
        (RunFilter(owner="Ann"), False),
        (RunFilter(since=start - 1), True),
        (RunFilter(since=start + 1), False),
        (RunFilter(title="It's"), True),
        (RunFilter(title="it's"), False),
        (RunFilter(title="run-1"), True),
        (RunFilter(title="Run-1"), False),
    ]
    assert [each.matches(run, memo) for each, _ in expected] == [is_match for _, is_match in expected]
    assert (owner_in_memo({}), owner_in_memo({wire.MEMO_OWNER: 1}), owner_in_memo(memo)) == (None, None, "ann")


async def test_run_whose_memo_cannot_be_read_is_found_by_its_attributes() -> None:
    attributes = {wire.SEARCH_TAGS: ["team=blue", "odd"], wire.SEARCH_OWNER: "ann", wire.SEARCH_TITLE: "Report"}
    runs = runs_of(FakeNamespace([execution(1, ValueError("no codec"), attributes=attributes)]))
    [actual] = await runs.list_runs(run_filter=RunFilter(tags={"team": "blue"}, owner="ann", title="Rep"))
    assert (actual.title, actual.tags) == ("Report", {"team": "blue"})
    assert await runs.list_runs(run_filter=RunFilter(owner="bob")) == []


async def test_page_ends_after_one_server_page_of_excluded_runs() -> None:
    namespace = FakeNamespace([execution(number) for number in range(3_000)])
    page, cursor = await runs_of(namespace).page_of_runs(limit=2, run_filter=RunFilter(title="Run-"))
    assert (page, cursor and cursor.execution_id[:8], len(namespace.queries)) == ([], "00000002", 1)
    assert await runs_of(namespace).list_runs(limit=999, run_filter=RunFilter(title="Run-")) == []
    [actual] = await runs_of(namespace).list_runs(limit=2, run_filter=RunFilter(title="run-2999"))
    assert (actual.run_id, actual.cursor) == ("run-2999", None)
    assert len(await runs_of(namespace).list_runs(limit=5_000)) == 3_000


_Status = WorkflowExecutionStatus


@pytest.mark.parametrize(
    ("status", "attribute", "expected"),
    [
        (_Status.RUNNING, "waiting", RunStatus.WAITING),
        (_Status.RUNNING, None, RunStatus.RUNNING),
        # A run writes its final state before it ends.
        (_Status.RUNNING, "completed", RunStatus.RUNNING),
        (_Status.COMPLETED, None, RunStatus.COMPLETED),
        (_Status.COMPLETED, "completed_with_failures", RunStatus.COMPLETED_WITH_FAILURES),
        (_Status.COMPLETED, "cancelled", RunStatus.CANCELLED),
        (_Status.CANCELED, "running", RunStatus.CANCELLED),
        (_Status.FAILED, "failed", RunStatus.FAILED),
        # The server ended the run before the run could write its final state.
        (_Status.TERMINATED, "waiting", RunStatus.FAILED),
        (_Status.TIMED_OUT, "running", RunStatus.FAILED),
    ],
)
def test_state_attribute_refines_the_status_of_the_execution(
    status: WorkflowExecutionStatus, attribute: str | None, expected: RunStatus
) -> None:
    attributes = {} if attribute is None else {wire.SEARCH_STATE: attribute}
    assert run_summary(execution(status=status, attributes=attributes), {}).status is expected


def test_listed_run_has_the_attributes_that_the_run_wrote() -> None:
    error = {"code": "node_failed", "message": "'a' failed: no", "node_id": "a"}
    memo = {
        wire.MEMO_TITLE: "Report",
        wire.MEMO_NODES: 2,
        wire.MEMO_SESSION: "ann:main",
        wire.MEMO_TAGS: {"team": "blue"},
        wire.MEMO_STARTED_AT: "2026-01-01T00:00:00.000Z",
        wire.MEMO_ERROR: error,
    }
    actual = run_summary(execution(status=_Status.FAILED, attributes={wire.SEARCH_PROGRESS: "1/3"}), memo)
    assert actual.to_json() == {
        "run_id": "run-1",
        "status": "failed",
        "title": "Report",
        "started_at": "2026-01-01T00:00:00.000Z",
        "ended_at": "2026-01-02T00:00:00.000Z",
        "nodes_done": 1,
        "nodes_total": 3,
        "session_id": "ann:main",
        "error": error,
        "tags": {"team": "blue"},
    }
    open_run = run_summary(execution(), memo)
    assert (open_run.error, open_run.nodes_done, open_run.nodes_total) == (None, 0, 2)


@pytest.mark.parametrize(
    ("status", "memo", "code"),
    [
        (_Status.TERMINATED, {wire.MEMO_ERROR: {"code": "x"}}, "terminated"),
        (_Status.TIMED_OUT, {}, "timed_out"),
        (_Status.FAILED, {}, "failed"),
        (_Status.FAILED, {wire.MEMO_ERROR: "odd", wire.MEMO_NODES: "odd", wire.MEMO_STARTED_AT: "odd"}, "failed"),
    ],
)
def test_failed_run_without_a_valid_error_in_its_memo_is_listed_with_an_error(
    status: WorkflowExecutionStatus, memo: Mapping[str, Any], code: str
) -> None:
    error = run_summary(execution(status=status), memo).error
    assert isinstance(error, Problem)
    assert error.code == code


async def test_open_runs_of_an_owner_are_counted_by_the_server() -> None:
    namespace = FakeNamespace([execution()])
    assert await runs_of(namespace).count_open_runs("ann") == 1
    assert await runs_of(namespace).count_open_runs("ann", excluded_ids=["b", "it's", "'x'", 'no "query"']) == 1
    query = f"{_TOP_RUNS_QUERY} AND ExecutionStatus = 'Running' AND DagwrightOwner = 'ann'"
    assert namespace.queries == [query, f"{query} AND WorkflowId NOT IN ('b', 'it''s')"]


@pytest.mark.parametrize(
    "query_runs",
    [lambda runs: runs.list_runs(), lambda runs: runs.inbox(limit=1), lambda runs: runs.count_open_runs("ann")],
)
async def test_missing_search_attribute_is_reported_with_the_command_that_registers_it(
    query_runs: Callable[[Runs], Any],
) -> None:
    with pytest.raises(SearchAttributesMissing) as error:
        await query_runs(runs_of(FakeNamespace([]), missing_attributes=["DagwrightTags"]))
    assert str(error.value) == (
        "runs cannot be listed, because the namespace 'default' lacks search attributes; register them with "
        "`temporal operator search-attribute create --namespace default --name DagwrightTags --type KeywordList`, "
        "then restart the workers; if they are registered already, connect again: a server accepts new attributes "
        "after some seconds"
    )


# The inbox.

_WAITING_RUNS_QUERY = f"{wire.RUN_WORKFLOWS_FILTER} AND ExecutionStatus = 'Running' AND DagwrightAwaiting IS NOT NULL"


@pytest.mark.parametrize(
    ("list_filter", "condition"),
    [
        (MATCH_EVERY_REQUEST, ""),
        (InboxFilter(assignee="ann"), " AND (DagwrightAwaiting = 'ann' OR DagwrightAwaiting = '…')"),
        (
            InboxFilter(owner="ann"),
            " AND (DagwrightOwner = 'ann' OR DagwrightAwaiting = 'ann' OR DagwrightAwaiting = '…')",
        ),
        (InboxFilter(run_id="r1"), " AND (WorkflowId = 'r1' OR DagwrightRoot = 'r1')"),
        (InboxFilter(opened_before=0.0, type="APPROVAL"), " AND StartTime <= '1970-01-01T00:00:00.000Z'"),
    ],
)
def test_inbox_filter_is_translated_to_a_query(list_filter: InboxFilter, condition: str) -> None:
    assert list_filter.query() == f"{_WAITING_RUNS_QUERY}{condition}"


def _waiting_run(
    number: int, *requests: Mapping[str, Any], count: int | None = None, memo: Mapping[str, Any] = EMPTY_MAPPING
) -> Any:
    entries = [{"node": request["request_id"].partition("[")[0], "request": request} for request in requests]
    memo_entry = {"title": "Plan", "count": len(entries) if count is None else count, "shown": entries}
    return execution(number, {wire.MEMO_REQUESTS: memo_entry, **memo})


def _request(id: str = "check", *, day: int = 2, **fields: Any) -> dict[str, Any]:
    opened_at = f"2026-01-{day:02}T00:00:00.000Z"
    return {"request_id": id, "type": "APPROVAL", "assignee": None, "opened_at": opened_at, **fields}


async def test_inbox_lists_requests_with_the_path_from_the_top_level_run() -> None:
    child_memo = {wire.MEMO_ROOT: "run-9", wire.MEMO_PATH: ["archive[north]", "in"]}
    executions = [_waiting_run(1, _request()), _waiting_run(2, _request("ask[7]", day=1), memo=child_memo)]
    page = await runs_of(FakeNamespace(executions)).inbox(limit=10)
    listed_requests = [
        (request.id, request.document["run_id"], request.request_ref.run_id, request.node_path)
        for request in page.requests
    ]
    child_request = ("archive[north]/in/ask[7]", "run-9", "run-2", "archive/in/ask")
    assert listed_requests == [child_request, ("check", "run-1", "run-1", "check")]
    assert ([request.title for request in page.requests], page.cursor, page.omitted) == (["Plan", "Plan"], None, {})


async def test_damaged_requests_of_a_run_are_omitted_from_the_inbox() -> None:
    damaged_memo = {"title": "Plan", "count": 1, "shown": [{"node": "n", "request": {}}]}
    executions = [execution(1, {wire.MEMO_REQUESTS: damaged_memo}), _waiting_run(2, _request())]
    page = await runs_of(FakeNamespace(executions)).inbox(limit=10)
    assert ([request.id for request in page.requests], page.omitted) == (["check"], {"run-1": 1})


@pytest.mark.parametrize(
    ("list_filter", "ids"),
    [
        (MATCH_EVERY_REQUEST, ["old", "check", "choose"]),
        (InboxFilter(assignee="ann"), ["old", "check"]),
        (InboxFilter(assignee="anyone"), ["choose"]),
        (InboxFilter(run_id="run-1"), ["old", "check", "choose"]),
        (InboxFilter(run_id="run-2"), []),
        (InboxFilter(type="SELECTION"), ["choose"]),
        (InboxFilter(opened_before=STARTED_AT.timestamp() - 3_600), ["old"]),
        # The owner of the run is `bob`, so `ann` sees only the requests that are assigned to her.
        (InboxFilter(owner="bob"), ["old", "check", "choose"]),
        (InboxFilter(owner="ann"), ["old", "check"]),
    ],
)
async def test_inbox_is_filtered(list_filter: InboxFilter, ids: list[str]) -> None:
    requests = [_request("check", assignee="ann"), _request("choose", type="SELECTION")]
    requests.append(_request("old", assignee="ann", day=1))
    run = _waiting_run(1, *requests, memo={wire.MEMO_OWNER: "bob"})
    page = await runs_of(FakeNamespace([run])).inbox(limit=10, inbox_filter=list_filter)
    assert [request.id for request in page.requests] == ids


async def test_inbox_counts_omitted_requests() -> None:
    executions = [_waiting_run(1, _request(), count=951), execution(2), execution(3, ValueError("no codec"))]
    runs = runs_of(FakeNamespace(executions))
    page = await runs.inbox(limit=10)
    assert [request.id for request in page.requests] == ["check"]
    assert page.omitted == {"run-1": 950, "run-2": 1, "run-3": 1}
    assert (await runs.inbox(limit=10, inbox_filter=InboxFilter(owner="eve"))).omitted == {}


async def test_inbox_page_ends_after_two_server_pages_without_matching_requests() -> None:
    namespace = FakeNamespace([_waiting_run(number, _request()) for number in range(10)])
    first_page = await runs_of(namespace).inbox(limit=2, inbox_filter=InboxFilter(type="GUIDANCE"))
    assert (first_page.requests, len(namespace.queries)) == ([], 2)
    second_page = await runs_of(namespace).inbox(limit=2, after=first_page.cursor)
    third_page = await runs_of(namespace).inbox(limit=2, after=second_page.cursor)
    pages = [[request.request_ref.run_id for request in page.requests] for page in (second_page, third_page)]
    assert (pages, third_page.cursor) == ([["run-6", "run-7"], ["run-8", "run-9"]], None)
