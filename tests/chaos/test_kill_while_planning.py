"""A worker is killed while a model writes a plan: the next attempt keeps the complete nodes and asks for the rest."""

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
from tests.support.chaos import (
    TOOLS_FILE,
    FaultPoints,
    model_environment,
    result_within,
    start_workflow,
    worker_process,
)
from tests.support.goals import call_node, plan_text
from tests.support.runs import check_history
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]


async def test_next_attempt_of_the_model_call_completes_the_partial_plan(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    first_node = call_node("a", "compute", name="a", values=[])
    plan = plan_text(first_node, call_node("b", "compute", name="b", values=["{{a.result}}"]))
    rest_of_plan = plan_text(call_node("b", "compute", name="b", values=["{{a.result}}"]))
    # The model stops in the chunk of 8 characters in which the first node ends.
    chunk_count = -(-(plan.index(json.dumps(first_node)) + len(json.dumps(first_node))) // 8)
    held_response = slow(text(plan), held_after_chunks=chunk_count, release_event=asyncio.Event())
    tools = load_toolset(Settings(state_dir=folder / "state"), [str(TOOLS_FILE)]).declarations()
    compiled, _ = prepare_goal("Compute.", {"compute": tools["compute"]}, PlanningOptions())
    # A short heartbeat timeout detects the dead worker soon.
    compiled = replace(compiled, nodes=(replace(compiled.nodes[0], heartbeat_s=2.0), *compiled.nodes[1:]))
    async with (
        ModelServer(held_response, rest_of_plan, "Done.") as model_server,
        worker_process(private_server.address, folder, environment=model_environment(model_server)) as worker,
    ):
        handle = await start_workflow(
            await private_server.start(),
            RunInput(compiled=compiled),
            run_id="killed-while-planning",
            workflow_type=wire.WORKFLOW_PLAN_AND_EXECUTE,
        )
        await points.wait_for_point("a")
        await worker.restart()
        document = await result_within(handle, 120)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert [*document["nodes"]] == ["plan", "read", "a", "b", "answer"]
    repair_message = model_server.calls[1].messages[-1]["content"]
    assert repair_message.startswith("Your last answer ended before the plan was complete.")
    assert json.dumps(first_node) in repair_message
    await check_history(await handle.fetch_history())
