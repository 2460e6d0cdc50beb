"""Answers of people: by update or signal, early, late or invalid, and for requests of items and sub-plans."""

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from dagwright.core.boundary import wire
from tests.support.goals import call_node
from tests.support.people import (
    answer,
    echo_node,
    human_node,
    signal_answer,
    tool_node,
    wait_for_requests,
    wait_for_requests_of_children,
)
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of, wait_for_notes, wait_for_view
from tests.support.runs import (
    Handle,
    Runs,
    bare_document,
    bare_node,
    completed_node,
    document_of,
    failed_node,
    raw_value,
    with_run_error,
    without_cache,
)
from tests.workflow.building import ended_document

pytestmark = pytest.mark.server

_APPROVED = {"approved": True, "reason": None}


async def test_answer_by_update_is_accepted_and_the_dependent_node_continues(runs: Runs) -> None:
    handle = await runs.start({"nodes": [human_node("check", assignee="ann"), echo_node("go", "check")]})
    await wait_for_requests(runs.client, handle.id, "check")
    view = await view_of(runs, handle)
    assert (view.status, view.reason) == ("waiting", "waits for ann: What of check?")
    expected = {"status": "waiting", "reason": "waits for ann: What of check?"}
    assert bare_node(view.document()["nodes"]["check"]) == expected
    assert await handle.query(wire.QUERY_PENDING) == view.document()["waiting_for"]
    assert await answer(handle, "check", {"approved": True}) == {"ok": True, "message": "'check' is answered"}
    document = await ended_document(runs, handle)
    assert bare_document(document) == {
        "status": "completed",
        "output": {"go": {"check": _APPROVED}},
        "nodes": {"check": completed_node(_APPROVED), "go": completed_node({"check": _APPROVED})},
    }
    assert document["waiting_for"] == []


async def test_answer_by_signal_is_applied_and_an_invalid_answer_is_noted(runs: Runs) -> None:
    handle = await runs.start({"nodes": [human_node("pick", "SELECTION", options=["x", "y"]), echo_node("go", "pick")]})
    await wait_for_requests(runs.client, handle.id, "pick")
    await signal_answer(handle, "pick", {"selected": ["z"]})
    await handle.signal(wire.SIGNAL_FEEDBACK, raw_value(b"no json"))
    await handle.signal(wire.SIGNAL_FEEDBACK, args=[])
    await wait_for_notes(runs, handle, 3)
    notes = (await view_of(runs, handle)).document()["notes"]
    await signal_answer(handle, "pick", {"selected": ["y"]})
    document = await document_of(handle)
    assert document["notes"] == notes
    assert [note["code"] for note in notes] == ["message_rejected"] * 3
    assert [note["message"].partition(":")[0] for note in notes] == ["feedback"] * 3
    assert '"z"' in notes[0]["message"]
    expected = {"pick": completed_node({"selected": ["y"]}), "go": completed_node({"pick": {"selected": ["y"]}})}
    assert bare_document(document)["nodes"] == expected


async def test_deadline_fails_the_node_or_applies_the_default_answer(runs: Runs) -> None:
    nodes = [
        human_node("late", deadline="300ms"),
        human_node(
            "with_default", deadline="200ms", on_timeout={"default": {"approved": True, "reason": "no objection"}}
        ),
        echo_node("go", "with_default"),
    ]
    document = await document_of(handle := await runs.start({"nodes": nodes}))
    default = {"approved": True, "reason": "no objection"}
    assert bare_document(document)["nodes"] == {
        "late": failed_node("no_answer: 'late' was not answered in time: What of late?"),
        "with_default": completed_node(default),
        "go": completed_node({"with_default": default}),
    }
    assert (await view_of(runs, handle)).document() == with_run_error(document)


async def test_opening_a_request_while_another_is_open_adds_a_temporal_command_to_history(runs: Runs) -> None:
    """The history has a command after the second request was opened.

    Without the command, a worker that replays the run could validate the answer to the second request before this
    request is open, and reject the answer.
    """
    map_node = tool_node("later", "echo", for_each=[1, 2])
    human_map_node = {**human_node("each"), "for_each": [1, 2], "depends_on": ["later"]}
    handle = await runs.start({"nodes": [human_node("first"), map_node, human_map_node]})
    await wait_for_requests(runs.client, handle.id, "first", "each[0]", "each[1]")
    events = (await handle.fetch_history()).events
    last_completion_id = max(
        event.event_id for event in events if event.HasField("activity_task_completed_event_attributes")
    )
    [properties_event] = [event for event in events if event.HasField("workflow_properties_modified_event_attributes")]
    assert properties_event.event_id > last_completion_id
    await answer(handle, "each", {"approved": True})
    await answer(handle, "first", {"approved": True})
    assert bare_document(await document_of(handle))["nodes"]["each"] == completed_node([_APPROVED] * 2)


