"""Kills while a question is answered in rounds: a completed call of a model or a tool is not repeated.

A call in flight is repeated after the death of its worker, because its outcome is unknown.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.planner import RoundsOptions, prepare_rounds
from dagwright.planning.rounds.rounds_spec import RoundsLimits
from dagwright.protocol.run_input import RunInput
from dagwright.settings import Settings
from dagwright.testing import ModelServer, step
from dagwright.toolset.toolset import load_toolset
from tests.support.chaos import (
    SHORT_HEARTBEAT_WORKER,
    TOOLS_FILE,
    FaultPoints,
    model_environment,
    restart_server,
    result_within,
    start_workflow,
    worker_process,
)
from tests.support.chaos_tools import calls_of
from tests.support.eventually import eventually
from tests.support.goals import nodes_and_purposes
from tests.support.rounds import continue_response, done_response, ref, sub_goal, sub_goal_statuses_of
from tests.support.runs import Handle, check_history
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_LOST_RESPONSE = "response to a killed worker"
_INVALID_RESPONSE = "This is not a plan."
"""Response of the planner that the call `repair` corrects."""
_FIRST_ROUND = continue_response(sub_goal(1, "make_slot", name="a"), sub_goal(2, "make_slot", name="b"))
_SECOND_ROUND = continue_response(sub_goal(3, "make_slot", name="c"))
_DONE_RESPONSE = done_response(all=[ref(number, "made") for number in (1, 2, 3)])


def _plan(folder: Path, limits: RoundsLimits) -> CompiledPlan:
    tools = load_toolset(Settings(state_dir=folder / "state"), [str(TOOLS_FILE)]).declarations()
    plan = prepare_rounds("Make them.", tools, RoundsOptions(limits=limits))[0]
    # A short heartbeat timeout detects a dead worker soon.
    return replace(plan, nodes=tuple(replace(node, heartbeat_s=2.0) for node in plan.nodes))


async def _start(server: LiveServer, folder: Path, *, run_id: str, worker_tool_timeout_s: float = 60.0) -> Handle:
    plan = _plan(folder, RoundsLimits(worker_timeout_s=worker_tool_timeout_s, synthesis="model"))
    return await start_workflow(
        await server.start(),
        RunInput(compiled=plan),
        run_id=run_id,
        workflow_type=wire.WORKFLOW_PLAN_AND_EXECUTE,
    )


async def test_only_calls_in_flight_are_repeated_after_kills_in_each_kind_of_call(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    # The worker is killed during the model calls with these numbers: the model sends `_LOST_RESPONSE` after the worker
    # has died. The next entry of the script answers the repeated call.
    release_events = {number: asyncio.Event() for number in (0, 2, 4, 8)}
    script = [
        _LOST_RESPONSE,
        "Make them.",
        _LOST_RESPONSE,
        _INVALID_RESPONSE,
        _LOST_RESPONSE,
        _FIRST_ROUND,
        _SECOND_ROUND,
        _DONE_RESPONSE,
        _LOST_RESPONSE,
        "All made.",
    ]
    steps = [
        step(response, release_event=release_events[number]) if number in release_events else response
        for number, response in enumerate(script)
    ]
    points.hold("b")
    async with (
        ModelServer(*steps) as model,
        worker_process(
            private_server.address, folder, environment=model_environment(model), program=SHORT_HEARTBEAT_WORKER
        ) as worker,
    ):
        handle = await _start(private_server, folder, run_id="killed-in-rounds", worker_tool_timeout_s=15.0)

        async def kill_during_call(number: int) -> None:
            await eventually(lambda: len(model.calls) == number + 1)
            await worker.kill()
            release_events[number].set()
            await worker.start()

        # Kill the worker during the calls of the intention, the planner and the repair.
        for number in (0, 2, 4):
            await kill_during_call(number)
        # Kill the worker while one sub-goal of a round is done and the other sub-goal is in flight.
        await points.wait_for_point("b")

        async def is_first_sub_goal_done() -> bool:
            return bool((await handle.query(wire.QUERY_STATUS))["nodes"]["sg1"]["status"] == "completed")

        await eventually(is_first_sub_goal_done)
        await worker.kill()
        points.release("b")
        await worker.start()
        # Kill the worker during the call that writes the answer.
        await kill_during_call(8)
        document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", "All made.")
    expected = [[(1, "success"), (2, "success")], [(3, "success")], []]
    assert [sorted(result) for result in sub_goal_statuses_of(document)] == expected
    assert nodes_and_purposes([*model.calls]) == [
        *[("intention", "intention")] * 2,
        *[("plan", "planner")] * 2,
        *[("plan#2", "repair")] * 2,
        ("plan#3", "planner"),
        ("plan#4", "planner"),
        *[("answer", "answer")] * 2,
    ]
    assert (calls_of(folder)["a"], calls_of(folder)["c"]) == (1, 1)
    # The call in flight was repeated once, or twice if the worker started so slowly that the second attempt was lost
    # too. An attempt that is lost before it reaches the tool is counted as an attempt, but not as a call.
    assert 2 <= calls_of(folder)["b"] <= document["nodes"]["sg2"]["attempts"] <= 3
    await check_history(await handle.fetch_history())


async def test_no_call_is_repeated_after_kills_of_the_server_in_a_round_and_in_planning(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    release_event = asyncio.Event()
    script = ("Make them.", _FIRST_ROUND, step(_SECOND_ROUND, release_event=release_event), _DONE_RESPONSE, "All made.")
    points.hold("b")
    async with (
        ModelServer(*script) as model,
        worker_process(private_server.address, folder, environment=model_environment(model)),
    ):
        handle = await _start(private_server, folder, run_id="server-killed-in-rounds")
        await points.wait_for_point("b")
        await eventually(lambda: calls_of(folder)["a"] == 1)
        await restart_server(private_server)
        points.release("b")
        await eventually(lambda: len(model.calls) == 3)
        await restart_server(private_server)
        release_event.set()
        document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", "All made.")
    assert nodes_and_purposes([*model.calls]) == [
        ("intention", "intention"),
        ("plan", "planner"),
        ("plan#2", "planner"),
        ("plan#3", "planner"),
        ("answer", "answer"),
    ]
    assert calls_of(folder) == {"a": 1, "b": 1, "c": 1}
    await check_history(await handle.fetch_history())
