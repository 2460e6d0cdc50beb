"""Commands to a run: pause, resume, limits and cancellation, by signal and by update."""

import time
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from dagwright.core.boundary import wire
from dagwright.core.scheduler import map_items
from dagwright.history.closing_event import read_recorded_document
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, rejection_of, tool_node
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of, wait_for_status
from tests.support.runs import (
    Document,
    Handle,
    Runs,
    bare_document,
    bare_error,
    cancelled_node,
    completed_node,
    document_of,
    end_of,
    events_of,
    with_run_error,
    without_cache,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, ended_document, pure_node

pytestmark = pytest.mark.server


def _plan_with_held_node(gate_name: str) -> dict[str, Any]:
    """Return a plan whose second node is ready when the gate is opened."""
    return plan_of(hold_node("held", gate_name), tool_node("after", "echo", "held"))


def _note(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "node_id": None, "message": message}


@without_cache
async def test_paused_run_completes_running_nodes_and_starts_no_node_before_the_resume(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, _plan_with_held_node(gate.name))
    await handle.signal(wire.PAUSE, {"reason": "too early", "by": "ann"})
    gate.open()
    view = await wait_for_status(runs.client, handle.id, "waiting")
    expected = {"held": "completed", "after": "ready"}
    assert {node_id: node["status"] for node_id, node in view.document()["nodes"].items()} == expected
    assert view.document()["notes"] == [
        _note("pause", "paused by ann: too early"),
        _note("paused", "nothing new starts: paused by ann"),
    ]
    await handle.signal(wire.PAUSE)
    await handle.signal("unknown_signal")
    await handle.signal(wire.SIGNAL_SUB_PLAN_ENDED, {"task": "after"})
    await eventually(lambda: _has_note(handle, "sub_plan_ended: 'after' is not a sub-plan of this run"))
    assert (await view_of(runs, handle)).document()["notes"] == (await handle.query(wire.QUERY_STATUS))["notes"]
    await handle.signal(wire.RESUME, {"by": "bob"})
    document = await document_of(handle)
    assert bare_document(document)["nodes"] == {"held": completed_node(gate.name), "after": completed_node({})}
    assert document["notes"] == [
        _note("pause", "paused by ann: too early"),
        _note("message_rejected", "pause: the run is paused already, paused by ann: too early"),
        _note("message_rejected", "'unknown_signal' is not a signal of a run"),
        _note("message_rejected", "sub_plan_ended: 'after' is not a sub-plan of this run"),
        _note("resume", "resumed by bob"),
    ]
    assert (await view_of(runs, handle)).document()["notes"] == document["notes"]


async def test_second_cancel_of_a_run_is_rejected(runs: Runs, gate: Gate) -> None:
    # The cancellation would arrive with the next heartbeat of the node. The node completes before this heartbeat.
    node = tool_node("held", "hold_write", arguments={"name": gate.name}, heartbeat="30s")
    handle = await gate.start_run(runs, {"nodes": [node]})
    result = await handle.execute_update(wire.CANCEL, {"reason": "enough", "by": "ann"})
    assert result == {"ok": True, "message": "the run is being stopped"}
    assert await rejection_of(handle, {}, update=wire.CANCEL) == "the run is being stopped already"
    await handle.signal(wire.CANCEL)
    gate.open()
    document = await document_of(handle)
    assert (document["status"], document["nodes"]["held"]["status"]) == ("cancelled", "completed")
    assert document["notes"] == [
        _note("cancel", "cancelled by ann: enough"),
        _note("message_rejected", "cancel: the run is being stopped already"),
    ]


@without_cache
async def test_sub_plans_are_paused_with_their_run(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, {"nodes": [{"id": "child", "plan": _plan_with_held_node(gate.name)}]})
    await handle.signal(wire.PAUSE, {"by": "ann"})
    child_handle = runs.client.get_workflow_handle(f"{handle.id}/child")
    await eventually(lambda: _has_note(child_handle, "paused by ann"))
    gate.open()
    await wait_for_status(runs.client, child_handle.id, "waiting")
    await wait_for_status(runs.client, handle.id, "waiting")
    await handle.signal(wire.RESUME)
    assert bare_document(await document_of(handle))["status"] == "completed"


async def _has_note(handle: Handle, message: str) -> bool:
    return any(note["message"] == message for note in (await handle.query(wire.QUERY_STATUS))["notes"])


async def test_run_that_is_paused_at_its_start_starts_no_node(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = {"nodes": [call_node("w", "write", name=unique_name)]}
    handle = await runs.start_raw({"plan": plan}, start_signal="pause", start_signal_args=[{"by": "ann"}])
    await wait_for_status(runs.client, handle.id, "waiting")
    assert harness.effects[unique_name] == []
    await handle.signal(wire.CANCEL)
    assert bare_document(await document_of(handle))["status"] == "cancelled"


def _plan_of_held_nodes(gate_name: str, *, count: int = 1) -> dict[str, Any]:
    """Return a plan of `count` nodes that run until the gate is opened."""
    return plan_of(*[hold_node(f"n{number}", gate_name, heartbeat="1s") for number in range(count)])


async def _set_limits(handle: Handle, **message: Any) -> str:
    """Change the limits by update as `ann`, and return the message of the response."""
    result = await handle.execute_update(wire.SET_LIMITS, {"by": "ann", **message})
    assert result["ok"] is True
    return str(result["message"])


async def _has_timers(handle: Handle, count: int) -> bool:
    events = (await handle.fetch_history()).events
    return sum(event.HasField("timer_started_event_attributes") for event in events) == count


async def test_run_with_an_extended_deadline_completes(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, {**_plan_of_held_nodes(gate.name), "deadline": "3s"})
    started_at = time.time()
    assert await _set_limits(handle, deadline="1h", reason="slow today") == "the run now has deadline 1h"
    await eventually(lambda: _has_timers(handle, 2))
    # Wait until the original deadline has passed.
    await eventually(lambda: time.time() > started_at + 3.5)
    view = await view_of(runs, handle)
    expected = ("running", [_note("set_limits", "deadline 1h set by ann: slow today")])
    assert (view.status, view.document()["notes"]) == expected
    gate.open()
    assert bare_document(await ended_document(runs, handle))["nodes"] == {"n0": completed_node(gate.name)}


async def test_error_of_a_run_at_its_lowered_deadline_has_the_limit_and_the_actor(runs: Runs, gate: Gate) -> None:
    handle = await gate.start_run(runs, {**_plan_of_held_nodes(gate.name), "deadline": "1h"})
    age_s = time.time() - (await view_of(runs, handle)).started_at  # type: ignore[operator]
    limit_s = round(age_s) + 3
    await _set_limits(handle, deadline=f"{limit_s}s")
    document = await document_of(handle)
    message = f"deadline_exceeded: the run exceeded its deadline of {limit_s} s, set by ann; still running: n0"
    assert (document["status"], bare_error(document["error"])) == ("failed", message)
    assert (await view_of(runs, handle)).document() == with_run_error(document)


async def test_run_starts_more_calls_after_a_raised_limit(runs: Runs, gate: Gate) -> None:
    handle = await runs.start(_plan_of_held_nodes(gate.name, count=4), max_in_flight=1)
    await eventually(lambda: gate.running_count == 1)
    assert await _set_limits(handle, max_parallel=3) == "the run now has max_parallel 3"
    await eventually(lambda: gate.running_count == 3)
    view = await view_of(runs, handle)
    assert [node["status"] for node in view.document()["nodes"].values()] == ["running"] * 3 + ["ready"]
    gate.open()
    assert ((await ended_document(runs, handle))["status"], gate.max_running_count) == ("completed", 3)


async def test_map_batches_share_a_changed_limit(
    cached_runs: Runs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_items, "MAP_BATCH_ITEMS", 20)
    node = hold_node("m", gate.name, for_each=list(range(41)))
    handle = await cached_runs.start({"nodes": [{**node, "heartbeat": "1s"}]}, max_in_flight=4)
    await eventually(lambda: gate.running_count == 4)
    await _set_limits(handle, max_parallel=8)
    await eventually(lambda: gate.running_count == 8)
    gate.open()
    assert (await document_of(handle))["status"] == "completed"
    assert gate.max_running_count == 8
    await cached_runs.check_runs()


async def test_invalid_limits_are_rejected_with_their_reason_and_leave_no_note(runs: Runs, gate: Gate) -> None:
    rejected_messages: list[tuple[Any, str]] = [
        ({"max_parallel": 0}, "'max_parallel' must be a number from 1 to 500, not 0"),
        ({"max_parallel": "many"}, "'max_parallel' must be a number from 1 to 500, not 'many'"),
        ({"deadline": "soon"}, "'deadline' must be a duration: "),
        ({"deadline": "1ms"}, "the run started "),
        ({"by": "ann"}, "set_limits must be an object such as "),
        (None, "set_limits must be an object such as "),
    ]
    handle = await gate.start_run(runs, _plan_of_held_nodes(gate.name))
    for message, reason in rejected_messages:
        assert (await rejection_of(handle, message, update=wire.SET_LIMITS)).startswith(reason)
    gate.open()
    assert (await document_of(handle))["notes"] == []


def _plan_with_held_task_and_thread(gate_name: str) -> dict[str, Any]:
    """Return a plan of a pure node, a held node in an asyncio task, a held node in a thread, and a dependent node."""
    return plan_of(
        pure_node("done", 1),
        hold_node("task", gate_name, "done", heartbeat="1s"),
        {**hold_node("thread", gate_name, "done", heartbeat="1s"), "tool": "hold_in_thread"},
        tool_node("after", "echo", "task"),
    )


def _check_cancelled(document: Document, reason: str) -> None:
    """Check the document, except its notes, of a cancelled run of `_plan_with_held_task_and_thread`."""
    assert {field: value for field, value in document.items() if field != "notes"} == {
        "status": "cancelled",
        "output": {},
        "nodes": {
            "done": completed_node(2.0),
            "task": cancelled_node(),
            "thread": cancelled_node(),
            "after": cancelled_node(reason),
        },
    }


async def test_cancel_signal_cancels_open_nodes_and_keeps_results(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    handle = await runs.start(_plan_with_held_task_and_thread(unique_name))
    await eventually(lambda: harness.entered.count(unique_name) == 2)
    await handle.signal("cancel", {"reason": "wrong plan", "by": "ann"})
    document = bare_document(await document_of(handle))
    assert document["notes"] == [_note("cancel", "cancelled by ann: wrong plan")]
    _check_cancelled(document, "wrong plan")
    assert harness.clean_ups.count(unique_name) == 2
    history = await handle.fetch_history()
    assert end_of(history) == "canceled"
    [cancel_request] = events_of(history, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    attributes = cancel_request.workflow_execution_cancel_requested_event_attributes
    assert attributes.cause == "cancelled by ann: wrong plan"
    view = await view_of(runs, handle)
    assert view.closing_document is not None
    assert bare_document(view.document()) == bare_document(await document_of(handle))
    assert bare_document(dict(view.closing_document)) == {**bare_document(view.document()), "nodes": {}}


async def test_run_cancelled_through_temporal_records_its_document(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    handle = await runs.start(_plan_with_held_task_and_thread(unique_name))
    await eventually(lambda: harness.entered.count(unique_name) == 2)
    await handle.cancel()
    document = bare_document(await document_of(handle))
    assert "notes" not in document
    _check_cancelled(document, "cancelled through Temporal")
    assert harness.clean_ups.count(unique_name) == 2
    assert end_of(await handle.fetch_history()) == "canceled"
    recorded_document = await read_recorded_document(runs.client, handle.id, handle.result_run_id)
    assert recorded_document is not None
    assert bare_document(recorded_document) == {**bare_document(await document_of(handle)), "nodes": {}}


async def test_run_that_is_cancelled_at_its_start_starts_no_node(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = {"nodes": [call_node("w", "write", name=unique_name)]}
    handle = await runs.start_raw({"plan": plan}, start_signal="cancel", start_signal_args=[{"reason": "no"}])
    assert bare_document(await document_of(handle))["nodes"] == {"w": cancelled_node("no")}
    assert harness.effects[unique_name] == []


async def test_nodes_whose_calls_completed_before_the_cancellation_are_completed(
    uncached_runs: Runs, gate: Gate
) -> None:
    nodes = [hold_node(f"n{number}", gate.name) for number in range(20)]
    handle = await uncached_runs.start({"nodes": nodes})
    await eventually(lambda: gate.running_count == 20)
    gate.open()
    await eventually(lambda: gate.running_count == 0)
    await handle.cancel()
    document = await document_of(handle)
    completions = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    completed_ids = [node_id for node_id, node in document["nodes"].items() if node["status"] == "completed"]
    assert len(completed_ids) == len(completions)
    await uncached_runs.check_runs()
