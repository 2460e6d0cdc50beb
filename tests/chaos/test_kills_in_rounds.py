"""Workers that are killed while a question is answered in rounds: no model is asked twice, nothing is done twice."""

import asyncio
from pathlib import Path

import pytest

from dagwright.contracts import wire
from dagwright.contracts.messages import RunInput, run_input_to_json
from dagwright.plan.compiled import CompiledPlan
from dagwright.planner import RoundsAsked, prepare_rounds
from dagwright.settings import Settings
from dagwright.testing import ModelServer, step
from dagwright.toolset import load_toolset
from tests.support.chaos import TOOLS, FaultPoints, result_within, worker_process
from tests.support.chaos_tools import calls_of
from tests.support.eventually import eventually
from tests.support.goals import purposes
from tests.support.rounds import done, goes_on, ref, results_of, sub_goal
from tests.support.runs import assert_clean, assert_replays
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]


def _question(folder: Path) -> CompiledPlan:
    tools = load_toolset(Settings(state_dir=folder / "state"), [str(TOOLS)]).declarations()
    return prepare_rounds("Make them.", tools, RoundsAsked())[0]


async def test_round_goes_on_after_kills_in_its_middle_without_another_model_call(
    own_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    first = goes_on(sub_goal(1, "make_slot", name="a"), sub_goal(2, "make_slot", name="b"))
    second = goes_on(sub_goal(3, "make_slot", name="c"))
    held = asyncio.Event()
    answer = step("Nobody hears it.", released=held)
    script = ("Make them.", first, second, done(all=[ref(number, "made") for number in (1, 2, 3)]), answer, "All made.")
    points.hold("b")
    points.hold("c")
    async with ModelServer(*script) as server:
        environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "key", "DAGWRIGHT_MODEL": "small"}
        async with worker_process(own_server.address, folder, environment=environment) as worker:
            handle = await (await own_server.start()).start_workflow(
                wire.WORKFLOW_PURSUE_GOAL,
                run_input_to_json(RunInput(compiled=_question(folder))),
                id="killed-in-rounds",
                task_queue=wire.DEFAULT_TASK_QUEUE,
            )
            for name in ("b", "c"):
                # One of the round is done, or all of the rounds before, and one is in flight.
                await points.reached(name)
                await worker.kill()
                points.release(name)
                await worker.start()
            await eventually(lambda: len(server.calls) == 5)
            await worker.kill()
            held.set()
            await worker.start()
            document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", "All made.")
    assert sorted(results_of(document)[0]) == [(1, "success"), (2, "success")]
    # Only the call that was in flight is made once more: nobody knows that it was answered.
    assert purposes([*server.calls]) == [
        ("intention", "intention"),
        ("plan", "planner"),
        ("plan#2", "planner"),
        ("plan#3", "planner"),
        ("answer", "answer"),
        ("answer", "answer"),
    ]
    assert calls_of(folder)["a"] == 1
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)
