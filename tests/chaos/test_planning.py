"""Kill the worker while a model plans a request and while an agent runs: no answered model call is repeated."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.policy import Policy, Rule
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.planning.model_calls import model_requests
from dagwright.protocol.run_input import RunInput
from dagwright.settings import Settings
from dagwright.testing import ModelServer, Step, When, step, tool_call, tool_calls
from dagwright.toolset.toolset import load_toolset
from tests.support.answer_texts import CHUNK_CHARACTERS, AnswerReader, held_answer, token_streams_of
from tests.support.chaos import (
    RETRY,
    SHORT_HEARTBEAT_WORKER,
    TOOLS_FILE,
    FaultPoints,
    WorkerProcess,
    model_environment,
    result_within,
    start_workflow,
    worker_process,
)
from tests.support.chaos_tools import effects_of
from tests.support.eventually import eventually
from tests.support.goals import call_node, plan_text
from tests.support.runs import Handle, check_history
from tests.support.server import LiveServer
from tests.support.short_heartbeat_worker import HEARTBEAT_S

pytestmark = [pytest.mark.server, pytest.mark.slow]

_LOST_TEXT = "response to a killed worker"
_RETRIES = {"retry": RETRY, "heartbeat": "1s"}


@pytest.fixture(autouse=True)
def short_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give model calls in plans of the test process the short heartbeat that the worker gives to its model calls."""
    monkeypatch.setattr(model_requests, "MODEL_HEARTBEAT_S", HEARTBEAT_S)


@asynccontextmanager
async def worker_with_model(server: LiveServer, folder: Path, model: ModelServer) -> AsyncIterator[WorkerProcess]:
    """Run a worker process that calls the scripted model."""
    environment = model_environment(model)
    async with worker_process(
        server.address, folder, environment=environment, program=SHORT_HEARTBEAT_WORKER
    ) as worker:
        yield worker


def lost_response(node_id: str) -> Step:
    """Return a response that is never sent: the worker is killed while it waits for the response."""
    return step(_LOST_TEXT, when=When(metadata={"node_id": node_id}), release_event=asyncio.Event())


def response_to(node_id: str, answer: Any) -> Step:
    return step(answer, when=When(metadata={"node_id": node_id}))


async def wait_for_calls(model: ModelServer, *nodes: str) -> None:
    """Wait until the model was called by these nodes, in this order."""
    await eventually(lambda: [model_call.metadata["node_id"] for model_call in model.calls] == [*nodes])


async def start_goal(client: Client, goal: str, *tools: str) -> Handle:
    """Start a run for a goal; the model may call these tools of the worker."""
    declarations = load_toolset(Settings(), [str(TOOLS_FILE)]).declarations()
    compiled, _ = prepare_goal(goal, {name: declarations[name] for name in tools}, PlanningOptions())
    run_input = RunInput(compiled=compiled, policy=_policy_that_allows(tools))
    return await _start(client, wire.WORKFLOW_PLAN_AND_EXECUTE, run_input)


def _policy_that_allows(tools: Sequence[str]) -> Policy:
    """Return a policy under which the model calls these tools without an approval."""
    return Policy(tuple(Rule("run", tool=name) for name in tools))


async def start_agent(client: Client, objective: str, *tools: str) -> Handle:
    declarations = load_toolset(Settings(), [str(TOOLS_FILE)]).declarations()
    spec = AgentSpec("helper", tools={name: declarations[name] for name in tools})
    compiled = agent_plan(spec, prompt="Help.", result_titles={})
    run_input = RunInput(compiled=compiled, inputs={"objective": objective}, policy=_policy_that_allows(tools))
    return await _start(client, wire.WORKFLOW_RUN_AGENT, run_input)


async def _start(client: Client, workflow_type: str, run_input: RunInput) -> Handle:
    return await start_workflow(client, run_input, run_id=f"killed-{uuid4().hex}", workflow_type=workflow_type)


