"""`Runs` without a server: histories read at once, filters and pages, documents of cancelled runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.history.v1 import History, HistoryEvent, MarkerRecordedEventAttributes
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.ended_runs import _outcome_of
from dagwright.client.feedback import HISTORIES_AT_ONCE
from dagwright.client.run_lists import RunFilter, RunPlace, RunSummary, owner_in
from dagwright.client.runs import Runs
from dagwright.core.boundary import wire
from dagwright.core.model.errors import Problem
from dagwright.core.model.states import RunStatus
from dagwright.history.closing_event import read_recorded_document
from dagwright.history.run_reader import RunNotFound
from dagwright.protocol.conversion import data_converter
from dagwright.protocol.messages import MessageInvalid
from dagwright.server import Connection, Server
from dagwright.store import PayloadMissing, open_store


class Listing:
    """Responses of the server page by page, as the iterator of Temporal's client."""

    def __init__(self, there: Sequence[Any], page: int, token: bytes | None) -> None:
        self._there, self._page, self.next_page_token = there, page, token
        self.current_page: Sequence[Any] | None = None

    async def fetch_next_page(self) -> None:
        start = int(self.next_page_token or b"0")
        self.current_page = self._there[start : start + self._page]
        end = start + self._page
        self.next_page_token = b"%d" % end if end < len(self._there) else None

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self._there:
            yield each


def runs_of(there: Sequence[Any]) -> Runs:

    def listed(_: str, *, page_size: int = 1_000, next_page_token: bytes | None = None) -> Listing:
        return Listing(there, page_size, next_page_token)

    client = cast(Client, SimpleNamespace(list_workflows=listed))
    connection = Connection(client, Server("nowhere", "default"), frozenset())
    return Runs(connection, task_queue="q", store=open_store("unused"))


def _run_at(number: int, **memo: str) -> Any:
    async def document_of_run() -> dict[str, Any]:
        return memo

    return SimpleNamespace(id=f"run-{number}", parent_id=None, memo=document_of_run)


@pytest.fixture
def completed_every_third(monkeypatch: pytest.MonkeyPatch) -> None:
    async def summary(_: Runs, run: WorkflowExecution) -> RunSummary:
        status = RunStatus.FAILED if int(run.id.removeprefix("run-")) % 3 else RunStatus.COMPLETED
        return RunSummary(run.id, status, None, None, None, 0, 0)

    monkeypatch.setattr(Runs, "_summary", summary)
    monkeypatch.setattr("dagwright.client.runs.LISTED_AT_ONCE", 8)


@pytest.mark.usefixtures("completed_every_third")
@pytest.mark.parametrize("expected", [RunFilter(), RunFilter(text="run"), RunFilter(status="completed")])
@pytest.mark.parametrize("limit", [1, 7, 10, 50])
async def test_pages_list_each_run_once(expected: RunFilter, limit: int) -> None:
    runs = runs_of([_run_at(number) for number in range(21)])
    found: list[str] = []
    place: RunPlace | None = None
    while True:
        page, place = await runs.page_of_runs(limit=limit, run_filter=expected, after=place)
        found += [run.run_id for run in page]
        assert len(page) <= limit
        if place is None:
            break
        place = RunPlace.parse(str(place))
    assert found == [f"run-{number}" for number in range(21) if expected.status is None or number % 3 == 0]


@pytest.mark.parametrize("text", ["", "1", "1.2", "0.0.", "1.-1.", "1001.0.", "1.0.ä", "a.b.c", "1.0.AA.", "1.0.A"])
def test_text_that_is_no_place_is_refused(text: str) -> None:
    for each in (text, f"{text}.{sha256(text.encode()).hexdigest()[:12]}"):
        with pytest.raises(ValueError, match=r".*"):
            RunPlace.parse(each)


async def test_list_reads_a_few_histories_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[str] = []
    most = 0

    async def summary(self: Runs, run: WorkflowExecution) -> RunSummary:
        nonlocal most
        reading.append(run.id)
        most = max(most, len(reading))
        await asyncio.sleep(0)
        reading.remove(run.id)
        return RunSummary(run.id, RunStatus.RUNNING, None, None, None, 0, 0)

    monkeypatch.setattr(Runs, "_summary", summary)
    found = await runs_of([_run_at(number) for number in range(100)]).list_runs(limit=50)
    assert [run.run_id for run in found] == [f"run-{number}" for number in range(50)]
    assert most == HISTORIES_AT_ONCE