async def test_request_of_a_sub_plan_is_listed_and_answered_through_the_parent_run(runs: Runs) -> None:
    child_plan = {"nodes": [human_node("check"), echo_node("end", "check")], "output": "{{end.result}}"}
    handle = await runs.start({"nodes": [{"id": "in/side", "plan": {"nodes": [{"id": "deep", "plan": child_plan}]}}]})
    await wait_for_requests_of_children(runs, handle, "in/side/deep/check")
    assert (await view_of(runs, handle)).status == "waiting"
    assert (await answer(handle, "in/side/deep/check", {"approved": True}))["ok"] is True
    assert (await document_of(handle))["output"] == {"in/side": {"deep": {"check": _APPROVED}}}


async def test_invalid_answer_forwarded_to_a_child_run_is_noted_in_the_child_run(runs: Runs) -> None:
    handle = await runs.start({"nodes": [{"id": "sub", "plan": {"nodes": [human_node("check")]}}]})
    await wait_for_requests_of_children(runs, handle, "sub/check")
    await signal_answer(handle, "sub/check", {"selected": []})
    child_id = f"{handle.id}/sub"
    await wait_for_view(
        runs.client, child_id, lambda view: [note["code"] for note in view.notes] == ["message_rejected"]
    )
    await signal_answer(handle, "sub/check", {"approved": True})
    assert bare_document(await document_of(handle))["nodes"] == {"sub": completed_node({"check": _APPROVED})}


@without_cache
async def test_answer_before_the_first_workflow_task_is_applied(runs: Runs) -> None:
    handle = await runs.start_raw({"plan": {"nodes": [human_node("check")]}})
    await signal_answer(handle, "check", {"approved": True})
    assert bare_document(await ended_document(runs, handle))["nodes"] == {"check": completed_node(_APPROVED)}


# Start of the nodes that depend on an answer.


_ACTIVITY_SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
_WORKFLOW_TASK_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_PLAN = plan_of(
    call_node("first", "echo", x=1),
    call_node("second", "echo", x="{{first.result}}"),
    {"id": "check", "human": {"prompt": "Publish?"}, "depends_on": ["second"]},
    call_node("after", "echo", x="{{check.result}}"),
)


async def _count_workflow_tasks_until_start(handle: Handle, node_id: str, *, after_event: EventType.ValueType) -> int:
    """Return the number of workflow tasks that completed between the last `after_event` and the start of the node."""
    events = list((await handle.fetch_history()).events)
    start_position = next(number for number, event in enumerate(events) if _starts_node(event, node_id))
    cause_position = max(
        number for number, event in enumerate(events[:start_position]) if event.event_type == after_event
    )
    return sum(event.event_type == _WORKFLOW_TASK_COMPLETED for event in events[cause_position:start_position])


def _starts_node(event: HistoryEvent, node_id: str) -> bool:
    return (
        event.event_type == _ACTIVITY_SCHEDULED
        and event.activity_task_scheduled_event_attributes.activity_id == node_id
    )


@pytest.mark.parametrize("channel", ["signal", "update"])
async def test_dependent_of_an_answer_starts_in_the_next_workflow_task(runs: Runs, channel: str) -> None:
    handle = await runs.start(_PLAN)
    await wait_for_requests(runs.client, handle.id, "check")
    message = {"request_id": "check", "answer": {"approved": True}}
    if channel == "signal":
        await handle.signal(wire.SIGNAL_FEEDBACK, message)
    else:
        await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
    await document_of(handle)

    activity_completed = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    assert await _count_workflow_tasks_until_start(handle, "second", after_event=activity_completed) == 1
    workflow_signaled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    update_accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    # An update is accepted and applied in the same workflow task.
    cause, task_count = (workflow_signaled, 1) if channel == "signal" else (update_accepted, 0)
    assert await _count_workflow_tasks_until_start(handle, "after", after_event=cause) == task_count
