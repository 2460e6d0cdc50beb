"""Stopping a run: by the signal, through Temporal, before it began, and twice."""

from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError

from dagwright.history.closing_event import read_recorded_document
from dagwright.history.run_reader import RunFeed
from tests.support.eventually import eventually
from tests.support.runs import Runs, bare, cancelled, document_of, done, end_of, events_of
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _held(name: str) -> dict[str, Any]:
    """Returns a plan of which one node is done, two run until they are told to stop, and one waits."""
    return {
        "nodes": [
            {"id": "done", "tool": "add", "arguments": {"left": 1, "right": 1}},
            {"id": "task", "tool": "hold", "arguments": {"name": name}, "depends_on": ["done"], "heartbeat": "1s"},
            {
                "id": "thread",
                "tool": "hold_in_thread",
                "arguments": {"name": name},
                "depends_on": ["done"],
                "heartbeat": "1s",
            },
            {"id": "after", "tool": "echo", "depends_on": ["task"]},
        ]
    }


async def test_cancel_signal_stops_what_runs_and_keeps_what_is_done(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_held(unique))
    await eventually(lambda: bench.entered.count(unique) == 2)
    await handle.signal("cancel", {"reason": "wrong plan", "by": "ann"})
    assert bare(await document_of(handle)) == {
        "status": "cancelled",
        "output": {},
        "nodes": {
            "done": done(2.0),
            "task": cancelled(),
            "thread": cancelled(),
            "after": cancelled("wrong plan"),
        },
        "notes": [{"code": "cancel", "node": None, "message": "cancelled by ann: wrong plan"}],
    }
    assert bench.cleaned.count(unique) == 2
    history = await handle.fetch_history()
    assert end_of(history) == "canceled"
    [requested] = events_of(history, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
    attributes = requested.workflow_execution_cancel_requested_event_attributes
    assert attributes.cause == "cancelled by ann: wrong plan"
    view = await RunFeed(runs.client, handle.id).read()
    assert view.written is not None
    assert bare(dict(view.written)) == bare(view.document()) == bare(await document_of(handle))


async def test_cancel_through_temporal_closes_canceled_and_status_still_answers(
    runs: Runs, bench: Bench, unique: str
) -> None:
    handle = await runs.start(_held(unique))
    await eventually(lambda: bench.entered.count(unique) == 2)
    await handle.cancel()
    assert bare(await document_of(handle)) == {
        "status": "cancelled",
        "output": {},
        "nodes": {
            "done": done(2.0),
            "task": cancelled(),
            "thread": cancelled(),
            "after": cancelled("cancelled through Temporal"),
        },
    }
    assert bench.cleaned.count(unique) == 2
    assert end_of(await handle.fetch_history()) == "canceled"
    recorded = await read_recorded_document(runs.client, handle.id, handle.result_run_id)
    assert recorded is not None
    assert bare(recorded) == bare(await document_of(handle))


async def test_cancel_that_comes_with_the_start_starts_nothing(runs: Runs, bench: Bench, unique: str) -> None:
    plan = {"nodes": [{"id": "w", "tool": "write", "arguments": {"name": unique}}]}
    handle = await runs.start_raw({"plan": plan}, start_signal="cancel", start_signal_args=[{"reason": "no"}])
    assert bare(await document_of(handle))["nodes"] == {"w": cancelled("no")}
    assert bench.effects[unique] == []


async def test_cancel_through_temporal_at_the_start_ends_the_run(runs: Runs) -> None:
    handle = await runs.start_raw({"plan": {"nodes": [{"id": "w", "tool": "echo"}]}})
    await handle.cancel()
    document = await document_of(handle)
    assert document["status"] in ("cancelled", "completed")


async def test_what_ended_with_the_cancel_has_ended(uncached_runs: Runs, bench: Bench, unique: str) -> None:
    nodes = [{"id": f"n{number}", "tool": "hold", "arguments": {"name": unique}} for number in range(20)]
    handle = await uncached_runs.start({"nodes": nodes})
    await eventually(lambda: bench.running[unique] == 20)
    bench.open(unique)
    await eventually(lambda: bench.running[unique] == 0)
    await handle.cancel()
    document = await document_of(handle)
    history = await handle.fetch_history()
    ended = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    completed = [name for name, node in document["nodes"].items() if node["status"] == "completed"]
    assert len(completed) == len(ended)
    await uncached_runs.check_ended()


async def test_second_cancel_changes_nothing(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_held(unique))
    await eventually(lambda: bench.entered.count(unique) == 2)
    await handle.signal("cancel", {"reason": "one"})
    await handle.signal("cancel", {"reason": "two"})
    await handle.cancel()
    document = bare(await document_of(handle))
    assert document["nodes"]["after"] == cancelled("one")
    assert document["status"] == "cancelled"
    with pytest.raises(RPCError):
        await handle.signal("cancel")


async def test_result_that_comes_while_the_run_stops_is_kept(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(
        {
            "nodes": [
                {"id": "write", "tool": "hold_write", "arguments": {"name": unique}, "heartbeat": "30s"},
                {"id": "after", "tool": "echo", "depends_on": ["write"]},
            ]
        }
    )
    await eventually(lambda: unique in bench.entered)
    await handle.signal("cancel")
    bench.open(unique)
    assert bare(await document_of(handle))["nodes"] == {"write": done(unique), "after": cancelled()}
