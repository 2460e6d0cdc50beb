"""`RunFeed` over histories made by hand: what no worker of ours writes, and what it tells of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import (
    HistoryEvent,
    WorkflowExecutionStartedEventAttributes,
    WorkflowTaskCompletedEventAttributes,
    WorkflowTaskFailedEventAttributes,
)
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import pack_json
from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.model.states import STILL_OUTSIDE
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.history.pending_activities import PendingCall, lookup_notes, pending_calls
from dagwright.history.replay import Projection
from dagwright.history.run_reader import RunFeed, RunView
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.conversion import data_converter
from dagwright.protocol.messages import MessageInvalid, RunInput, plan_of_pages, read_message, run_input_to_json
from tests.support.eventually import eventually

_PLAN = {"plan": 1, "nodes": [{"id": "a", "tool": "t"}]}


class _Handle:
    def __init__(self, events: Sequence[HistoryEvent], attempt: int) -> None:
        self._events = events
        self._attempt = attempt

    async def describe(self) -> Any:
        task = PendingWorkflowTaskInfo(attempt=self._attempt)
        raw = DescribeWorkflowExecutionResponse(
            pending_workflow_task=task, workflow_execution_info=WorkflowExecutionInfo()
        )
        return SimpleNamespace(run_id="r", workflow_type="RunPlan", raw_description=raw)

    async def fetch_history_events(self) -> AsyncIterator[HistoryEvent]:
        for event in self._events:
            yield event


async def _view(*events: HistoryEvent, attempt: int = 0) -> RunView:
    handle = _Handle(events, attempt)
    client = SimpleNamespace(get_workflow_handle=lambda *_, **__: handle, data_converter=data_converter)
    return await RunFeed(cast(Client, client), "run-1").read()


def _started(*payloads: bytes) -> HistoryEvent:
    encoded = Payloads(payloads=[_payload(data) for data in payloads])
    return HistoryEvent(
        event_id=1,
        event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        workflow_execution_started_event_attributes=WorkflowExecutionStartedEventAttributes(input=encoded),
    )


def _payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


def _plan_started() -> HistoryEvent:
    compiled = prepare_plan(check_plan(_PLAN, {}, any_tool=True), {})
    return _started(json.dumps(run_input_to_json(RunInput(compiled=compiled))).encode())


def _task_started() -> HistoryEvent:
    return HistoryEvent(event_id=3, event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED)


def _task_failed(cause: WorkflowTaskFailedCause.ValueType, message: str) -> HistoryEvent:
    attributes = WorkflowTaskFailedEventAttributes(cause=cause, failure=Failure(message=message))
    return HistoryEvent(
        event_id=4,
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        workflow_task_failed_event_attributes=attributes,
    )


def _task_completed() -> HistoryEvent:
    return HistoryEvent(
        event_id=4,
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        workflow_task_completed_event_attributes=WorkflowTaskCompletedEventAttributes(started_event_id=3),
    )


def _messages(view: RunView) -> list[str]:
    return [note["message"] for note in view.document()["notes"]]


async def test_workflow_task_that_keeps_failing_is_told_with_its_cause() -> None:
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    view = await _view(_plan_started(), _task_started(), _task_failed(cause, "no such command"), attempt=5)

    assert _messages(view) == [
        "the run cannot continue: the worker's code differs from the code that started this run; stop that worker or "
        "roll it back, and the run continues by itself where it is, with nothing lost (its workflow task was tried 4 "
        "times: non deterministic error: no such command)"
    ]


async def test_workflow_task_that_is_not_answered_is_told_as_such() -> None:
    view = await _view(_plan_started(), attempt=3)

    assert _messages(view) == [
        "the run cannot continue: no worker answered in time; it continues by itself when one does (its workflow task "
        "was tried 2 times: without an answer)"
    ]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure(message="broke", cause=Failure(message="deeper")), "broke"),
        (Failure(message="Failure exceeds size limit.", cause=Failure(message="brok")), "brok"),
        (Failure(message="Failure exceeds size limit."), "Failure exceeds size limit."),
    ],
)
def test_failure_that_the_server_has_cut_is_told_as_far_as_it_is_kept(failure: Failure, said: str) -> None:
    raw = DescribeWorkflowExecutionResponse(
        pending_activities=[PendingActivityInfo(activity_id="a", attempt=2, last_failure=failure)]
    )
    projection = cast(Projection, SimpleNamespace(task_of=str))
    assert pending_calls(raw, projection) == {"a": PendingCall(2, "scheduled", said)}


def test_lookups_that_are_tried_again_are_told_with_attempt_and_reason() -> None:
    lookups = {name: {"search_text": name, "entity_type": "person"} for name in ("Ann", "Bob", "Cy", "Dee")}
    plan = {"intents": [{"verb": "pay", "params": {}, "refs": {}, "lookups": lookups}]}
    scheduler = Scheduler(prepare_plan(check_plan(plan, {}, any_tool=True), {}), {})
    away = Failure(message="the database refuses: connection refused")
    raw = DescribeWorkflowExecutionResponse(
        pending_activities=[
            PendingActivityInfo(activity_id="lookup:person:Ann", attempt=2, last_failure=away),
            PendingActivityInfo(activity_id="lookup:person:Bob", attempt=3, last_failure=away),
            PendingActivityInfo(activity_id="lookup:person:Cy", attempt=1),
            PendingActivityInfo(activity_id="lookup:person:Dee", attempt=2, last_failure=Failure(message="locked")),
            PendingActivityInfo(activity_id="@result_1", attempt=2, last_failure=away),
        ]
    )
    projection = cast(Projection, SimpleNamespace(task_of=str, scheduler=scheduler))
    told = [
        "looking up 'Ann' (person) and 1 more, attempt 3: the database refuses: connection refused; it is tried again "
        "by itself",
        "looking up 'Dee' (person), attempt 2: locked; it is tried again by itself",
    ]
    assert lookup_notes(raw, projection) == [
        {"code": "lookup_waits", "node": None, "message": message} for message in told
    ]


async def test_run_that_goes_on_after_failures_is_told_without_them() -> None:
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNSPECIFIED
    failed = _task_failed(cause, "broke")

    assert _messages(await _view(_plan_started(), _task_started(), failed, attempt=2)) == []
    assert _messages(await _view(_plan_started(), failed, _task_started(), _task_completed(), attempt=0)) == []


async def test_task_without_an_event_is_ready() -> None:
    assert (await _view(_plan_started(), _task_started(), _task_completed())).document()["nodes"]["a"][
        "status"
    ] == "ready"


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([b'{"plan": {}, "inputs": {"x": 1e999}}'], "the payload is no JSON: a number is too large"),
        ([b'{"plan": {}, "inputs": {"x": NaN}}'], "the payload is no JSON: expected value at line 1 column 30"),
        (
            [b'{"compiled": {"format": 1, "nodes": []}, "chunk": {}}'],
            "the input cannot be read: this is no chunk of a map: KeyError('given')",
        ),
        ([b"{}", b"{}"], 'the input must be an object such as {"plan": {…}, "inputs": {}}'),
        ([], 'the input must be an object such as {"plan": {…}, "inputs": {}}'),
    ],
)
async def test_input_that_the_workflow_refuses_is_refused_here_too(payloads: list[bytes], message: str) -> None:
    view = await _view(_started(*payloads))

    assert view.error == {"code": "invalid", "message": message, "retryable": False}


def test_message_is_read_in_one_way() -> None:
    assert read_message(_payload(b'{"a": 1}')) == {"a": 1}
    assert read_message(Payload(metadata={"encoding": b"binary/null"})) is None
    with pytest.raises(MessageInvalid, match="the payload is no JSON: a number is too large"):
        read_message(_payload(b"1e999"))


def _event(event_id: int, kind: str, **attributes: Any) -> HistoryEvent:
    event = HistoryEvent(event_id=event_id, event_type=EventType.Value(f"EVENT_TYPE_{kind.upper()}"))
    named = getattr(event, f"{kind}_event_attributes")
    named.SetInParent()
    named.MergeFrom(type(named)(**attributes))
    return event


def _begun(compiled: dict[str, Any]) -> list[HistoryEvent]:
    return [
        _started(json.dumps({"compiled": compiled}).encode()),
        _event(3, "workflow_task_started"),
        _event(4, "workflow_task_completed", started_event_id=3),
        _event(5, "start_child_workflow_execution_initiated", workflow_id="run-1/sub"),
    ]


_WITH_SUB_PLAN = {
    "format": 1,
    "nodes": [{"id": "sub", "kind": "plan", "sub_plan": {"format": 1, "nodes": [{"id": "a", "tool": "t"}]}}],
}


async def test_sub_plan_that_does_not_stop_in_time_is_left_outside() -> None:
    timer = _event(9, "timer_started", timer_id="grace")
    timer.user_metadata.summary.CopyFrom(_payload(json.dumps(wire.TIMER_GRACE).encode()))
    view = await _view(
        *_begun(_WITH_SUB_PLAN),
        _event(6, "workflow_execution_signaled", signal_name=wire.CANCEL),
        _event(7, "workflow_task_started"),
        _event(8, "workflow_task_completed", started_event_id=7),
        timer,
        _event(10, "timer_fired", timer_id="grace"),
        _event(11, "workflow_task_started"),
        _event(12, "workflow_task_completed", started_event_id=11),
    )
    node = view.document()["nodes"]["sub"]
    assert (node["status"], node["reason"]) == ("cancelled", STILL_OUTSIDE)


async def test_result_of_a_sub_plan_that_is_no_object_fails_its_node() -> None:
    done = _event(
        6,
        "child_workflow_execution_completed",
        workflow_execution=WorkflowExecution(workflow_id="run-1/sub"),
        result=Payloads(payloads=[_payload(b"7")]),
    )
    view = await _view(
        *_begun(_WITH_SUB_PLAN),
        done,
        _event(7, "workflow_task_started"),
        _event(8, "workflow_task_completed", started_event_id=7),
    )
    assert view.document()["nodes"]["sub"]["error"] == {
        "code": "sub_plan_failed",
        "message": "the sub-plan failed: the result of a sub-plan must be an object",
        "retryable": False,
    }


@pytest.mark.parametrize(
    ("pages", "told"),
    [
        ([["no", "head"], {"same": {}, "each": {"id": []}}], "the first of its pages is no object"),
        ([{"format": 1}, {"same": {}, "each": {"id": ["a"], "tool": ["t"], "dependencies": [[7]]}}], None),
        ([{"format": 1}, 5], None),
    ],
)
async def test_pages_that_the_run_refuses_leave_it_without_a_plan(pages: list[Any], told: str | None) -> None:
    events = [_started(b'{"compiled": {"pages": ["one", "two"]}}')]
    for number, page in enumerate(pages):
        scheduled = _event(10 + 4 * number, "activity_task_scheduled", activity_id=str(number))
        scheduled.activity_task_scheduled_event_attributes.activity_type.name = wire.ACTIVITY_LOAD_PLAN
        packed = Payloads(payloads=[_payload(json.dumps(pack_json(json.dumps(page).encode())).encode())])
        answered = _event(11 + 4 * number, "activity_task_completed", scheduled_event_id=10 + 4 * number, result=packed)
        begun = _event(12 + 4 * number, "workflow_task_started")
        ended = _event(13 + 4 * number, "workflow_task_completed", started_event_id=12 + 4 * number)
        events += [scheduled, answered, begun, ended]
    view = await _view(*events)
    assert (view.scheduler, view.status) == (None, "running")
    with pytest.raises(ValueError, match=told):
        plan_of_pages(pages[0], nodes_from_columns(pages[1]))


@pytest.mark.parametrize("steps", range(4))
async def test_look_that_is_given_up_just_as_something_happens_ends(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    changed, looks = asyncio.Event(), 0

    async def read_on() -> None:
        await asyncio.Event().wait()

    async def described(*_: Any) -> Any:
        return SimpleNamespace(run_id="r")

    async def number_of(*_: Any) -> int:
        return 1

    async def view(*_: Any) -> Any:
        nonlocal looks
        looks += 1
        return SimpleNamespace(is_closed=False)

    monkeypatch.setattr(RunFeed, "_describe", described)
    monkeypatch.setattr(RunFeed, "_number_of", number_of)
    monkeypatch.setattr(RunFeed, "_reader", lambda *_, **__: SimpleNamespace(changed=changed, read_on=read_on))
    monkeypatch.setattr(RunFeed, "_patiently_view", view)

    async def follow() -> None:
        async for _ in RunFeed(cast("Client", None), "run").follow():
            pass

    following = asyncio.create_task(follow())
    changed.set()
    await eventually(lambda: looks == 1)
    changed.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait([following], timeout=5)
    following.cancel()
    assert done
    assert following.cancelled()
