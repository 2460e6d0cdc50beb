"""Steering a run: what people do to it by signals and updates, and what whoever looks sees of it."""

from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.history.run_reader import RunFeed, RunView
from tests.support.eventually import eventually
from tests.support.people import refusal_of
from tests.support.runs import Handle, Runs, as_shown, bare, document_of, done, without_cache
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _chain(name: str) -> dict[str, Any]:
    """Returns a plan of which the second node may start when `name` is opened."""
    return {
        "nodes": [
            {"id": "held", "tool": "hold", "arguments": {"name": name}},
            {"id": "after", "tool": "echo", "depends_on": ["held"]},
        ]
    }


async def _view_with(runs: Runs, handle: Handle, status: str) -> RunView:
    """Returns what the feed says of a run, once it is in a state."""
    found: list[RunView] = []

    async def is_there() -> bool:
        found.append(await RunFeed(runs.client, handle.id).read())
        return found[-1].status == status

    await eventually(is_there)
    return found[-1]


def _note(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "node": None, "message": message}


@without_cache
async def test_paused_run_ends_what_runs_and_waits_until_it_is_resumed(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_chain(unique))
    await eventually(lambda: unique in bench.entered)
    await handle.signal(wire.PAUSE, {"reason": "too early", "by": "ann"})
    bench.open(unique)
    view = await _view_with(runs, handle, "waiting")
    assert {name: node["status"] for name, node in view.document()["nodes"].items()} == {
        "held": "completed",
        "after": "ready",
    }
    assert view.document()["notes"] == [
        _note("pause", "paused by ann: too early"),
        _note("paused", "nothing new starts: paused by ann"),
    ]
    await handle.signal(wire.PAUSE)
    await handle.signal("ring")
    await handle.signal(wire.SIGNAL_SUB_PLAN_ENDED, {"task": "after"})
    await eventually(lambda: _has_note(handle, "sub_plan_ended: 'after' is no sub-plan of this run"))
    told = (await RunFeed(runs.client, handle.id).read()).document()["notes"]
    assert told == (await handle.query(wire.QUERY_STATUS))["notes"]
    await handle.signal(wire.RESUME, {"by": "bob"})
    document = await document_of(handle)
    assert bare(document)["nodes"] == {"held": done(unique), "after": done({})}
    assert document["notes"] == [
        _note("pause", "paused by ann: too early"),
        _note("refused", "pause: the run is paused already, paused by ann: too early"),
        _note("refused", "'ring' is no signal of a run"),
        _note("refused", "sub_plan_ended: 'after' is no sub-plan of this run"),
        _note("resume", "resumed by bob"),
    ]
    assert (await RunFeed(runs.client, handle.id).read()).document()["notes"] == document["notes"]


async def test_updates_say_whether_pause_and_resume_count(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_chain(unique))
    await eventually(lambda: unique in bench.entered)
    assert await refusal_of(handle, None, update=wire.RESUME) == "the run is not paused"
    paused = await handle.execute_update(wire.PAUSE, {"by": "ann"})
    assert paused == {"ok": True, "message": "the run is paused; what runs runs to its end"}
    assert await refusal_of(handle, {}, update=wire.PAUSE) == "the run is paused already, paused by ann"
    bench.open(unique)
    await _view_with(runs, handle, "waiting")
    assert await handle.execute_update(wire.RESUME) == {"ok": True, "message": "the run goes on"}
    document = await document_of(handle)
    assert document["notes"] == [_note("pause", "paused by ann"), _note("resume", "resumed")]
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)


async def test_update_cancels_a_run_and_a_second_one_is_refused(runs: Runs, bench: Bench, unique: str) -> None:
    # What runs hears of it at its next heartbeat only.
    node = {"id": "held", "tool": "hold_write", "arguments": {"name": unique}, "heartbeat": "30s"}
    handle = await runs.start({"nodes": [node]})
    await eventually(lambda: unique in bench.entered)
    told = await handle.execute_update(wire.CANCEL, {"reason": "enough", "by": "ann"})
    assert told == {"ok": True, "message": "the run is being stopped"}
    assert await refusal_of(handle, {}, update=wire.CANCEL) == "the run is being stopped already"
    await handle.signal(wire.CANCEL)
    bench.open(unique)
    document = await document_of(handle)
    assert (document["status"], document["nodes"]["held"]["status"]) == ("cancelled", "completed")
    assert document["notes"] == [
        _note("cancel", "cancelled by ann: enough"),
        _note("refused", "cancel: the run is being stopped already"),
    ]


@without_cache
async def test_sub_plans_and_chunks_are_paused_with_their_run(runs: Runs, bench: Bench, unique: str) -> None:
    inner = {"plan": 1, **_chain(unique)}
    handle = await runs.start({"nodes": [{"id": "below", "plan": inner}]})
    await eventually(lambda: unique in bench.entered)
    await handle.signal(wire.PAUSE, {"by": "ann"})
    below = runs.client.get_workflow_handle(f"{handle.id}/below")
    await eventually(lambda: _has_note(below, "paused by ann"))
    bench.open(unique)
    await _view_with(runs, below, "waiting")
    assert (await _view_with(runs, handle, "waiting")).status == "waiting"
    await handle.signal(wire.RESUME)
    assert bare(await document_of(handle))["status"] == "completed"


async def _has_note(handle: Handle, message: str) -> bool:
    document = await handle.query(wire.QUERY_STATUS)
    return any(note["message"] == message for note in document["notes"])


async def test_run_that_is_paused_before_it_begins_starts_nothing(runs: Runs, bench: Bench, unique: str) -> None:
    plan = {"nodes": [{"id": "w", "tool": "write", "arguments": {"name": unique}}]}
    handle = await runs.start_raw({"plan": plan}, start_signal="pause", start_signal_args=[{"by": "ann"}])
    await _view_with(runs, handle, "waiting")
    assert bench.effects[unique] == []
    await handle.signal(wire.CANCEL)
    assert bare(await document_of(handle))["status"] == "cancelled"
