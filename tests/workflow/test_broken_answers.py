"""Answers of models that no JSON can carry, on the real Temporal server: each is told, and none ends a run as a bug."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.testing import ModelServer, Raw, step
from tests.support.agents import agent, agent_runs
from tests.support.agents import ended as agent_ended
from tests.support.goals import call, ended, goal, written

pytestmark = pytest.mark.server

HALF = "half \ud800 a character"
FIVE = written(call("a", "plus", left=2, right=3))


def raw(message: dict[str, Any], *, finish_reason: str = "stop") -> Raw:
    """Returns a completion with a message as it stands here, halves of characters and all."""
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "small", "choices": [choice]}
    return Raw(json.dumps(body).encode(), content_type="application/json")


def raw_stream(text: str) -> Raw:
    """Returns a streamed completion with a text as it stands here, halves of characters and all."""
    choice = {"index": 0, "finish_reason": "stop", "delta": {"role": "assistant", "content": text}}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "small", "choices": [choice]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
    return Raw(body.encode(), content_type="text/event-stream")


def wanted(name: str, arguments: str, *, call_id: str) -> dict[str, Any]:
    """Returns a tool that a model wants called."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def test_plans_that_no_json_can_carry_go_back(client: Client, tmp_path: Path) -> None:
    infinite = '{"nodes": [{"id": "a", "tool": "plus", "arguments": {"left": 1e999, "right": 1}}]}'
    broken = [HALF, written(call(HALF, "plus", left=1, right=2)), infinite, "[" * 100_000]
    steps = [raw_stream(text) for text in broken]
    async with ModelServer(*steps, FIVE, "5") as server, agent_runs(client, server, tmp_path) as runs:
        found = await ended(runs, await runs.start_compiled(goal(runs, "Add.", "plus", plans=5)))
    assert (found["status"], found["output"], len(server.calls)) == ("completed", "5", 6)
    reads = [node for name, node in found["nodes"].items() if name.startswith("read")]
    assert [node["result"]["valid"] for node in reads] == [False] * 4 + [True]
    assert server.calls[1].messages[-2]["content"] == "half \ufffd a character"


async def test_calls_of_an_agent_that_no_json_can_carry_are_answered(client: Client, tmp_path: Path) -> None:
    calls = [
        wanted("echo", json.dumps({"text": HALF}, ensure_ascii=False), call_id="one"),
        wanted("echo", json.dumps({"text": HALF}), call_id="two"),
        wanted("e\ncho\x00", "{}", call_id="three"),
        wanted("echo", '{"n": 4}', call_id="one"),
        wanted("echo", '{"n": 5}', call_id=""),
    ]
    wants = raw({"content": None, "tool_calls": calls}, finish_reason="tool_calls")
    async with (
        ModelServer(wants, step("Done.", last='{"n":5}')) as server,
        agent_runs(client, server, tmp_path) as runs,
    ):
        handle = await runs.start_compiled(agent(runs, "echo"), inputs={"objective": "Look."})
        found = await agent_ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed", "Done.")
    told = [(message["tool_call_id"], message["content"]) for message in server.calls[1].messages[-5:]]
    assert told == [
        ("one", '{"text":"half \ufffd a character"}'),
        ("two", told[1][1]),
        ("three", "There is no tool 'e\\ncho\\x00'; did you mean 'echo'? There are: echo."),
        ("call_4", '{"n":4}'),
        ("call_5", '{"n":5}'),
    ]
    assert told[1][1].startswith("The arguments of echo are no JSON: ")