async def test_run_that_cannot_be_read_or_was_deleted_does_not_fail_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: dict[str, Exception] = {
        "run-1": PayloadMissing("x", store="s"),
        "run-2": RunNotFound("there is no run 'run-2'"),
        "run-3": RPCError("no such history", RPCStatusCode.NOT_FOUND, b""),
        "run-4": KeyError("status"),
        "run-6": MessageInvalid("the payload is not JSON"),
        "run-5": RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b""),
    }

    async def summary(_: Runs, run: WorkflowExecution) -> RunSummary:
        if run.id in failures:
            raise failures[run.id]
        return RunSummary(run.id, RunStatus.COMPLETED, None, None, None, 1, 1)

    monkeypatch.setattr(Runs, "_summary", summary)
    started = datetime(2026, 1, 1, tzinfo=UTC)
    there = [_run_at(number) for number in range(7)]
    for run in there:
        run.start_time, run.close_time, run.status = started, None, WorkflowExecutionStatus.RUNNING
    there[4].close_time, there[4].status = started, WorkflowExecutionStatus.TERMINATED
    found = await runs_of(there).list_runs()
    assert [(run.run_id, run.status) for run in found] == [
        ("run-0", RunStatus.COMPLETED),
        ("run-1", RunStatus.RUNNING),
        ("run-4", RunStatus.FAILED),
        ("run-5", RunStatus.RUNNING),
        ("run-6", RunStatus.RUNNING),
    ]
    assert found[2].error == Problem("unreadable", "the history of the run cannot be read: KeyError('status')")
    # A server that does not answer fails the list.
    failures["run-0"] = RPCError("no answer", RPCStatusCode.UNAVAILABLE, b"")
    with pytest.raises(RPCError):
        await runs_of(there).list_runs()


ANNS = {wire.MEMO_OWNER: "ann", wire.MEMO_SESSION: "ann:main", wire.MEMO_TITLE: "Publish the Report"}


@pytest.mark.parametrize(
    ("expected", "is_taken"),
    [
        (RunFilter(), True),
        (RunFilter(owner="ann"), True),
        (RunFilter(owner="bob"), False),
        (RunFilter(session="ann:main"), True),
        (RunFilter(session="main"), False),
        (RunFilter(text="report"), True),
        (RunFilter(text="RUN-1"), True),
        (RunFilter(text="ann"), False),
        (RunFilter(owner="ann", text="nothing"), False),
    ],
)
def test_filter_compares_the_memo(expected: RunFilter, *, is_taken: bool) -> None:
    assert expected.takes("run-1", ANNS) is is_taken
    assert (owner_in({}), owner_in({wire.MEMO_OWNER: 1}), owner_in(ANNS)) == (None, None, "ann")
    assert not RunFilter(owner="ann").takes("run-1", {})


@pytest.mark.usefixtures("completed_every_third")
async def test_list_continues_up_to_its_limit() -> None:
    runs = runs_of([_run_at(number, **{wire.MEMO_OWNER: "ann" if number % 2 else "bob"}) for number in range(40)])
    expected = RunFilter(owner="ann", status="completed")
    found = [[run.run_id for run in await runs.list_runs(limit=limit, run_filter=expected)] for limit in (3, 50)]
    assert found == [["run-3", "run-9", "run-15"], [f"run-{number}" for number in range(3, 40, 6)]]
    assert await runs.open_runs_of("ann") == {f"run-{number}" for number in range(1, 40, 2)}


_TYPES = f"{wire.IS_RUN} AND ExecutionStatus != 'ContinuedAsNew'"


_OPEN = "DagwrightState IN ('running', 'waiting') OR DagwrightState IS NULL"


def test_query_uses_the_search_attributes_that_there_are() -> None:
    expected = RunFilter(status="completed_with_failures", since=0.0, tags={"team": "blue", "who": "o'neill"})
    assert expected.query(missing=()) == (
        f"{_TYPES} AND ExecutionStatus IN ('Completed') AND (DagwrightState = 'completed_with_failures' OR {_OPEN}) "
        "AND StartTime >= '1970-01-01T00:00:00.000Z' AND DagwrightTags = 'team=blue'"
    )
    running = f"{_TYPES} AND ExecutionStatus IN ('Running')"
    # The attribute lacks the parts that the client computes.
    queries = [RunFilter(status=state).query(missing=()) for state in ("running", "waiting")]
    assert queries == [f"{running} AND ({_OPEN})"] * 2
    expected = RunFilter(status="waiting", tags={"team": "blue"})
    assert expected.query(missing={wire.SEARCH_STATE, wire.SEARCH_TAGS}) == running
    assert RunFilter().query(missing=()) == _TYPES


