"""`RunReader` with constructed histories, which have events that Dagwright's workers never write."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingWorkflowTaskState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse, DescribeWorkflowExecutionResponse
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import pack_json
from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.model.states import STILL_RUNNING_OUTSIDE
from dagwright.features.run_scheduler import create_scheduler
from dagwright.history.document_hydration import _Hydrator, _NodeListing
from dagwright.history.offloaded_regions import OffloadedNodes
from dagwright.history.pending_activities import PendingCall, lookup_notes, pending_calls
from dagwright.history.replay import HistoryReplay
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.conversion import data_converter
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.protocol.run_input import RunInput, plan_from_pages, run_input_to_json
from dagwright.store import StoreUnavailable
from tests.support.eventually import eventually
from tests.support.memory_store import MemoryStore

_PLAN = {"plan": 1, "nodes": [{"id": "a", "tool": "t"}]}


class _FakeHandle:
    def __init__(self, events: Sequence[HistoryEvent], task: PendingWorkflowTaskInfo) -> None:
        self._events = events
        self._task = task

    async def describe(self) -> Any:
        description = DescribeWorkflowExecutionResponse(
            pending_workflow_task=self._task, workflow_execution_info=WorkflowExecutionInfo()
        )
        return SimpleNamespace(run_id="r", workflow_type="RunPlan", raw_description=description)

    async def fetch_history_events(self) -> AsyncIterator[HistoryEvent]:
        for event in self._events:
            yield event


async def _view(*events: HistoryEvent, attempt: int = 0) -> RunView:
    return await _view_with_pending_task(PendingWorkflowTaskInfo(attempt=attempt), *events)


async def _view_with_pending_task(task: PendingWorkflowTaskInfo, *events: HistoryEvent) -> RunView:
    """Read a run with a pending workflow task. A worker has just polled the task queue."""
    handle = _FakeHandle(events, task)

    async def describe_task_queue(*_: Any, **__: Any) -> DescribeTaskQueueResponse:
        polled_at = Timestamp()
        polled_at.GetCurrentTime()
        return DescribeTaskQueueResponse(pollers=[PollerInfo(last_access_time=polled_at)])

    client = SimpleNamespace(
        namespace="default",
        get_workflow_handle=lambda *_, **__: handle,
        data_converter=data_converter,
        workflow_service=SimpleNamespace(describe_task_queue=describe_task_queue),
    )
    return await RunReader(cast("Client", client), "run-1").read()


def _payload(content: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=content)


def _event(event_id: int, event_type: str, **attributes: Any) -> HistoryEvent:
    event = HistoryEvent(event_id=event_id, event_type=EventType.Value(f"EVENT_TYPE_{event_type.upper()}"))
    event_attributes = getattr(event, f"{event_type}_event_attributes")
    event_attributes.SetInParent()
    event_attributes.MergeFrom(type(event_attributes)(**attributes))
    return event


def _completed_task_events(event_id: int) -> list[HistoryEvent]:
    """Return the events of a completed workflow task."""
    completed_event = _event(event_id + 1, "workflow_task_completed", started_event_id=event_id)
    return [_event(event_id, "workflow_task_started"), completed_event]


def _start_event(*payloads: bytes) -> HistoryEvent:
    return _event(1, "workflow_execution_started", input=Payloads(payloads=map(_payload, payloads)))


def _plan_start_event() -> HistoryEvent:
    compiled = prepare_plan(check_plan(_PLAN, {}, allow_unknown_tools=True), {})
    return _start_event(json.dumps(run_input_to_json(RunInput(compiled=compiled))).encode())


def _task_failure_event(cause: WorkflowTaskFailedCause.ValueType, message: str) -> HistoryEvent:
    return _event(4, "workflow_task_failed", cause=cause, failure=Failure(message=message))


def _note_messages(view: RunView) -> list[str]:
    return [note["message"] for note in view.document()["notes"]]


async def test_stuck_workflow_task_is_reported_with_its_cause() -> None:
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
    started_event, failed_event = _event(3, "workflow_task_started"), _task_failure_event(cause, "no such command")
    assert _note_messages(await _view(_plan_start_event(), started_event, failed_event, attempt=5)) == [
        "the run cannot continue: the worker's code differs from the code that started this run; stop that worker or "
        "roll it back, and the run continues from its current state; nothing is lost (its workflow task was tried 4 "
        "times: non deterministic error: no such command)"
    ]
    assert _note_messages(await _view(_plan_start_event(), attempt=3)) == [
        "the run cannot continue: no worker responded in time; the run continues by itself when a worker responds "
        "(its workflow task was tried 2 times: no response)"
    ]
    # A single failure is not reported, and neither are past failures.
    failed_event = _task_failure_event(WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNSPECIFIED, "broke")
    assert _note_messages(await _view(_plan_start_event(), started_event, failed_event, attempt=2)) == []
    assert _note_messages(await _view(_plan_start_event(), failed_event, *_completed_task_events(3), attempt=0)) == []
    assert (await _view(_plan_start_event(), *_completed_task_events(3))).document()["nodes"]["a"]["status"] == "ready"


async def test_run_that_busy_workers_have_not_started_waits_for_a_free_slot() -> None:
    task = PendingWorkflowTaskInfo(state=PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED)
    task.scheduled_time.FromSeconds(int(time.time()) - 10)
    view = await _view_with_pending_task(task, _plan_start_event())
    codes = [note["code"] for note in view.notes]
    assert (view.status, view.reason, codes) == ("waiting", "no worker has a free slot", ["no_free_slot"])
    task.scheduled_time.GetCurrentTime()
    assert (await _view_with_pending_task(task, _plan_start_event())).status == "running"


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Failure(message="broke", cause=Failure(message="deeper")), "broke"),
        (Failure(message="Failure exceeds size limit.", cause=Failure(message="brok")), "brok"),
        (Failure(message="Failure exceeds size limit."), "Failure exceeds size limit."),
    ],
)
def test_failure_over_the_size_limit_has_the_message_of_its_cause(failure: Failure, message: str) -> None:
    description = _description_with(PendingActivityInfo(activity_id="a", attempt=2, last_failure=failure))
    replay = cast("HistoryReplay", SimpleNamespace(task_of=str, tasks_of=lambda name: [name]))
    assert pending_calls(description, replay) == {"a": PendingCall(2, "scheduled", message)}


def _description_with(*calls: PendingActivityInfo) -> DescribeWorkflowExecutionResponse:
    return DescribeWorkflowExecutionResponse(pending_activities=calls)


def test_retried_lookups_are_noted_with_attempt_and_reason() -> None:
    lookups = {name: {"search_text": name, "entity_type": "person"} for name in ("Ann", "Bob", "Cy", "Dee")}
    plan = {"intents": [{"verb": "pay", "params": {}, "refs": {}, "lookups": lookups}]}
    scheduler = create_scheduler(prepare_plan(check_plan(plan, {}, allow_unknown_tools=True), {}), {})
    refused, locked = Failure(message="connection refused"), Failure(message="locked")
    description = _description_with(
        PendingActivityInfo(activity_id="lookup:person:Ann", attempt=2, last_failure=refused),
        PendingActivityInfo(activity_id="lookup:person:Bob", attempt=3, last_failure=refused),
        PendingActivityInfo(activity_id="lookup:person:Cy", attempt=1),
        PendingActivityInfo(activity_id="lookup:person:Dee", attempt=2, last_failure=locked),
        PendingActivityInfo(activity_id="@result_1", attempt=2, last_failure=refused),
    )
    replay = cast("HistoryReplay", SimpleNamespace(task_of=str, tasks_of=lambda name: [name], scheduler=scheduler))
    subjects = ("'Ann' (person) and 1 more, attempt 3: connection refused", "'Dee' (person), attempt 2: locked")
    messages = [f"looking up {subject}; it is retried automatically" for subject in subjects]
    assert lookup_notes(description, replay) == [
        {"code": "lookup_waits", "node_id": None, "message": message} for message in messages
    ]


INVALID_MAP_BATCH = "invalid input: not a map batch: KeyError('node_ends')"


@pytest.mark.parametrize(
    ("payloads", "message"),
    [
        ([b'{"plan": {}, "inputs": {"x": 1e999}}'], "the payload is not JSON: a number is too large"),
        ([b'{"plan": {}, "inputs": {"x": NaN}}'], "the payload is not JSON: expected value at line 1 column 30"),
        ([b'{"compiled": {"format": 1, "nodes": []}, "map_batch": {}}'], INVALID_MAP_BATCH),
        ([b"{}", b"{}"], 'the input must be an object such as {"plan": {…}, "inputs": {}}'),
        ([], 'the input must be an object such as {"plan": {…}, "inputs": {}}'),
    ],
)
async def test_view_of_invalid_input_has_the_error_of_the_workflow(payloads: list[bytes], message: str) -> None:
    view = await _view(_start_event(*payloads))
    assert view.error == {"code": "invalid", "message": message, "retryable": False}


def test_message_is_decoded_or_rejected() -> None:
    assert read_message(_payload(b'{"a": 1}')) == {"a": 1}
    assert read_message(Payload(metadata={"encoding": b"binary/null"})) is None
    with pytest.raises(MessageInvalid, match="the payload is not JSON: a number is too large"):
        read_message(_payload(b"1e999"))


def _events_with_started_child(compiled: dict[str, Any]) -> list[HistoryEvent]:
    child_event = _event(5, "start_child_workflow_execution_initiated", workflow_id="run-1/sub")
    return [_start_event(json.dumps({"compiled": compiled}).encode()), *_completed_task_events(3), child_event]


_PLAN_WITH_SUB_PLAN = {
    "format": 1,
    "nodes": [{"id": "sub", "kind": "plan", "sub_plan": {"format": 1, "nodes": [{"id": "a", "tool": "t"}]}}],
}


async def test_node_of_a_sub_plan_that_does_not_stop_in_time_is_cancelled() -> None:
    timer_started_event = _event(9, "timer_started", timer_id="grace")
    timer_started_event.user_metadata.summary.CopyFrom(_payload(json.dumps(wire.TIMER_GRACE).encode()))
    cancel_signal = _event(6, "workflow_execution_signaled", signal_name=wire.CANCEL)
    timer_fired_event = _event(10, "timer_fired", timer_id="grace")
    timer_events = (timer_started_event, timer_fired_event)
    events = (cancel_signal, *_completed_task_events(7), *timer_events, *_completed_task_events(11))
    view = await _view(*_events_with_started_child(_PLAN_WITH_SUB_PLAN), *events)
    node = view.document()["nodes"]["sub"]
    assert (node["status"], node["reason"]) == ("cancelled", STILL_RUNNING_OUTSIDE)


async def test_result_of_a_sub_plan_that_is_not_an_object_fails_its_node() -> None:
    child, result = WorkflowExecution(workflow_id="run-1/sub"), Payloads(payloads=[_payload(b"7")])
    completed_event = _event(6, "child_workflow_execution_completed", workflow_execution=child, result=result)
    view = await _view(*_events_with_started_child(_PLAN_WITH_SUB_PLAN), completed_event, *_completed_task_events(7))
    message = "the sub-plan failed: the result of a sub-plan must be an object"
    error = {"code": "sub_plan_failed", "message": message, "retryable": False}
    assert view.document()["nodes"]["sub"]["error"] == error


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ([["no", "head"], {"same": {}, "each": {"id": []}}], "the first page of the plan is not an object"),
        ([{"format": 1}, {"same": {}, "each": {"id": ["a"], "tool": ["t"], "dependencies": [[7]]}}], None),
        ([{"format": 1}, 5], None),
    ],
)
async def test_invalid_pages_leave_a_run_without_a_plan(pages: list[Any], message: str | None) -> None:
    events = [_start_event(b'{"compiled": {"pages": ["one", "two"]}}')]
    for number, page in enumerate(pages):
        first_event_id = 10 + 4 * number
        scheduled_event = _event(first_event_id, "activity_task_scheduled", activity_id=str(number))
        scheduled_event.activity_task_scheduled_event_attributes.activity_type.name = wire.ACTIVITY_LOAD_PLAN
        packed_page = Payloads(payloads=[_payload(json.dumps(pack_json(json.dumps(page).encode())).encode())])
        completed_event = _event(
            first_event_id + 1, "activity_task_completed", scheduled_event_id=first_event_id, result=packed_page
        )
        events += [scheduled_event, completed_event, *_completed_task_events(first_event_id + 2)]
    view = await _view(*events)
    assert (view.scheduler, view.status) == (None, "running")
    with pytest.raises(ValueError, match=message):
        plan_from_pages(pages[0], nodes_from_columns(pages[1]))


@pytest.mark.parametrize("loop_iterations", range(4))
async def test_poll_is_cancelled_even_if_an_event_arrives_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, loop_iterations: int
) -> None:
    change_event, view_count = asyncio.Event(), 0

    async def describe(*_: Any) -> Any:
        return SimpleNamespace(run_id="r")

    async def number_of(*_: Any) -> int:
        return 1

    async def view(*_: Any) -> Any:
        nonlocal view_count
        view_count += 1
        return SimpleNamespace(is_closed=False)

    history_reader = SimpleNamespace(change_event=change_event, follow=asyncio.Event().wait)
    monkeypatch.setattr(RunReader, "_describe", describe)
    monkeypatch.setattr(RunReader, "_number_of", number_of)
    monkeypatch.setattr(RunReader, "_reader", lambda *_, **__: history_reader)
    monkeypatch.setattr(RunReader, "_view_with_retries", view)

    async def follow() -> None:
        async for _ in RunReader(cast("Client", None), "run").follow():
            pass

    follow_task = asyncio.create_task(follow())
    change_event.set()
    await eventually(lambda: view_count == 1)
    change_event.set()
    for _ in range(loop_iterations):
        await asyncio.sleep(0)
    follow_task.cancel()
    done, _ = await asyncio.wait([follow_task], timeout=5)
    follow_task.cancel()
    assert done
    assert follow_task.cancelled()


NODE_IDS = [f"n{number}" for number in range(40)]


class UnavailableNodes(AsyncIterator[Any]):
    """Nodes of an offloaded region in an unavailable store. The region has every second node of the document."""

    ids_in_run = frozenset(NODE_IDS[::2])

    def nodes(self) -> AsyncIterator[Any]:
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        raise StoreUnavailable("the payload store is down")


async def test_nodes_of_an_unavailable_region_are_last_and_in_document_order() -> None:
    document = {"nodes": {name: {"result": 1, "error": None} for name in NODE_IDS}}
    hydrator = _Hydrator(MemoryStore(), max_bytes=None)
    listing = _NodeListing(document, cast("OffloadedNodes", UnavailableNodes()), hydrator, counts=Counter())
    assert [name async for name, _ in listing.nodes()] == [*NODE_IDS[1::2], *NODE_IDS[::2]]