async def test_worker_killed_at_each_step_of_a_request_repeats_only_unanswered_calls(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    plan = plan_text({**call_node("made", "effect_then_hold", name="made"), **_RETRIES})
    script = [
        lost_response("plan"),
        response_to("plan", "I would make it."),
        lost_response("plan#2"),
        response_to("plan#2", plan),
        lost_response("answer"),
        response_to("answer", "It is made."),
    ]
    points.hold("made")
    async with ModelServer(*script) as model:
        # The run starts before its worker.
        handle = await start_goal(await private_server.start(), "Make it.", "effect_then_hold")
        async with worker_with_model(private_server, folder, model) as worker:
            # Kill the worker during the planning call, and during the repair of an invalid plan.
            await wait_for_calls(model, "plan")
            await worker.restart()
            await wait_for_calls(model, "plan", "plan", "plan#2")
            await worker.restart()
            # Kill the worker during a node of the plan.
            await points.wait_for_point("made")
            await worker.kill()
            points.release("made")
            await worker.start()
            # Kill the worker during the call that writes the answer.
            await wait_for_calls(model, "plan", "plan", "plan#2", "plan#2", "answer")
            await worker.restart()
            document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", "It is made.")
    assert {name: node["attempts"] for name, node in document["nodes"].items()} == {
        "plan": 2,
        "read": 1,
        "plan#2": 2,
        "read#2": 1,
        "made": 2,
        "answer": 2,
    }
    assert effects_of(folder) == ["made"]
    assert [model_call.metadata["node_id"] for model_call in model.calls] == [
        "plan",
        "plan",
        "plan#2",
        "plan#2",
        "answer",
        "answer",
    ]
    assert _LOST_TEXT not in json.dumps(document)
    await check_history(await handle.fetch_history())


async def test_worker_killed_during_a_replan_repeats_only_unanswered_calls(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    plan = plan_text(
        {**call_node("a", "calculator", expression="1 / 0"), "on_error": "replan"}, call_node("b", "echo", n=2)
    )
    new_plan = plan_text({**call_node("a", "effect_then_hold", name="made"), **_RETRIES})
    script = [
        response_to("plan", plan),
        lost_response("plan#2"),
        response_to("plan#2", "Let me think."),
        lost_response("plan#3"),
        response_to("plan#3", new_plan),
        response_to("answer", "It is made."),
    ]
    points.hold("made")
    async with ModelServer(*script) as model:
        tools = ("calculator", "echo", "effect_then_hold")
        handle = await start_goal(await private_server.start(), "Make it.", *tools)
        async with worker_with_model(private_server, folder, model) as worker:
            # Kill the worker during the replan, and during the repair of the new plan.
            await wait_for_calls(model, "plan", "plan#2")
            await worker.restart()
            await wait_for_calls(model, "plan", "plan#2", "plan#2", "plan#3")
            await worker.restart()
            # Kill the worker during the node that replaces the failed node.
            await points.wait_for_point("made")
            await worker.kill()
            points.release("made")
            await worker.start()
            document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", "It is made.")
    outcomes = {name: (node["status"], node["attempts"]) for name, node in document["nodes"].items()}
    assert {name: outcome for name, outcome in outcomes.items() if name[0] in "ab"} == {
        "a": ("superseded", 1),
        "b": ("completed", 1),
        "a#2": ("completed", 2),
        "answer": ("completed", 1),
    }
    assert effects_of(folder) == ["made"]
    assert [model_call.metadata["node_id"] for model_call in model.calls] == [
        "plan",
        "plan#2",
        "plan#2",
        "plan#3",
        "plan#3",
        "answer",
    ]
    assert _LOST_TEXT not in json.dumps(document)
    await check_history(await handle.fetch_history())


async def test_worker_killed_at_each_step_of_an_agent_repeats_only_unanswered_calls(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    parallel_calls = tool_calls(("effect_then_hold", {"name": "one"}), ("effect_then_hold", {"name": "two"}))
    script = [
        lost_response("turn1"),
        response_to("turn1", parallel_calls),
        lost_response("turn2"),
        response_to("turn2", tool_call("echo", n=3)),
        lost_response("turn3"),
        response_to("turn3", "Both are made."),
    ]
    points.hold("one")
    async with ModelServer(*script) as model:
        handle = await start_agent(await private_server.start(), "Make both.", "effect_then_hold", "echo")
        async with worker_with_model(private_server, folder, model) as worker:
            await wait_for_calls(model, "turn1")
            await worker.restart()
            # Kill the worker between two turns: the call `two` is done, the call `one` is not.
            await points.wait_for_point("one")
            await points.wait_for_point("two")
            await worker.kill()
            points.release("one")
            await worker.start()
            await wait_for_calls(model, "turn1", "turn1", "turn2")
            await worker.restart()
            await wait_for_calls(model, "turn1", "turn1", "turn2", "turn2", "turn3")
            await worker.restart()
            document = await result_within(handle, 240)
    assert (document["status"], document["output"]) == ("completed", "Both are made.")
    assert [*document["nodes"]] == ["turn1", "turn1.1", "turn1.2", "turn2", "turn2.1", "turn3"]
    assert effects_of(folder) == ["one", "two"]
    assert Counter(model_call.metadata["node_id"] for model_call in model.calls) == {"turn1": 2, "turn2": 2, "turn3": 2}
    tool_messages = [message for message in model.calls[-1].messages if message["role"] == "tool"]
    assert [message["content"] for message in tool_messages] == ["one", "two", '{"n":3}']
    await check_history(await handle.fetch_history())


@pytest.mark.parametrize("second_answer", ["Oslo has rain today. Bergen has more of it.", "Bergen has sun."])
async def test_streamed_answer_of_a_killed_worker_is_continued_or_replaced(
    private_server: LiveServer, folder: Path, second_answer: str
) -> None:
    first_answer = "Oslo has rain today. Bergen has more of it."
    script = [
        response_to("plan", plan_text(call_node("a", "echo", n=1))),
        response_to("answer", held_answer(first_answer, asyncio.Event(), pause_after=3)),
        response_to("answer", second_answer),
    ]
    async with ModelServer(*script) as model:
        client = await private_server.start()
        handle = await start_goal(client, "What is the weather?", "echo")
        reader = AnswerReader(token_streams_of(client), handle.id)
        async with worker_with_model(private_server, folder, model) as worker:
            await eventually(lambda: reader.text == first_answer[: 3 * CHUNK_CHARACTERS])
            await worker.kill()
            # Text that the dead worker streamed is still available to new clients.
            late_reader = AnswerReader(token_streams_of(client), handle.id)
            await eventually(lambda: late_reader.text == first_answer[: 3 * CHUNK_CHARACTERS])
            await worker.start()
            document = await result_within(handle, 240)
        texts = [await each.complete_text(second_answer) for each in (reader, late_reader)]
    assert document["output"] == second_answer
    assert (
        texts
        == [first_answer if second_answer == first_answer else first_answer[: 3 * CHUNK_CHARACTERS] + second_answer] * 2
    )
    assert {chunk.starts_new_text for chunk in reader.chunks} == {False, second_answer != first_answer}
    await check_history(await handle.fetch_history())
