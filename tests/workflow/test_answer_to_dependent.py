"""From an answer to the start of what waited for it there is one workflow task, as from the end of any other node."""

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from dagwright.core.boundary import wire
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, document_of

pytestmark = pytest.mark.server

_SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
_TASK_DONE = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_PLAN = {
    "nodes": [
        {"id": "first", "tool": "echo", "arguments": {"x": 1}},
        {"id": "second", "tool": "echo", "arguments": {"x": "{{first.result}}"}},
        {"id": "check", "human": {"prompt": "Publish?"}, "depends_on": ["second"]},
        {"id": "after", "tool": "echo", "arguments": {"x": "{{check.result}}"}},
    ]
}


async def _tasks_until_started(handle: Handle, node: str, *, behind: EventType.ValueType) -> int:
    """Returns the workflow tasks from the last event of a kind before the start of a node up to that start."""
    events = list((await handle.fetch_history()).events)
    started = next(number for number, event in enumerate(events) if _starts(event, node))
    cause = max(number for number, event in enumerate(events[:started]) if event.event_type == behind)
    return sum(event.event_type == _TASK_DONE for event in events[cause:started])


def _starts(event: HistoryEvent, node: str) -> bool:
    return event.event_type == _SCHEDULED and event.activity_task_scheduled_event_attributes.activity_id == node


async def _asking(runs: Runs) -> Handle:
    handle = await runs.start(_PLAN)

    async def asks() -> bool:
        return bool(await handle.query(wire.QUERY_PENDING))

    await eventually(asks)
    return handle


@pytest.mark.parametrize("way", ["signal", "update"])
async def test_dependent_of_an_answer_starts_as_soon_as_that_of_any_other_node(runs: Runs, way: str) -> None:
    handle = await _asking(runs)
    message = {"request": "check", "answer": {"approved": True}}
    if way == "signal":
        await handle.signal(wire.SIGNAL_FEEDBACK, message)
    else:
        await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
    await document_of(handle)

    completed = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    assert await _tasks_until_started(handle, "second", behind=completed) == 1
    signalled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    # An update is accepted in the workflow task that takes it.
    cause, tasks = (signalled, 1) if way == "signal" else (accepted, 0)
    assert await _tasks_until_started(handle, "after", behind=cause) == tasks