def test_tags_and_start_are_compared_with_memo_and_first_execution() -> None:
    memo = {wire.MEMO_TAGS: {"team": "blue", "env": "test"}}
    assert RunFilter(tags={"team": "blue"}).takes("r", memo)
    assert not RunFilter(tags={"team": "red"}).takes("r", memo)
    assert not RunFilter(tags={"team": "blue"}).takes("r", {})
    assert [RunFilter(since=10.0).takes("r", memo, started_at=at) for at in (9.0, 10.0)] == [False, True]


_USAGE = {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3}
_LINEAGE = {"files": ["a.txt"], "urls": []}
DOCUMENT = {
    **{"status": "cancelled", "output": None, "error": None, "usage": _USAGE, "lineage": _LINEAGE},
    "nodes": {"a": {"status": "completed"}, "b": {"status": "cancelled"}},
}


def _payloads(value: Any) -> Payloads:
    return Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())])


def _marker(document: Any) -> HistoryEvent:
    details = {"data": _payloads({"activity_type": wire.ACTIVITY_END_CANCELLED}), "result": _payloads(document)}
    marker = MarkerRecordedEventAttributes(marker_name="core_local_activity", details=details)
    return HistoryEvent(marker_recorded_event_attributes=marker)


class FakeHistory:
    """The end of one history, the newest event first, in pages of two; it counts the pages that are read."""

    def __init__(self, events: list[HistoryEvent]) -> None:
        self._events = events
        self.pages = 0

    async def read(
        self, request: GetWorkflowExecutionHistoryReverseRequest, **_: Any
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        self.pages += 1
        start = int(request.next_page_token or b"0")
        token = b"%d" % (start + 2) if start + 2 < len(self._events) else b""
        page = History(events=self._events[start : start + 2])
        return GetWorkflowExecutionHistoryReverseResponse(history=page, next_page_token=token)


def _client(history: FakeHistory) -> Client:
    async def describe(**_: Any) -> Any:
        return SimpleNamespace(status=WorkflowExecutionStatus.CANCELED, run_id="1")

    service = SimpleNamespace(get_workflow_execution_history_reverse=history.read)
    # A handle that reads no history: the whole one must not be needed.
    handle = SimpleNamespace(describe=describe)
    made = SimpleNamespace(
        namespace="default",
        data_converter=data_converter,
        workflow_service=service,
        get_workflow_handle=lambda *_, **__: handle,
    )
    return cast(Client, made)


@pytest.mark.parametrize(("before", "document", "pages"), [(1, DOCUMENT, 1), (4, DOCUMENT, 3), (100, None, 5)])
async def test_document_is_sought_near_the_end_of_the_history(before: int, document: Any, pages: int) -> None:
    history = FakeHistory([HistoryEvent()] * before + [_marker(DOCUMENT)] + [HistoryEvent()] * 100)
    assert (await read_recorded_document(_client(history), "run-1", "1"), history.pages) == (document, pages)


async def test_line_of_a_cancelled_run_needs_no_whole_history() -> None:
    async def memo() -> dict[str, Any]:
        return {wire.MEMO_NODES: 2, wire.MEMO_TITLE: "Report"}

    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = SimpleNamespace(id="run-1", run_id="1", memo=memo, start_time=now, close_time=now)
    run.status, run.typed_search_attributes = WorkflowExecutionStatus.CANCELED, TypedSearchAttributes.empty
    connection = Connection(_client(FakeHistory([_marker(DOCUMENT)])), Server("nowhere", "default"), frozenset())
    runs = Runs(connection, task_queue="q", store=open_store("unused"))
    found = await runs._summary(cast(WorkflowExecution, run))
    assert (found.status, found.title, found.nodes_done, found.nodes_total) == ("cancelled", "Report", 1, 2)


async def test_parent_of_a_cancelled_run_finds_its_usage_and_lineage() -> None:
    found = await _outcome_of(_client(FakeHistory([_marker({**DOCUMENT, "child_snapshot": {"state": "x"}})])), "run-1")
    document = {"usage": _USAGE, "lineage": _LINEAGE, "child_snapshot": {"state": "x"}}
    assert found == {"status": "cancelled", "output": None, "error": None, **document}
    found = await _outcome_of(_client(FakeHistory([HistoryEvent()])), "run-1")
    assert found == {"status": "cancelled", "output": None, "error": None}
