"""`FeedbackClient` without a server: how answers are sent, and which run has the request of a sub-plan."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.answer_sending import (
    AnswerOutcome,
    AnswerResult,
    AnswerTarget,
    AnswerUnclear,
    NoOpenRequest,
    choose_requests,
    next_request,
    requests_with_id,
    send_answer,
)
from dagwright.client.feedback.feedback_client import FeedbackClient
from dagwright.client.feedback.open_requests import (
    Answer,
    ItemNotNamed,
    OpenRequest,
    RequestRef,
    refs_by_run,
    requests_of_node,
)
from dagwright.client.run_messages import rejection_of_pending_signal
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import MAX_CHILD_ID_BYTES, child_workflow_id
from dagwright.core.model.requests import Feedback, Request
from dagwright.core.model.states import NodeStatus
from dagwright.features.feedback.feedback_state import RequestRegistry
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.history.run_view import RunView
from dagwright.server import Connection, Server
from tests.support.plan_building import node, started_run
from tests.unit.interfaces.cli.open_requests import OPENED_AT

_MESSAGE = {"request_id": "check", "answer": {"approved": True}, "by": "ann", "note": None}
_ANSWER = Answer({"approved": True}, by="ann")
_NOT_FOUND = RPCError("gone", RPCStatusCode.NOT_FOUND, b"")


class _Namespace:
    """Fake namespace of runs with open requests. It records the messages that are sent.

    Args:
        runs: run ID -> IDs of the open requests of the run.
        update: result or exception of each update; `None` if updates never return.
    """

    def __init__(self, runs: dict[str, list[str]], *, update: Any = None) -> None:
        self.runs = runs
        self.sent_messages: list[tuple[str, str, Any]] = []
        """Messages without their command IDs."""
        self.command_ids: list[str] = []
        self.queries: list[str] = []
        self._update = update
        self.rejection: str | None = None
        """Why the state of the run rejects an answer."""
        self.accepted_message_counts: list[int] = []
        """If the number of sent messages is in this list, the run has accepted the update, but has not responded."""

    def get_workflow_handle(self, workflow_id: str) -> Any:
        def record(name: str, message: Any) -> None:
            other_fields = dict(message)
            self.command_ids.append(other_fields.pop("command_id"))
            self.sent_messages.append((workflow_id, name, other_fields))

        async def execute_update(name: str, message: Any) -> Any:
            record(name, message)
            if self._update is None:
                await asyncio.Event().wait()
            if isinstance(self._update, Exception):
                raise self._update
            return self._update

        async def signal(name: str, message: Any) -> None:
            record(name, message)

        async def describe() -> Any:
            if workflow_id not in self.runs:
                raise _NOT_FOUND
            return self._execution(workflow_id)

        return SimpleNamespace(id=workflow_id, execute_update=execute_update, signal=signal, describe=describe)

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        self.queries.append(query)
        for run_id in self.runs:
            yield self._execution(run_id)

    def _execution(self, run_id: str) -> Any:
        root, *path = run_id.split("/")

        async def memo() -> dict[str, Any]:
            task_ids = [_decode_task_id(segment) for segment in path]
            return {wire.MEMO_ROOT: root, wire.MEMO_PATH: task_ids} if path else {}

        return SimpleNamespace(id=run_id, root_id=root, memo=memo)

    def reader(self, run_id: str) -> Any:
        async def read() -> Any:
            if run_id not in self.runs:
                raise RunNotFound(f"there is no run {run_id!r}")
            scheduler = _FakeScheduler(self.runs, run_id, rejection=self.rejection)
            fields = {"run_id": run_id, "title": f"Plan of {run_id}", "scheduler": scheduler}
            return SimpleNamespace(
                **fields,
                is_closed=False,
                pending_commands=list,
                has_accepted_command=lambda _: len(self.sent_messages) in self.accepted_message_counts,
            )

        return SimpleNamespace(read=read)


def _decode_task_id(segment: str) -> str:
    return segment.replace("%2F", "/").replace("%25", "%")


class _FakeScheduler:
    """Fake scheduler that also serves as the state and as the feedback feature of the scheduler."""

    def __init__(self, runs: dict[str, list[str]], run_id: str, *, rejection: str | None) -> None:
        self._rejection = rejection
        self.state, self.features = self, SimpleNamespace(feedback=self)
        self.overrides: dict[str, Any] = {}
        self.requests = RequestRegistry()
        for request_id in runs[run_id]:
            opened_at = OPENED_AT + len(run_id)
            self.requests.add(Request(request_id, request_id, "answer", "APPROVAL", "Publish?", opened_at=opened_at))
        nested_paths = [run.removeprefix(f"{run_id}/") for run in runs if run.startswith(f"{run_id}/")]
        # The sub-plan `later` has not started.
        self._sub_plans = [_decode_task_id(path) for path in nested_paths if "/" not in path] + ["later"]
        self._request_nodes = runs[run_id]

    def record_of(self, task_id: str) -> Any:
        return object() if task_id in self._sub_plans or task_id in self._request_nodes else None

    def rejection_of(self, feedback: Feedback, at: float) -> str | None:
        return self._rejection

    def map_batch_of(self, task_id: str) -> None:
        return None

    def visible_nodes(self) -> list[Any]:
        record = SimpleNamespace(status=NodeStatus.RUNNING, items=[])
        return [(SimpleNamespace(id=task_id, kind="plan"), record) for task_id in self._sub_plans]

    def node_of(self, task_id: str) -> Any:
        return SimpleNamespace(id=task_id, kind="plan" if task_id in self._sub_plans else "human", for_each=None)


def _feedback_client(
    namespace: _Namespace, *, reader: Callable[[str], Any] | None = None, missing_attributes: Sequence[str] = ()
) -> FeedbackClient:
    server = Server("nowhere", "default")
    connection = Connection(cast("Client", namespace), server, frozenset(missing_attributes))
    return FeedbackClient(connection, reader or namespace.reader, timeout_s=0.05)


_SENT_UPDATE, _SENT_SIGNAL = ("run", "submit_feedback", _MESSAGE), ("run", "feedback", _MESSAGE)
_RATE_LIMITED = RPCError("too many", RPCStatusCode.RESOURCE_EXHAUSTED, b"")


async def test_answer_is_sent_by_update() -> None:
    namespace = _Namespace({"run": ["check"]}, update={"ok": True, "message": "approved"})
    assert await _feedback_client(namespace).answer(RequestRef("run", "check"), _ANSWER) == "approved"
    assert namespace.sent_messages == [_SENT_UPDATE]


@pytest.mark.parametrize("update", [None, WorkflowUpdateFailedError(ApplicationError("'x' is not offered"))])
async def test_rejected_answer_is_not_sent_by_signal(update: Any) -> None:
    namespace = _Namespace({"run": ["check"]}, update=update)
    namespace.rejection = "'x' is not offered"
    with pytest.raises(FeedbackRejected, match=r"^'x' is not offered$"):
        await _feedback_client(namespace).answer(RequestRef("run", "check"), _ANSWER)
    assert namespace.sent_messages == [_SENT_UPDATE]


@pytest.mark.parametrize("update", [None, _RATE_LIMITED])
async def test_answer_is_sent_by_signal_if_no_worker_responds(update: Any) -> None:
    namespace = _Namespace({"run": ["check"]}, update=update)
    result = await _feedback_client(namespace).answer(RequestRef("run", "check"), _ANSWER)
    assert result == (
        "no worker responded within 0.05 s, so the answer was sent as a signal; "
        "it is applied as soon as a worker serves the run; `dagwright watch run` starts a worker"
    )
    assert namespace.sent_messages == [_SENT_UPDATE, _SENT_SIGNAL]
    assert len({*namespace.command_ids}) == 1


@pytest.mark.parametrize(("accepted_count", "messages"), [(1, [_SENT_UPDATE]), (2, [_SENT_UPDATE, _SENT_SIGNAL])])
async def test_update_that_is_handled_late_is_not_rejected_as_a_second_answer(
    accepted_count: int, messages: Any
) -> None:
    namespace = _Namespace({"run": ["check"]})
    namespace.accepted_message_counts = [accepted_count]
    namespace.rejection = "'check' was answered by ann" if accepted_count == 1 else None
    reply = await _feedback_client(namespace).answer(RequestRef("run", "check"), _ANSWER)
    assert (reply, namespace.sent_messages) == ("the run accepted the answer", messages)


def test_second_of_two_simultaneous_signals_is_reported_as_rejected() -> None:
    messages = [Answer({"approved": True}, by=name).to_json("ask") for name in ("ann", "ben")]
    signals = [(OPENED_AT, wire.SIGNAL_FEEDBACK, lambda message=message: message) for message in messages]

    def rejection_of(message: dict[str, Any]) -> str | None:
        scheduler = started_run(node("ask", human={"type": "APPROVAL", "prompt": "Publish?"}))
        view = cast("RunView", SimpleNamespace(scheduler=scheduler, pending_commands=lambda: signals))
        return rejection_of_pending_signal(view, wire.SIGNAL_FEEDBACK, message)

    assert rejection_of(messages[0]) is None
    rejection = "'ask' was answered by ann at 2023-11-14T22:13:20.000Z (approved, through signal)"
    assert rejection_of(messages[1]) == rejection
    assert rejection_of({"request_id": "handled"}) is None


async def test_ended_and_unknown_runs_raise_different_errors() -> None:
    feedback_client = _feedback_client(_Namespace({"run": []}, update=_NOT_FOUND))
    with pytest.raises(RunClosed, match=r"^the run 'run' has ended$"):
        await feedback_client.answer(RequestRef("run", "check"), _ANSWER)
    with pytest.raises(RunNotFound, match=r"^there is no run 'nowhere'$"):
        await feedback_client.answer(RequestRef("nowhere", "check"), _ANSWER)


async def test_requests_of_sub_plans_have_the_path_from_the_run() -> None:
    namespace = _Namespace({"run": ["check"], "run/a%2Fb": ["ask"], "run/a%2Fb/in%25": ["deep[1]"], "run/c": []})
    feedback_client = _feedback_client(namespace)
    all_requests = await feedback_client.requests_of("run")
    assert [(each.id, each.document["run_id"], each.request_ref) for each in all_requests] == [
        ("check", "run", RequestRef("run", "check")),
        ("a/b/ask", "run", RequestRef("run/a%2Fb", "ask")),
        ("a/b/in%/deep[1]", "run", RequestRef("run/a%2Fb/in%25", "deep[1]")),
    ]
    nested_requests = await feedback_client.requests_of("run/a%2Fb")
    nested_ids = [(each.id, each.document["run_id"]) for each in nested_requests]
    assert nested_ids == [("ask", "run/a%2Fb"), ("in%/deep[1]", "run/a%2Fb")]
    open_runs_query = f"{wire.RUN_WORKFLOWS_FILTER} AND ExecutionStatus = 'Running'"
    assert namespace.queries == [f"{open_runs_query} AND DagwrightAwaiting IS NOT NULL AND DagwrightRoot = 'run'"] * 2
    fallback_namespace = _Namespace(namespace.runs)
    actual = await _feedback_client(fallback_namespace, missing_attributes=["DagwrightRoot"]).requests_of("run")
    assert [each.id for each in actual] == [each.id for each in all_requests]
    assert fallback_namespace.queries == [f"{open_runs_query} AND RootWorkflowId = 'run'"]


@pytest.mark.parametrize(
    ("request_id", "request_ref"),
    [
        ("later", RequestRef("run", "later")),
        ("name/slash", RequestRef("run", "name/slash")),
        ("name/slash#2", RequestRef("run", "name/slash#2")),
        ("a/b/ask", RequestRef("run/a%2Fb", "ask")),
        ("a/b/in/deep[x/y]", RequestRef("run/a%2Fb/in", "deep[x/y]")),
        ("unknown/ask", RequestRef("run", "unknown/ask")),
    ],
)
async def test_request_path_resolves_to_its_child_run(request_id: str, request_ref: RequestRef) -> None:
    namespace = _Namespace({"run": ["name/slash"], "run/a%2Fb": ["ask"], "run/a%2Fb/in": []})
    assert await _feedback_client(namespace).request_ref_of("run", request_id) == request_ref


async def test_path_through_a_sub_plan_that_has_not_started_is_rejected() -> None:
    feedback_client = _feedback_client(_Namespace({"run": []}))
    with pytest.raises(FeedbackRejected, match="'later' of the run 'run' has not started; try again"):
        await feedback_client.request_ref_of("run", "later/ask")


def open_request(id: str, *, run_id: str = "run-1", node_id: str | None = None, path: str = "") -> OpenRequest:
    return OpenRequest({"request_id": f"{path}{id}"}, RequestRef(run_id, id), node_id or id, path)


def test_node_path_selects_the_requests_of_its_items_in_all_child_runs() -> None:
    first_run, second_run = (
        {"path": "archive/", "run_id": f"run/archive[{number}]", "node_id": "sum"} for number in (1, 2)
    )
    requests = [
        open_request("sum[a]", node_id="sum", run_id="run"),
        open_request("sum[b]#2", node_id="sum", run_id="run"),
        open_request("sums[a]", node_id="sums", run_id="run"),
        open_request("sum[a]", **first_run),
        open_request("sum[a]", **second_run),
        open_request("sum[b]", **second_run),
    ]
    assert [each.id for each in requests_of_node(requests, "sum")] == ["sum[a]", "sum[b]#2"]
    assert refs_by_run(requests_of_node(requests, "sum")) == [RequestRef("run", "sum")]
    nested_refs = [RequestRef("run/archive[1]", "sum[a]"), RequestRef("run/archive[2]", "sum")]
    assert refs_by_run(requests_of_node(requests, "archive/sum")) == nested_refs
    assert requests_of_node(requests, "archive") == []


def test_workflow_id_of_a_sub_plan_encodes_the_task_id_and_has_a_limited_length() -> None:
    for task_id in ("archive", "a/b", "50%", "%2F", "each[a/b]", "ü"):
        run_id, _, segment = child_workflow_id("run/x", task_id).rpartition("/")
        assert (run_id, _decode_task_id(segment)) == ("run/x", task_id)
    assert len(child_workflow_id("run", "x" * 2_000).encode()) <= MAX_CHILD_ID_BYTES


# With the outcome `None`, the run has not decided before the timeout whether another request follows.
@pytest.mark.parametrize("outcome", ["again", "none_follows", None, "lost"])
async def test_next_request_of_a_lookup_is_awaited(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
    repeated_request = Request("lookup:a#2", "lookup:a", "raised", "CLARIFICATION", "Nobody. Who?", OPENED_AT)
    polls: list[str] = []

    def reader(run_id: str) -> Any:
        async def read() -> None:
            polls.append(run_id)
            if outcome == "lost" and len(polls) > 1:
                raise _NOT_FOUND

        return SimpleNamespace(read=read)

    def following_request(_view: Any, request_id: str) -> Any:
        assert request_id == "lookup:a"
        if len(polls) < 2:
            return None
        return repeated_request if outcome == "again" else outcome

    feedback_client = _feedback_client(_Namespace({}), reader=reader)
    feedback_client._timeout_s = 0.05 if outcome is None else 60.0
    monkeypatch.setattr("dagwright.client.feedback.feedback_client.following_request", following_request)
    monkeypatch.setattr("dagwright.client.feedback.feedback_client._POLL_INTERVAL_S", 0.0)
    actual = await feedback_client.request_after(RequestRef("run-1", "lookup:a"))
    assert (actual and actual["request_id"]) == ("lookup:a#2" if outcome == "again" else None)
    assert (len(polls) == 2) == (outcome is not None)


async def test_large_answer_is_not_sent() -> None:
    namespace = _Namespace({"run": ["check"]}, update={"message": "approved"})
    feedback_client = _feedback_client(namespace)
    with pytest.raises(FeedbackRejected, match=r"the answer has 3,000,0.* bytes as JSON; at most 262,144 are allowed"):
        await feedback_client.answer(RequestRef("run", "check"), Answer({"text": "x" * 3_000_000}))
    assert namespace.sent_messages == []


class FakeFeedbackClient:
    """Fake `FeedbackClient` that accepts answers.

    Args:
        rejections: keyword -> error. A keyword is a run ID with `_` instead of `-`: `answer` raises the error for this
            run. For the keyword `request_ref`, `request_ref_of` raises the error for every run.
    """

    def __init__(self, **rejections: Exception) -> None:
        self._rejections = rejections
        self.answers: list[tuple[str, str, Any]] = []

    async def request_ref_of(self, run_id: str, request_id: str) -> RequestRef:
        if (error := self._rejections.get("request_ref")) is not None:
            raise error
        return RequestRef(run_id, request_id.rpartition("/")[2])

    async def answer(self, request_ref: RequestRef, answer: Answer) -> str:
        await asyncio.sleep(0)
        if (error := self._rejections.get(request_ref.run_id.replace("-", "_"))) is not None:
            raise error
        self.answers.append((request_ref.run_id, request_ref.request_id, answer.content))
        return f"{request_ref.request_id!r} is answered"

    async def request_after(self, request_ref: RequestRef) -> dict[str, Any] | None:
        if "lookup" not in request_ref.request_id:
            return None
        return {"request_id": f"{request_ref.request_id}#2", "run_id": request_ref.run_id}


async def send_test_answer(
    fake_client: FakeFeedbackClient, target: AnswerTarget, **extra_content: Any
) -> AnswerOutcome:
    async def read_extra_content(_: RequestRef) -> Mapping[str, Any]:
        return extra_content

    client = cast("FeedbackClient", fake_client)
    return await send_answer(client, target, Answer({"approved": True}), read_extra_content=read_extra_content)


def test_id_selects_one_request_or_all_requests_of_its_node() -> None:
    items = [open_request(f"check[{key}]", node_id="check") for key in "ab"]
    requests = [*items, open_request("other")]
    assert requests_with_id(requests, "check[a]", for_all=False) == items[:1]
    assert requests_with_id(requests, "check[a]", for_all=True) == items
    assert requests_with_id(requests, "check", for_all=False) == items
    assert requests_with_id(requests, "none", for_all=True) == []
    # Items of one run are answered in one message.
    assert AnswerTarget.of("run-1", items) == AnswerTarget("run-1", "check", items)
    assert AnswerTarget.of("run-1", items[:1]) == AnswerTarget("run-1", "check[a]", items[:1])
    expected = [[RequestRef("run-1", "check")], [RequestRef("run-1", "check[a]")]]
    assert [refs_by_run(each) for each in (items, items[:1])] == expected


async def test_answer_is_sent_to_each_run_and_rejections_are_reported() -> None:
    fake_client = FakeFeedbackClient()
    target = AnswerTarget.of("run-1", [open_request("check", run_id=f"run-{n}", path=f"sub[{n}]/") for n in (1, 2)])
    assert (await send_test_answer(fake_client, target, nodes=[1])).is_accepted
    content = {"approved": True, "nodes": [1]}
    assert sorted(fake_client.answers) == [("run-1", "check", content), ("run-2", "check", content)]
    fake_client = FakeFeedbackClient(run_2=FeedbackRejected("ann was first"), run_3=RunClosed("it has ended"))
    target = AnswerTarget.of(
        "run-1", [open_request("check", run_id=f"run-{number}", path="sub/") for number in (1, 2, 3)]
    )
    actual = await send_test_answer(fake_client, target)
    assert [result.is_accepted for result in actual.results] == [True, False, False]
    # Some of the runs accepted the answer, and others rejected it.
    assert (actual.is_accepted, actual.is_rejected) == (False, False)
    assert actual.message == "answered in 1 of 3 sub-plans: 'sub/check' is answered; ann was first; it has ended"


async def test_target_with_only_an_id_is_resolved() -> None:
    fake_client, target = FakeFeedbackClient(), AnswerTarget("run-1", "sub/check")
    outcome = await send_test_answer(fake_client, target)
    assert [*outcome.results] == [AnswerResult(True, "'sub/check' is answered")]
    assert fake_client.answers == [("run-1", "check", {"approved": True})]
    outcome = await send_test_answer(FakeFeedbackClient(request_ref=ItemNotNamed("name one")), target)
    assert [*outcome.results] == [AnswerResult(False, "name one", is_ambiguous=True)]


async def test_next_request_has_the_path_from_the_run() -> None:
    fake_client = FakeFeedbackClient()
    client = cast("FeedbackClient", fake_client)
    sub_target = AnswerTarget("run-1", "sub/lookup:person:J")
    accepted_answer = await send_test_answer(fake_client, sub_target)
    expected = {"request_id": "sub/lookup:person:J#2", "run_id": "run-1"}
    assert await next_request(client, accepted_answer) == expected
    answer_without_next_request = await send_test_answer(fake_client, AnswerTarget("run-1", "check"))
    assert await next_request(client, answer_without_next_request) is None
    rejected_answer = await send_test_answer(FakeFeedbackClient(run_1=FeedbackRejected("no")), sub_target)
    assert await next_request(client, rejected_answer) is None


def test_answer_without_a_request_id_needs_a_single_request() -> None:
    items = [open_request(f"each[{number}]", node_id="each") for number in range(2)]
    first_item, check = items[0], open_request("check")
    assert choose_requests([first_item], None, for_all=False) == [first_item]
    assert choose_requests(items, None, for_all=True) == items
    assert choose_requests([*items, check], "each", for_all=False) == items
    assert choose_requests([first_item], "unknown", for_all=False) == []
    with pytest.raises(NoOpenRequest):
        choose_requests([], None, for_all=False)
    with pytest.raises(AnswerUnclear, match=r"each\[0\], each\[1\]"):
        choose_requests(items, None, for_all=False)
    with pytest.raises(AnswerUnclear, match=r"each\[0\], check"):
        choose_requests([first_item, check], None, for_all=True)
