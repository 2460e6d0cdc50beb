"""A worker is killed while a model writes a plan: started nodes stay, and the next attempt completes the plan."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dagwright.core.boundary import wire
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.protocol.run_input import RunInput
from dagwright.settings import Settings
from dagwright.testing import ModelServer, slow, text
from dagwright.toolset.toolset import load_toolset
from tests.chaos.building import assert_whole
from tests.support.chaos import TOOLS, FaultPoints, result_within, start_workflow, worker_process
from tests.support.goals import call, plan_text
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]


async def test_next_attempt_finishes_the_started_plan(
    own_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    first_node = call("a", "compute", name="a", values=[])
    plan = plan_text(first_node, call("b", "compute", name="b", values=["{{a.result}}"]))
    rest = plan_text(call("b", "compute", name="b", values=["{{a.result}}"]))
    pieces = -(-(plan.index(json.dumps(first_node)) + len(json.dumps(first_node))) // 8)
    stopped = slow(text(plan), held_after=pieces, released=asyncio.Event())
    tools = load_toolset(Settings(state_dir=folder / "state"), [str(TOOLS)]).declarations()
    started, _ = prepare_goal("Compute.", {"compute": tools["compute"]}, PlanningOptions())
    # A worker that dies is noticed by its heartbeats.
    started = replace(started, nodes=(replace(started.nodes[0], heartbeat_s=2.0), *started.nodes[1:]))
    async with ModelServer(stopped, rest, "Done.") as server:
        environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "key", "DAGWRIGHT_MODEL": "small"}
        async with worker_process(own_server.address, folder, environment=environment) as worker:
            handle = await start_workflow(
                await own_server.start(),
                RunInput(compiled=started),
                workflow_id="killed-while-planning",
                workflow_type=wire.WORKFLOW_PLAN_AND_EXECUTE,
            )
            await points.wait_for_point("a")
            await worker.kill()
            await worker.start()
            document = await result_within(handle, 120)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert [*document["nodes"]] == ["plan", "read", "a", "b", "answer"]
    result = server.calls[1].messages[-1]["content"]
    assert result.startswith("Your last answer ended before the plan was complete.")
    assert json.dumps(first_node) in result
    await assert_whole(handle)
