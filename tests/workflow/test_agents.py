"""Agents with a scripted model: concurrent tools, continue-as-new, commands, and responses with invalid JSON."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.core.boundary import limits, wire
from dagwright.history.run_reader import RunReader
from dagwright.planning.agent_loop.feedback_markers import find_marker
from dagwright.testing import Raw, When, step, tool_call, tool_calls
from tests.support.agents import checked_document, choice_with_text, helper_plan, messages_of
from tests.support.eventually import eventually
from tests.support.goals import call_node, goal_document, plan_text
from tests.support.people import wait_for_requests
from tests.support.runs import chain_of, completed_node, end_of
from tests.support.tools import CallHarness
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server


async def test_tools_of_a_turn_run_concurrently_before_the_next_turn(
    client: Client, serve_script: ServeScript, unique_name: str
) -> None:
    harness = CallHarness()
    calls = tool_calls(("hold", {"name": unique_name}), ("hold", {"name": f"{unique_name}2"}))
    async with serve_script(
        step(calls, when=When(last="Look.")), step("Both are there.", when=When(last=unique_name)), harness=harness
    ) as (
        model,
        runs,
    ):
        handle = await runs.start_compiled_plan(helper_plan(runs, "hold"), inputs={"objective": "Look."})
        await eventually(lambda: {unique_name, f"{unique_name}2"} <= {*harness.entered})
        harness.open(unique_name)
        harness.open(f"{unique_name}2")
        assert await checked_document(runs, handle) == {
            "status": "completed",
            "output": "Both are there.",
            "nodes": {
                "turn1": completed_node(choice_with_text(None)),
                "turn1.1": completed_node(unique_name),
                "turn1.2": completed_node(f"{unique_name}2"),
                "turn2": completed_node(choice_with_text("Both are there.")),
            },
        }
        edges = (await RunReader(client, handle.id).read()).graph()["edges"]
    assert edges == [["turn1", "turn1.1"], ["turn1", "turn1.2"], ["turn1.1", "turn2"], ["turn1.2", "turn2"]]
    expected = [("user", "Look."), ("assistant", ["hold", "hold"]), ("tool", unique_name), ("tool", f"{unique_name}2")]
    assert messages_of(model.calls[1])[1:] == expected
    assert model.calls[1].tools == ["hold"]


async def test_agent_continues_as_new_with_its_whole_conversation(client: Client, serve_script: ServeScript) -> None:
    last_messages = ["Go on.", *(f'{{"n":{number}}}' for number in range(4))]
    steps = [step(tool_call("echo", n=number), when=When(last=last)) for number, last in enumerate(last_messages)]
    async with serve_script(*steps, step("Done.", when=When(last='{"n":4}'))) as (model, runs):
        with patch.object(limits, "DRAIN_AT_EVENTS", 20):
            handle = await runs.start_compiled_plan(helper_plan(runs, "echo"), inputs={"objective": "Go on."})
            document = await checked_document(runs, handle)
            execution_ends = [end_of(history) for history in await chain_of(client, handle)]
            await runs.check_runs()
    assert (document["status"], document["output"], len(document["nodes"])) == ("completed", "Done.", 11)
    assert (execution_ends[0], execution_ends[-1]) == ("continued", "completed")
    # The conversation has the messages of all executions.
    assert [role for role, _ in messages_of(model.calls[-1])] == ["system", "user", *["assistant", "tool"] * 5]


# Calls that a person ends, and requests in answers.


async def test_model_receives_outcomes_of_calls_that_a_person_ended(
    serve_script: ServeScript, unique_name: str
) -> None:
    harness = CallHarness()
    calls = tool_calls(("hold", {"name": unique_name}), ("write", {"name": unique_name}))
    async with serve_script(calls, step("Then without.", when=When(last="set by a person")), harness=harness) as (
        model,
        runs,
    ):
        handle = await runs.start_compiled_plan(helper_plan(runs, "hold", "write"), inputs={"objective": "Wait."})
        await eventually(lambda: unique_name in harness.entered)
        await wait_for_requests(runs.client, handle.id, "turn1.2")
        await handle.execute_update(
            wire.CANCEL_NODE, {"node_id": "turn1.1", "branch": False, "reason": "no", "by": "ann"}
        )
        await handle.execute_update(wire.SET_RESULT, {"node_id": "turn1.2", "result": "set by a person", "by": "ann"})
        document = await checked_document(runs, handle)
    assert (document["output"], harness.effects[unique_name]) == ("Then without.", [])
    expected = {"turn1": "completed", "turn1.1": "cancelled", "turn1.2": "completed", "turn2": "completed"}
    assert {name: node["status"] for name, node in document["nodes"].items()} == expected
    tool_messages = [content for role, content in messages_of(model.calls[1]) if role == "tool"]
    assert [tool_messages[0].split(":")[0], tool_messages[1]] == ["Cancelled", "set by a person"]


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("none", None),
        ("a [[FEEDBACK: Which?]] b [[FEEDBACK: Why?]]", "[[FEEDBACK: Which?]]"),
        ("[[ FEEDBACK APPROVAL: May I?\nNow? ]]", "[[ FEEDBACK APPROVAL: May I?\nNow? ]]"),
        ("[[FEEDBACK x:" * 100_000, None),
        (f"[[FEEDBACK: {'x' * 3_000}]]", None),
    ],
)
def test_marker_is_found_in_answers_of_any_length(text: str, marker: str | None) -> None:
    assert find_marker(text) == marker


# Responses with invalid JSON.

TEXT_WITH_HALF_A_CHARACTER = "half \ud800 a character"
PLAN_TEXT = plan_text(call_node("a", "plus", left=2, right=3))


def raw_response(message: dict[str, Any], *, finish_reason: str = "stop") -> Raw:
    """Return a completion with a message that is not validated and may have lone surrogates."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "small", "choices": [choice]}
    return Raw(json.dumps(body).encode(), content_type="application/json")


