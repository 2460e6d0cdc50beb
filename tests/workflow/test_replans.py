"""Replans: after failures, with guidance, and the outcomes of bad plans."""

import asyncio
import json
from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.testing import slow, text
from tests.support.eventually import eventually
from tests.support.goals import call, ended, goal, purposes, written
from tests.support.people import view_of
from tests.support.runs import Document, Handle, Runs, document_of
from tests.support.tools import Bench
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server

_PIECE = 8
"""Characters of one piece of a stream."""


def fragile(node_id: str, tool: str = "give_up", **arguments: Any) -> dict[str, Any]:
    """Return a node that is planned again if it fails."""
    return {**call(node_id, tool, **arguments), "on_error": "replan"}


async def titles(runs: Runs, handle: Handle, role: str) -> list[str | None]:
    scheduler = (await view_of(runs, handle)).scheduler
    assert scheduler is not None
    return [node.title for node, _ in scheduler.state.visible_nodes() if node.id.partition("#")[0] == role]


def states(document: Document) -> dict[str, str]:
    """Return the state of each node, in order."""
    return {name: node["status"] for name, node in document["nodes"].items()}


def held_answer(words: str, released: asyncio.Event) -> Any:
    """Return a model response that continues when `released` is set."""
    return slow(text(words), characters=_PIECE, held_after=len(words) // _PIECE, released=released)


async def test_node_replaces_a_failed_one_and_its_dependents_continue(scripted: Scripted) -> None:
    plan = written(fragile("a", message="nobody there"), call("b", "echo", of="{{a.result}}"), call("c", "echo", n=3))
    new_plan = written(call("a", "echo", asked="{{c.result.n}}"))
    async with scripted(plan, new_plan, "Done.") as (server, runs):
        handle = await runs.start_compiled(goal(runs, "Try.", "give_up", "echo"))
        found = await ended(runs, handle)
        _, title = await titles(runs, handle, "plan")
    assert (found["status"], found["output"]) == ("completed", "Done.")
    assert states(found) == {
        **{"plan": "completed", "read": "completed", "a": "superseded", "b": "completed", "c": "completed"},
        **{"plan#2": "completed", "read#2": "completed", "a#2": "completed", "answer": "completed"},
    }
    assert found["nodes"]["b"]["result"] == {"of": {"asked": 3}}
    assert title == "planning again (1 of 3): 'a' failed: tool_failed: nobody there"
    assert purposes([*server.calls]) == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]
    asked = server.calls[1]
    assert [message["role"] for message in asked.messages] == ["system", "user", "assistant", "user"]
    result = asked.messages[-1]["content"]
    assert result.startswith("Step 'c': completed\nError: null\nResult: {\"n\":3}\n\nStep 'a': failed\nError: {")
    assert "\n\nStep 'b': blocked\n" in result
    assert result.endswith("Reasons for the new plan:\n- 'a' failed: tool_failed: nobody there")
    assert "Step 'a': completed" in server.calls[2].text or "Step 'a#2': completed" in server.calls[2].text


async def test_two_failures_while_another_node_runs_are_one_question(scripted: Scripted) -> None:
    bench = Bench()
    plan = written(fragile("a", message="one"), fragile("b", message="two"), call("c", "hold", name="slow"))
    new_plan = written(call("a", "echo", n=1), call("b", "echo", of="{{a.result}}", and_of="{{c.result}}"))
    async with scripted(plan, new_plan, "Done.", bench=bench) as (server, runs):
        handle = await runs.start_compiled(goal(runs, "Try.", "give_up", "echo", "hold"))

        async def have_failed() -> bool:
            found = (await view_of(runs, handle)).document()["nodes"]
            return [found.get(name, {}).get("status") for name in "ab"] == ["failed", "failed"]

        await eventually(have_failed)
        assert len(server.calls) == 1
        bench.open("slow")
        found = await ended(runs, handle)
    assert found["status"] == "completed"
    assert purposes([*server.calls]) == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]
    assert (
        server.calls[1]
        .messages[-1]["content"]
        .endswith("- 'a' failed: tool_failed: one\n- 'b' failed: tool_failed: two")
    )
    assert found["nodes"]["b#2"]["result"] == {"of": {"n": 1}, "and_of": "slow"}


