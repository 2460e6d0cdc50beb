"""Text requests with a scripted model: plan, repair, run and answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.compiled import tool_to_json
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.settings import Settings
from dagwright.testing import ModelServer, When, step, tool_call
from dagwright.tools import ToolRegistry, tool
from tests.support.agents import checked_document as checked_agent_document
from tests.support.agents import choice_with_text, helper_plan
from tests.support.eventually import eventually
from tests.support.goals import call_node, checked_document, goal_document, goal_plan, nodes_and_purposes, plan_text
from tests.support.people import rejection_of
from tests.support.runs import Runs, checked_runs, completed_node, document_of
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server

TWO_NODE_PLAN_TEXT = plan_text(
    call_node("a", "plus", left=1, right=2), call_node("b", "plus", left="{{a.result}}", right=4)
)


async def test_text_request_is_planned_executed_and_answered(serve_script: ServeScript) -> None:
    async with serve_script(TWO_NODE_PLAN_TEXT, "It is 7.") as (server, runs):
        document = await goal_document(runs, "Add 1, 2 and 4.", "plus", "echo")
    expected = ("completed", "It is 7.", ["plan", "read", "a", "b", "answer"])
    assert (document["status"], document["output"], [*document["nodes"]]) == expected
    assert [document["nodes"][name]["result"] for name in ("a", "b")] == [3.0, 7.0]
    assert nodes_and_purposes([*server.calls]) == [("plan", "plan"), ("answer", "answer")]
    plan_call, answer_call = server.calls
    assert plan_call.response_format == "json_schema"
    assert plan_call.text.endswith("\n\nRequest:\nAdd 1, 2 and 4.")
    assert answer_call.messages[1]["content"] == (
        "Request:\nAdd 1, 2 and 4.\n\n"
        "Step 'a': completed\nError: null\nResult: 3.0\n\n"
        "Step 'b': completed\nError: null\nResult: 7.0"
    )


async def test_large_results_are_shortened_in_the_prompt_of_the_answer(serve_script: ServeScript) -> None:
    plan = plan_text(
        call_node("big", "table", rows=5000),
        call_node("small", "text", size=9000),
        call_node("many", "text", size=8100),
    )
    async with serve_script(plan, "Done.") as (server, runs):
        document = await goal_document(runs, "Look.", "table", "text")
    assert (document["status"], document["output"]) == ("completed", "Done.")
    prompt = server.calls[1].text
    assert len(prompt) < 27_000
    assert prompt.count("[… cut here: ") == 3


async def test_text_request_can_be_started_with_a_raw_message(serve_script: ServeScript) -> None:
    message = {"plan": {"goal": " Add.\n", "config": {"seed": 7}}}
    async with serve_script(TWO_NODE_PLAN_TEXT, "It is 7.") as (server, runs):
        document = await checked_document(runs, await runs.start_raw(message, workflow="PlanAndExecute"))
    assert (document["status"], document["output"]) == ("completed", "It is 7.")
    assert [call.body.get("seed") for call in server.calls] == [7, 7]


async def test_invalid_text_request_fails_with_its_problems(serve_script: ServeScript) -> None:
    invalid_request = {"goal": "Add.", "confg": {}, "approve_plan": "yes", "config": {"temperature": 9}}
    async with serve_script() as (_, runs):
        documents = [
            await document_of(await runs.start_raw(message, workflow="PlanAndExecute"))
            for message in ({"goal": " "}, {"goal": "x" * 1_000_000}, {"plan": invalid_request}, {"goal": None})
        ]
    assert [document["status"] for document in documents] == ["failed"] * 4
    expected = ["empty_request", "too_large", "invalid_field", "invalid_field"]
    assert [document["error"]["errors"][0]["code"] for document in documents] == expected
    assert documents[3]["error"]["errors"][0]["message"] == "the request must be a string, not NoneType"
    assert [problem["pointer"] for problem in documents[2]["error"]["errors"]] == ["/confg", "/approve_plan", "/config"]


async def test_model_calls_of_a_run_have_the_documented_metadata(serve_script: ServeScript) -> None:
    card = AgentCard(name="clerk", description="Reads", objective_template="Read {what}", type="llm", prompt="Read.")
    plan = plan_text({"id": "mail", "agent": "clerk", "objective": "Read my mail."})
    async with serve_script("I would read it.", plan, "Nothing new.", "No news.") as (server, runs):
        declaration = agent_declaration(card)
        tools = {"echo": runs.tools["echo"], declaration.name: declaration}
        handle = await runs.start_compiled_plan(prepare_goal("Read my mail.", tools, PlanningOptions())[0])
        await checked_document(runs, handle)
    assert [(call.metadata, call.is_streamed, call.response_format) for call in server.calls] == [
        ({"run_id": handle.id, "node_id": "plan", "purpose": "plan"}, True, "json_schema"),
        ({"run_id": handle.id, "node_id": "plan#2", "purpose": "repair"}, True, "json_schema"),
        ({"run_id": f"{handle.id}/mail", "node_id": "turn1", "purpose": "agent"}, True, "text"),
        ({"run_id": handle.id, "node_id": "answer", "purpose": "answer"}, True, "json_schema"),
    ]
    plan_messages, repair_messages, _, answer_messages = (call.messages for call in server.calls)
    assert plan_messages[0]["content"].startswith("You plan.")
    assert repair_messages[:2] == plan_messages
    assert repair_messages[-1]["content"].startswith("This plan cannot be run:")
    assert answer_messages[0]["content"].startswith("You answer a request")


# Invalid requests and plans.

REFERENCES_TEXT = "{{secret.TOKEN}} and {{other.result}} and {{a.result}} and {{inputs.x}} and {{item}} and {{"
ONE_NODE_PLAN_TEXT = plan_text(call_node("a", "plus", left=2, right=3))


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DAGWRIGHT_SECRET_TOKEN", "very-secret-text")
    return "very-secret-text"


async def test_request_with_special_characters_reaches_the_model_unchanged(serve_script: ServeScript) -> None:
    request_text = "Add\x00 2 and 3 \U0001f98a \u202e\x1b[31m " + REFERENCES_TEXT
    async with serve_script(ONE_NODE_PLAN_TEXT, "5 \x00\U0001f98a") as (server, runs):
        document = await goal_document(runs, request_text, "plus")
    assert (document["status"], document["output"]) == ("completed", "5 \x00\U0001f98a")
    assert server.calls[0].text.endswith(f"\n\nRequest:\n{request_text}")
    assert f"Request:\n{request_text}" in server.calls[1].text


def registry_with_references() -> ToolRegistry:
    """Return the tools `echo` and `references`. The result of `references` is a text with references."""

    @tool(effects="read")
    def references() -> str:
        return REFERENCES_TEXT

    @tool(effects="read")
    def echo(**arguments: Any) -> dict[str, Any]:
        return arguments

    return ToolRegistry.of(references, echo)


async def test_references_in_results_and_answers_are_not_resolved(client: Client, tmp_path: Path, secret: str) -> None:
    invalid_plan_text = plan_text(call_node("b", "echo", of=REFERENCES_TEXT))
    valid_plan_text = plan_text(
        {**call_node("other", "references"), "title": "Returns references"},
        call_node("b", "echo", of="{{other.result}}", text="<{{other.result}}>"),
    )
    async with ModelServer(invalid_plan_text, valid_plan_text, f"It is {REFERENCES_TEXT}") as server:
        settings = Settings(state_dir=tmp_path, model="small", openai_base_url=server.base_url)
        async with checked_runs(client, registry_with_references(), settings=settings) as runs:
            document = await goal_document(runs, f"Tell {REFERENCES_TEXT}.", "echo", "references")
    assert document["nodes"]["b"] == completed_node({"of": REFERENCES_TEXT, "text": f"<{REFERENCES_TEXT}>"})
    assert (document["status"], document["output"]) == ("completed", f"It is {REFERENCES_TEXT}")
    assert server.calls[1].messages[-2]["content"] == invalid_plan_text
    assert (
        f"Step 'other' (Returns references): completed\nError: null\nResult: {REFERENCES_TEXT}" in server.calls[2].text
    )
    assert secret not in "".join(call.text for call in server.calls)


async def test_references_in_calls_and_results_of_agents_are_not_resolved(
    serve_script: ServeScript, secret: str
) -> None:
    steps = (tool_call("echo", text=REFERENCES_TEXT), step(f"It is {REFERENCES_TEXT}", when=When(last=REFERENCES_TEXT)))
    async with serve_script(*steps) as (server, runs):
        handle = await runs.start_compiled_plan(
            helper_plan(runs, "echo"), inputs={"objective": f"Say {REFERENCES_TEXT}"}
        )
        assert await checked_agent_document(runs, handle) == {
            "status": "completed",
            "output": f"It is {REFERENCES_TEXT}",
            "nodes": {
                "turn1": completed_node(choice_with_text(None)),
                "turn1.1": completed_node({"text": REFERENCES_TEXT}),
                "turn2": completed_node(choice_with_text(f"It is {REFERENCES_TEXT}")),
            },
        }
    assert server.calls[0].messages[-1]["content"] == f"Say {REFERENCES_TEXT}"
    assert secret not in "".join(call.text for call in server.calls)


@pytest.mark.parametrize("streams", [True, False])
async def test_plan_with_an_id_that_a_person_has_used_is_returned_to_the_model(
    serve_script: ServeScript, *, streams: bool
) -> None:
    release_event = asyncio.Event()
    renamed_plan = plan_text(call_node("b", "plus", left=2, right=3))
    async with serve_script(step(ONE_NODE_PLAN_TEXT, release_event=release_event), renamed_plan, "5") as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Add 2 and 3.", "plus", streams=streams))
        await eventually(lambda: len(server.calls) == 1)
        message = {"nodes": [call_node("a", "plus", left=1, right=1)], "tools": _tools(runs, "plus")}
        await handle.execute_update(wire.ADD_NODES, message)
        # A repeated command is rejected, because the ID is in use.
        assert "the run has a node 'a' already" in await rejection_of(handle, message, update=wire.ADD_NODES)
        release_event.set()
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "5")
    assert [*document["nodes"]] == ["plan", "read", "a", "plan#2", "read#2", "b", "answer"]
    assert "the run has another node 'a' already: choose another id" in server.calls[1].messages[-1]["content"]


async def test_planned_node_that_equals_a_manually_added_node_is_not_added_again(serve_script: ServeScript) -> None:
    release_event = asyncio.Event()
    async with serve_script(step(ONE_NODE_PLAN_TEXT, release_event=release_event), "5") as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Add 2 and 3.", "plus"))
        await eventually(lambda: len(server.calls) == 1)
        message = {"nodes": [call_node("a", "plus", left=2, right=3)], "tools": _tools(runs, "plus")}
        # An update that a client repeats with the same ID is applied once.
        for _ in range(2):
            await handle.execute_update(wire.ADD_NODES, message, id="once")
        release_event.set()
        document = await checked_document(runs, handle)
    expected = ("completed", "5", ["plan", "read", "a", "answer"])
    assert (document["status"], document["output"], [*document["nodes"]]) == expected


def _tools(runs: Runs, name: str) -> dict[str, Any]:
    return {name: tool_to_json(runs.tools[name])}
