"""Kills of the worker and of the server at named points of a run: nothing is lost, nothing happens twice."""

from pathlib import Path

import pytest

from tests.support.chaos import (
    RETRY,
    FaultPoints,
    WorkerProcess,
    effect,
    reactive_graph,
    restart,
    result_within,
    start_run,
)
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.runs import assert_clean, assert_replays, bare, done, failed
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_THREE = {"nodes": [effect("a"), effect("b", "a"), effect("c", "b"), effect("beside")]}


async def test_worker_killed_between_two_runs_leaves_its_results_to_the_next(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints
) -> None:
    client = await own_server.start()
    plan = {
        "nodes": [{"id": "x", "tool": "compute", "arguments": {"name": "cached", "values": []}, "cache": {"ttl": "1h"}}]
    }
    first = await result_within(await start_run(client, plan, workflow_id="before-the-kill"), 60)
    await points.reached("cached")
    await worker.kill()
    points.forget("cached")
    # Whoever called the tool again would wait here until the end.
    points.hold("cached")
    await worker.start()
    second = await result_within(await start_run(client, plan, workflow_id="after-the-kill"), 60)
    assert second["output"] == first["output"]
    assert second["nodes"]["x"]["lineage"]["cached"]["workflow_id"] == "before-the-kill"


async def test_worker_killed_while_a_step_runs(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    points.hold("b")
    handle = await start_run(await own_server.start(), _THREE, workflow_id="worker-killed")
    await points.reached("b")
    await worker.kill()
    points.release("b")
    await worker.start()
    document = await result_within(handle, 240)
    assert bare(document)["nodes"] == {
        "a": done("a"),
        "b": done("b", attempts=2),
        "c": done("c"),
        "beside": done("beside"),
    }
    assert effects_of(folder) == ["a", "b", "beside", "c"]
    assert attempts_of(folder) == ["a", "b", "b", "beside", "c"]
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)


async def test_worker_killed_while_the_chunks_of_a_large_map_run(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    mapped = effect("i{{item}}") | {"id": "m", "for_each": list(range(501)), "when": "item in [1, 140, 260, 499]"}
    held = ["i140", "i499"]
    for name in held:
        points.hold(name)
    handle = await start_run(await own_server.start(), {"nodes": [mapped]}, workflow_id="map-killed")
    for name in held:
        await points.reached(name)
    await worker.kill()
    for name in held:
        points.release(name)
    await worker.start()
    document = await result_within(handle, 240)
    ran = [1, 140, 260, 499]
    assert document["nodes"]["m"]["items"] == {"completed": 4, "skipped": 497}
    assert document["output"] == {"m": [f"i{number}" if number in ran else None for number in range(501)]}
    assert effects_of(folder) == sorted(f"i{number}" for number in ran)
    await assert_replays(await handle.fetch_history())


async def test_worker_killed_between_two_steps(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    points.hold("b")
    handle = await start_run(await own_server.start(), _THREE, workflow_id="between")
    await points.reached("b")
    # Step b ends, and the worker is gone before anybody could react to its end.
    points.release("b")
    await worker.kill()
    await worker.start()
    document = await result_within(handle, 240)
    assert {name: node["result"] for name, node in document["nodes"].items()} == {
        name: name for name in ("a", "b", "c", "beside")
    }
    assert effects_of(folder) == ["a", "b", "beside", "c"]


async def test_worker_killed_before_the_run_begins(own_server: LiveServer, worker: WorkerProcess, folder: Path) -> None:
    await worker.kill()
    handle = await start_run(await own_server.start(), _THREE, workflow_id="before")
    await worker.start()
    await result_within(handle, 240)
    assert attempts_of(folder) == ["a", "b", "beside", "c"]


async def test_server_killed_while_a_step_runs(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    points.hold("b")
    handle = await start_run(await own_server.start(), _THREE, workflow_id="server-killed")
    await points.reached("b")
    await restart(own_server)
    points.release("b")
    document = await result_within(handle, 240)
    assert {name: node["result"] for name, node in document["nodes"].items()} == {
        name: name for name in ("a", "b", "c", "beside")
    }
    assert effects_of(folder) == ["a", "b", "beside", "c"]


async def test_write_of_a_killed_worker_is_never_repeated(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    points.hold("w")
    write = {"id": "w", "tool": "write_then_hold", "arguments": {"name": "w"}, "heartbeat": "1s", "retry": RETRY}
    after = {"id": "told", "tool": "echo", "arguments": {"why": "{{w.error.code}}"}, "join": "all_done"}
    handle = await start_run(await own_server.start(), {"nodes": [write, after]}, workflow_id="write")
    await points.reached("w")
    await worker.kill()
    await worker.start()
    document = await result_within(handle, 240)
    outcome = "outcome unknown: its worker died, so write_then_hold may or may not have made its change"
    assert bare(document)["nodes"] == {
        "w": failed(f"outcome_unknown: {outcome}"),
        "told": done({"why": "outcome_unknown"}),
    }
    assert attempts_of(folder) == ["w"]


async def test_write_of_a_worker_killed_before_the_call_is_made_once(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    points.hold("w")
    write = {"id": "w", "tool": "write_after_check", "arguments": {"name": "w"}, "heartbeat": "1s"}
    handle = await start_run(await own_server.start(), {"nodes": [write]}, workflow_id="before-the-call")
    await points.reached("w")
    await worker.kill()
    points.release("w")
    await worker.start()
    document = await result_within(handle, 240)
    # The plan allows one attempt; that of the killed worker called nothing.
    assert bare(document)["nodes"] == {"w": done("w", attempts=2)}
    assert attempts_of(folder) == ["w"]


async def test_every_value_of_a_reactive_graph_is_right_after_kills_of_worker_and_server(
    own_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    plan, values = reactive_graph(100, seed=7)
    kills = ("n10", "n35", "n60", "n85")
    for name in kills:
        points.hold(name)
    handle = await start_run(await own_server.start(), plan, workflow_id="reactive")
    for number, name in enumerate(kills):
        await points.reached(name)
        await worker.kill()
        if number % 2:
            await restart(own_server)
        points.release(name)
        await worker.start()
    document = await result_within(handle, 240)
    output = (await handle.query("status"))["output"]
    assert (document["status"], output) == ("completed", values)
    assert effects_of(folder) == sorted(name for name in values if name.endswith("9"))
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)