async def test_plan_is_unnecessary_if_its_result_is_set_while_it_is_made(scripted: Scripted) -> None:
    released = asyncio.Event()
    plan = written(fragile("a"), call("b", "echo", of="{{a.result}}"))
    async with scripted(plan, held_answer(written(call("a", "echo", n=1)), released), "Five.") as (server, runs):
        handle = await runs.start_compiled(goal(runs, "Try.", "give_up", "echo"))
        await eventually(lambda: len(server.calls) == 2)
        await handle.execute_update(wire.SET_RESULT, {"node_id": "a", "result": 5})
        released.set()
        found = await ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed", "Five.")
    assert [*found["nodes"]] == ["plan", "read", "a", "b", "plan#2", "read#2", "answer"]
    assert found["nodes"]["b"]["result"] == {"of": 5}


async def test_plan_waits_for_a_manual_retry_and_is_used_if_it_fails(scripted: Scripted) -> None:
    plan = written(fragile("a", message="never"))
    async with scripted(plan, held_answer(written(call("a", "echo", n=1)), released := asyncio.Event()), "One.") as (
        server,
        runs,
    ):
        handle = await runs.start_compiled(goal(runs, "Try.", "give_up", "echo"))
        await eventually(lambda: len(server.calls) == 2)
        await handle.execute_update(wire.RETRY_NODE, {"node_id": "a"})
        released.set()
        found = await ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed", "One.")
    # `a#2` was the second call of `a`.
    assert states(found) | {"a": "superseded", "a#3": "completed"} == states(found)


async def test_nodes_of_a_plan_that_is_made_again_start_while_it_is_written(scripted: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = written(fragile("a"), call("b", "echo", name="early"))
    new_plan = json.dumps(
        {"nodes": [call("c", "hold", name="{{b.result.name}}"), call("a", "echo", of="{{c.result}}")]}
    )
    stopped = slow(
        text(new_plan), characters=_PIECE, held_after=-(-(new_plan.index('"id": "a"')) // _PIECE), released=released
    )
    async with scripted(plan, stopped, "Done.", bench=bench) as (_, runs):
        handle = await runs.start_compiled(goal(runs, "Look.", "give_up", "echo", "hold"))
        await eventually(lambda: "early" in bench.entered)
        released.set()
        bench.open("early")
        found = await ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed", "Done.")
    assert (bench.entered, found["nodes"]["a#2"]["result"]) == (["early"], {"of": "early"})
    assert [*found["nodes"]].index("c") < [*found["nodes"]].index("a#2")


async def test_unreachable_nodes_are_omitted_if_the_complete_plan_was_streamed(scripted: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = written(fragile("a"), call("b", "echo", of="{{a.result}}"), call("c", "echo", name="early"))
    new_plan = written(call("d", "hold", name="{{c.result.name}}"), title="t" * 40)
    async with scripted(plan, held_answer(new_plan, released), "Done.", bench=bench) as (_, runs):
        handle = await runs.start_compiled(goal(runs, "Look.", "give_up", "echo", "hold"))
        await eventually(lambda: "early" in bench.entered)
        released.set()
        bench.open("early")
        found = await ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed", "Done.")
    expected = {"a": "superseded", "b": "superseded", "c": "completed", "d": "completed"}
    assert {name: found["nodes"][name]["status"] for name in "abcd"} == expected


def answer_with_gaps(words: str, *missing: str) -> str:
    return json.dumps({"answer": words, "missing": list(missing)})


async def test_large_answer_in_its_response_format_is_given_out(scripted: Scripted) -> None:
    words = "long " * 60_000
    answer = slow(text(answer_with_gaps(words, "more")), characters=4_000)
    async with scripted(written(call("a", "echo", n=1)), answer, '{"nodes": []}') as (_, runs):
        handle = await runs.start_compiled(goal(runs, "More.", "echo"))
        found = await document_of(handle)
        [_, title] = await titles(runs, handle, "plan")
    assert (found["status"], found["output"]["bytes"]) == ("completed", len(words) + 2)
    assert title == "planning again (1 of 3): missing in the answer: more"
