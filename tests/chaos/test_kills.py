"""Kills of the worker and the server at fault points of a run: no result is lost, and no effect happens twice."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos import (
    RETRY,
    FaultPoints,
    WorkerProcess,
    effect_node,
    random_graph,
    restart_server,
    result_within,
    start_run,
)
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import assert_clean, assert_replays, bare_document, check_history, completed_node, failed_node
from tests.support.server import LiveServer

pytestmark = pytest.mark.server


def _plan_of_steps(prefix: str) -> dict[str, Any]:
    """Return a plan with a chain of three steps and one independent step. Most kills happen during the second step."""
    a, b, c, beside = (f"{prefix}-{step}" for step in ("a", "b", "c", "beside"))
    long_heartbeat_step = partial(effect_node, heartbeat="10s")
    return plan_of(long_heartbeat_step(a), effect_node(b, a), long_heartbeat_step(c, b), long_heartbeat_step(beside))


async def test_cached_result_survives_the_kill_of_its_worker(
    private_server: LiveServer, worker: WorkerProcess, points: FaultPoints
) -> None:
    client = await private_server.start()
    plan = plan_of(tool_node("x", "compute", arguments={"name": "cached", "values": []}, cache={"ttl": "1h"}))
    first_document = await result_within(await start_run(client, plan, run_id="before-the-kill"), 60)
    await points.wait_for_point("cached")
    await worker.kill()
    points.forget("cached")
    # If the tool were called again, the call would never complete.
    points.hold("cached")
    await worker.start()
    second_document = await result_within(await start_run(client, plan, run_id="after-the-kill"), 60)
    assert second_document["output"] == first_document["output"]
    assert second_document["nodes"]["x"]["lineage"]["cached"]["run_id"] == "before-the-kill"


async def test_runs_of_a_killed_worker_complete_without_repeated_effects(
    private_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    client = await private_server.start()
    map_node = effect_node("map-{{item}}") | {
        "id": "m",
        "for_each": list(range(501)),
        "when": "item in [1, 140, 260, 499]",
    }
    unknown_outcome_plan = plan_of(
        tool_node("w", "write_then_hold", arguments={"name": "made"}, heartbeat="1s", retry=RETRY),
        tool_node("report", "echo", arguments={"why": "{{w.error.code}}"}, join="all_done"),
    )
    checked_node = tool_node("w", "write_after_check", arguments={"name": "checked"}, heartbeat="1s")
    # Three runs are named after the moment of the kill: during a step, between two steps, before the start of the run.
    plans: dict[str, Any] = {
        "during": _plan_of_steps("during"),
        "between": _plan_of_steps("between"),
        "map": {"nodes": [map_node]},
        "unknown": unknown_outcome_plan,
    }
    held_names = ["during-b", "between-b", "map-140", "map-499", "made"]
    for point in [*held_names, "checked"]:
        points.hold(point)
    handles = {name: await start_run(client, plan, run_id=name) for name, plan in plans.items()}
    for point in held_names:
        await points.wait_for_point(point)
    # The run `checked` starts last, because its argument check blocks the whole worker.
    handles["checked"] = await start_run(client, {"nodes": [checked_node]}, run_id="checked")
    await points.wait_for_point("checked")
    # The step `between-b` ends, and the worker is killed before the run reacts.
    points.release("between-b")
    await worker.kill()
    handles["before"] = await start_run(client, _plan_of_steps("before"), run_id="before")
    for point in [*held_names, "checked"]:
        points.release(point)
    await worker.start()
    documents = {name: await result_within(handle, 240) for name, handle in handles.items()}

    during_nodes = bare_document(documents["during"])["nodes"]
    # On a busy machine, the second attempt may miss a heartbeat.
    attempts = during_nodes["during-b"]["attempts"]
    assert attempts >= 2
    assert during_nodes == {
        "during-a": completed_node("during-a"),
        "during-b": completed_node("during-b", attempts=attempts),
        "during-c": completed_node("during-c"),
        "during-beside": completed_node("during-beside"),
    }
    for name in ("during", "between", "before"):
        assert documents[name]["output"] == {f"{name}-c": f"{name}-c", f"{name}-beside": f"{name}-beside"}
    executed_items = [1, 140, 260, 499]
    assert documents["map"]["nodes"]["m"]["items"] == {"completed": 4, "skipped": 497}
    assert documents["map"]["output"] == {
        "m": [f"map-{number}" if number in executed_items else None for number in range(501)]
    }
    outcome = "outcome unknown: its worker died, so write_then_hold may or may not have made its change"
    expected = {"w": failed_node(f"outcome_unknown: {outcome}"), "report": completed_node({"why": "outcome_unknown"})}
    assert bare_document(documents["unknown"])["nodes"] == expected
    # The plan allows one attempt. Attempts that never called the tool do not count: they were lost with the killed
    # worker, or missed a heartbeat.
    checked_attempts = bare_document(documents["checked"])["nodes"]["w"]["attempts"]
    assert checked_attempts >= 2
    assert bare_document(documents["checked"])["nodes"] == {"w": completed_node("checked", attempts=checked_attempts)}

    steps = [f"{name}-{step}" for name in ("during", "between", "before") for step in ("a", "b", "beside", "c")]
    assert effects_of(folder) == sorted([*steps, *(f"map-{number}" for number in executed_items), "made", "checked"])
    effect_attempts = attempts_of(folder)
    max_attempts = {
        "during-b": during_nodes["during-b"]["attempts"],
        "before-b": documents["before"]["nodes"]["before-b"]["attempts"],
    }
    for step in (step for step in steps if not step.startswith("between")):
        assert 1 <= effect_attempts.count(step) <= max_attempts.get(step, 1)
    assert effect_attempts.count("during-b") >= 2
    assert (effect_attempts.count("made"), effect_attempts.count("checked")) == (1, 1)
    for name, handle in handles.items():
        history = await handle.fetch_history()
        if name == "during":
            assert_clean(history)
        await assert_replays(history)


async def test_run_completes_after_a_kill_of_the_server_during_a_step(
    private_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    points.hold("server-b")
    handle = await start_run(await private_server.start(), _plan_of_steps("server"), run_id="server-killed")
    await points.wait_for_point("server-b")
    await restart_server(private_server)
    points.release("server-b")
    document = await result_within(handle, 240)
    steps = [f"server-{step}" for step in ("a", "b", "beside", "c")]
    assert {name: node["result"] for name, node in document["nodes"].items()} == {name: name for name in steps}
    assert effects_of(folder) == steps


async def test_graph_has_correct_values_after_kills_of_worker_and_server(
    private_server: LiveServer, worker: WorkerProcess, points: FaultPoints, folder: Path
) -> None:
    plan, values = random_graph(100, seed=7)
    kill_points = ("n10", "n35", "n60", "n85")
    for name in kill_points:
        points.hold(name)
    handle = await start_run(await private_server.start(), plan, run_id="killed-graph")
    for number, name in enumerate(kill_points):
        await points.wait_for_point(name)
        await worker.kill()
        if number % 2:
            await restart_server(private_server)
        points.release(name)
        await worker.start()
    document = await result_within(handle, 240)
    assert (document["status"], (await handle.query("status"))["output"]) == ("completed", values)
    assert effects_of(folder) == sorted(name for name in values if name.endswith("9"))
    await check_history(await handle.fetch_history())