def raw_stream(text: str) -> Raw:
    """Return a streamed completion with a text that is not validated and may have lone surrogates."""
    choice = {"index": 0, "finish_reason": "stop", "delta": {"role": "assistant", "content": text}}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "small", "choices": [choice]}
    return Raw(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), content_type="text/event-stream")


def requested_call(name: str, arguments: str, *, call_id: str) -> dict[str, Any]:
    """Return a tool call in the form of the OpenAI API."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def test_plans_with_invalid_json_are_returned_to_the_model(serve_script: ServeScript) -> None:
    plan_with_infinity = '{"nodes": [{"id": "a", "tool": "plus", "arguments": {"left": 1e999, "right": 1}}]}'
    invalid_plans = [
        TEXT_WITH_HALF_A_CHARACTER,
        plan_text(call_node(TEXT_WITH_HALF_A_CHARACTER, "plus", left=1, right=2)),
        plan_with_infinity,
        "[" * 100_000,
    ]
    steps = [raw_stream(text) for text in invalid_plans]
    async with serve_script(*steps, PLAN_TEXT, "5") as (server, runs):
        document = await goal_document(runs, "Add.", "plus", max_plans=5)
    assert (document["status"], document["output"], len(server.calls)) == ("completed", "5", 6)
    read_nodes = [node for name, node in document["nodes"].items() if name.startswith("read")]
    assert [node["result"]["valid"] for node in read_nodes] == [False] * 4 + [True]
    assert server.calls[1].messages[-2]["content"] == "half \ufffd a character"


async def test_tool_calls_with_invalid_json_or_ids_are_answered(serve_script: ServeScript) -> None:
    calls = [
        requested_call("echo", json.dumps({"text": TEXT_WITH_HALF_A_CHARACTER}, ensure_ascii=False), call_id="one"),
        requested_call("echo", json.dumps({"text": TEXT_WITH_HALF_A_CHARACTER}), call_id="two"),
        requested_call("e\ncho\x00", "{}", call_id="three"),
        requested_call("echo", '{"n": 4}', call_id="one"),
        requested_call("echo", '{"n": 5}', call_id=""),
    ]
    response = raw_response({"content": None, "tool_calls": calls}, finish_reason="tool_calls")
    async with serve_script(response, step("Done.", when=When(last='{"n":5}'))) as (server, runs):
        handle = await runs.start_compiled_plan(helper_plan(runs, "echo"), inputs={"objective": "Look."})
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    tool_messages = [(message["tool_call_id"], message["content"]) for message in server.calls[1].messages[-5:]]
    assert tool_messages == [
        ("one", '{"text":"half \ufffd a character"}'),
        ("two", tool_messages[1][1]),
        ("three", "Unknown tool 'e\\ncho\\x00'; did you mean 'echo'? Available tools: echo."),
        ("call_4", '{"n":4}'),
        ("call_5", '{"n":5}'),
    ]
    assert tool_messages[1][1].startswith("Invalid JSON in the arguments of echo: ")
