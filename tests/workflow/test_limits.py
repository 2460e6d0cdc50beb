"""The limits of a run while it goes on: how much of it runs at once, and how long it may take."""

import time
from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.core.scheduler import map_batches
from dagwright.history.run_reader import RunFeed
from tests.support.eventually import eventually
from tests.support.people import refusal_of
from tests.support.runs import Handle, Runs, as_shown, bare, bare_error, document_of, done
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _held(name: str, *, count: int = 1) -> dict[str, Any]:
    """Returns a plan of so many nodes that run until `name` is opened."""
    nodes = [
        {"id": f"n{number}", "tool": "hold", "arguments": {"name": name}, "heartbeat": "1s"} for number in range(count)
    ]
    return {"nodes": nodes}


def _note(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "node": None, "message": message}


async def _set(handle: Handle, **message: Any) -> str:
    """Changes the limits as ann, by update."""
    told = await handle.execute_update(wire.SET_LIMITS, {"by": "ann", **message})
    assert told["ok"] is True
    return str(told["message"])


async def _has_timers(handle: Handle, count: int) -> bool:
    events = (await handle.fetch_history()).events
    return sum(event.HasField("timer_started_event_attributes") for event in events) == count


async def test_run_that_is_given_a_later_deadline_ends_well(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start({**_held(unique), "deadline": "3s"})
    await eventually(lambda: unique in bench.entered)
    started_at = time.time()
    assert await _set(handle, deadline="1h", reason="slow today") == "the run has deadline 1h now"
    await eventually(lambda: _has_timers(handle, 2))
    # Past the deadline that it began with.
    await eventually(lambda: time.time() > started_at + 3.5)
    view = await RunFeed(runs.client, handle.id).read()
    assert (view.status, view.document()["notes"]) == (
        "running",
        [_note("set_limits", "deadline 1h set by ann: slow today")],
    )
    bench.open(unique)
    document = await document_of(handle)
    assert bare(document)["nodes"] == {"n0": done(unique)}
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)


async def test_run_at_a_deadline_that_was_lowered_ends_with_its_message(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start({**_held(unique), "deadline": "1h"})
    await eventually(lambda: unique in bench.entered)
    gone_s = time.time() - (await RunFeed(runs.client, handle.id).read()).started_at  # type: ignore[operator]
    limit_s = round(gone_s) + 3
    await _set(handle, deadline=f"{limit_s}s")
    document = await document_of(handle)
    told = f"deadline_exceeded: the run took over its deadline of {limit_s} s, set by ann; still running: n0"
    assert (document["status"], bare_error(document["error"])) == ("failed", told)
    view = await RunFeed(runs.client, handle.id).read()
    assert view.document() == as_shown(document)


async def test_deadline_that_is_taken_away_ends_nothing(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start({**_held(unique), "deadline": "3s"})
    started_at = time.time()
    await eventually(lambda: unique in bench.entered)
    assert await _set(handle, deadline=None) == "the run has no deadline now"
    await eventually(lambda: time.time() > started_at + 3.5)
    bench.open(unique)
    assert (await document_of(handle))["status"] == "completed"


async def test_run_of_one_at_once_starts_more_when_that_is_raised(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_held(unique, count=4), max_in_flight=1)
    await eventually(lambda: bench.running[unique] == 1)
    assert await _set(handle, max_parallel=3) == "the run has max_parallel 3 now"
    await eventually(lambda: bench.running[unique] == 3)
    view = await RunFeed(runs.client, handle.id).read()
    assert [node["status"] for node in view.document()["nodes"].values()] == ["running"] * 3 + ["ready"]
    bench.open(unique)
    document = await document_of(handle)
    assert (document["status"], bench.most_running[unique]) == ("completed", 3)
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)


async def test_run_starts_fewer_when_the_limit_is_lowered(runs: Runs, bench: Bench, unique: str) -> None:
    first, rest = f"{unique} first", f"{unique} rest"
    nodes = [{"id": "first", "tool": "hold", "arguments": {"name": first}}]
    nodes += [{"id": f"n{n}", "tool": "hold", "arguments": {"name": rest}, "depends_on": ["first"]} for n in range(3)]
    handle = await runs.start({"nodes": nodes})
    await eventually(lambda: first in bench.entered)
    await _set(handle, max_parallel=1)
    bench.open(first)
    bench.open(rest)
    assert (await document_of(handle))["status"] == "completed"
    assert bench.most_running[rest] == 1


async def test_chunks_of_a_large_map_get_their_part_of_the_new_limit(
    cached_runs: Runs, bench: Bench, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_batches, "CHUNK_ITEMS", 20)
    node = {"id": "m", "tool": "hold", "for_each": list(range(41)), "arguments": {"name": unique}}
    handle = await cached_runs.start({"nodes": [{**node, "heartbeat": "1s"}]}, max_in_flight=4)
    await eventually(lambda: bench.running[unique] == 4)
    await _set(handle, max_parallel=8)
    await eventually(lambda: bench.running[unique] == 8)
    bench.open(unique)
    assert (await document_of(handle))["status"] == "completed"
    assert bench.most_running[unique] == 8
    await cached_runs.check_ended()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"max_parallel": 0}, "'max_parallel' must be a number from 1 to 500, not 0"),
        ({"max_parallel": "many"}, "'max_parallel' must be a number from 1 to 500, not 'many'"),
        ({"deadline": "soon"}, "'deadline' must be a duration: "),
        ({"deadline": "1ms"}, "a deadline counts from the start of the run, which was "),
        ({"by": "ann"}, "set_limits takes an object such as "),
        (None, "set_limits takes an object such as "),
    ],
    ids=["none", "text", "duration", "past", "neither", "empty"],
)
async def test_limit_that_is_none_is_refused_before_history(
    cached_runs: Runs, bench: Bench, unique: str, message: Any, reason: str
) -> None:
    handle = await cached_runs.start(_held(unique))
    await eventually(lambda: unique in bench.entered)
    assert (await refusal_of(handle, message, update=wire.SET_LIMITS)).startswith(reason)
    bench.open(unique)
    assert (await document_of(handle))["notes"] == []
    await cached_runs.check_ended()


async def test_limits_that_come_with_the_start_hold_from_the_beginning(runs: Runs, bench: Bench, unique: str) -> None:
    message = {"max_parallel": 1, "deadline": "1h", "by": "ann"}
    plan = {**_held(unique, count=2), "deadline": "1s"}
    bench.open(unique)
    handle = await runs.start_raw({"plan": plan}, start_signal=wire.SET_LIMITS, start_signal_args=[message])
    document = await document_of(handle)
    assert (document["status"], bench.most_running[unique]) == ("completed", 1)
    assert document["notes"] == [_note("set_limits", "max_parallel 1 and deadline 1h set by ann")]
    assert (await RunFeed(runs.client, handle.id).read()).document() == as_shown(document)
