"""Agents that go on, on the real Temporal server: in new executions, and after their worker was killed."""

import asyncio
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.core.boundary import limits
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.protocol.messages import RunInput, run_input_to_json
from dagwright.settings import Settings
from dagwright.testing import ModelServer, Step, step, tool_call
from dagwright.toolset.toolset import load_toolset
from tests.support.agents import agent, agent_runs, answered, ended, said
from tests.support.chaos import QUICK_WORKER, worker_process
from tests.support.eventually import eventually
from tests.support.runs import bare, chain_of, document_of, done, end_of
from tests.support.server import live_server

pytestmark = pytest.mark.server


async def test_an_agent_goes_on_in_new_executions(client: Client, tmp_path: Path) -> None:
    told = ["Go on.", *(f'{{"n":{number}}}' for number in range(4))]
    steps = [step(tool_call("echo", n=number), last=last) for number, last in enumerate(told)]
    async with (
        ModelServer(*steps, step("Done.", last='{"n":4}')) as model,
        agent_runs(client, model, tmp_path) as runs,
    ):
        with patch.object(limits, "HARD_MARK_EVENTS", 20):
            handle = await runs.start_compiled(agent(runs, "echo"), inputs={"objective": "Go on."})
            document = await ended(runs, handle)
            executions = [end_of(history) for history in await chain_of(client, handle)]
            await runs.check_ended()
    assert (document["status"], document["output"], len(document["nodes"])) == ("completed", "Done.", 11)
    assert executions[0] == "continued"
    assert executions[-1] == "completed"
    # The whole conversation is there, whichever execution made it.
    assert [role for role, _ in said(model.calls[-1])] == ["system", "user", *["assistant", "tool"] * 5]


@pytest.mark.slow
async def test_a_worker_that_is_killed_between_two_turns_asks_nothing_again_that_was_answered(tmp_path: Path) -> None:
    never = asyncio.Event()
    steps: list[Step] = [
        step(tool_call("calculator", expression="6*7"), last="What is 6 times 7?"),
        step("lost", last="42", released=never),
        step("It is 42.", last="42"),
    ]
    folder = tmp_path / "shared"
    folder.mkdir()
    calculator = load_toolset(Settings(state_dir=tmp_path / "here")).declarations()["calculator"]
    plan = agent_plan(AgentSpec("adder", tools={"calculator": calculator}), prompt="Add.", results={})
    async with live_server(tmp_path / "server") as live, ModelServer(*steps) as server:
        client = await live.start()
        environment = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "key", "DAGWRIGHT_MODEL": "small"}
        async with worker_process(live.address, folder, environment=environment, program=QUICK_WORKER) as worker:
            run_input = RunInput(compiled=plan, inputs={"objective": "What is 6 times 7?"})
            handle = await client.start_workflow(
                "RunAgent", run_input_to_json(run_input), id=f"agent-{uuid4().hex}", task_queue="dagwright"
            )
            await eventually(lambda: len(server.calls) == 2)
            await worker.kill()
            await worker.start()
            assert bare(await document_of(handle)) == {
                "status": "completed",
                "output": "It is 42.",
                "nodes": {
                    "turn1": done(answered(None)),
                    "turn1.1": done(42),
                    "turn2": done(answered("It is 42."), attempts=2),
                },
            }
        assert [call.metadata["node"] for call in server.calls] == ["turn1", "turn2", "turn2"]
