"""Streamed replans: nodes that start early, superseded nodes, and large answers."""

import asyncio
import json
from typing import Any

import pytest

from dagwright.testing import slow, text
from tests.support.answer_texts import CHUNK_CHARACTERS, held_answer
from tests.support.eventually import eventually
from tests.support.goals import call_node, checked_document, goal_plan, plan_text
from tests.support.run_views import view_of
from tests.support.runs import Document, Handle, Runs, document_of
from tests.support.tools import CallHarness
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server


REPLANNED_NODE = {**call_node("a", "give_up"), "on_error": "replan"}


async def read_titles(runs: Runs, handle: Handle, base_id: str) -> list[str | None]:
    scheduler = (await view_of(runs, handle)).scheduler
    assert scheduler is not None
    return [node.title for node, _ in scheduler.state.visible_nodes() if node.id.partition("#")[0] == base_id]


async def _complete_streamed_replan(
    serve_script: ServeScript, script: tuple[Any, ...], harness: CallHarness, model_gate: asyncio.Event
) -> Document:
    """Complete a run whose model pauses in the new plan until a node waits at the gate `early`."""
    async with serve_script(*script, harness=harness) as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "give_up", "echo", "hold"))
        await eventually(lambda: "early" in harness.entered)
        model_gate.set()
        harness.open("early")
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    return document


async def test_nodes_of_a_replan_start_while_the_model_writes(serve_script: ServeScript) -> None:
    harness, model_gate = CallHarness(), asyncio.Event()
    plan = plan_text(REPLANNED_NODE, call_node("b", "echo", name="early"))
    first_node = call_node("c", "hold", name="{{b.result.name}}")
    new_plan = plan_text(first_node, call_node("a", "echo", value="{{c.result}}"))
    script = (plan, held_answer(new_plan, model_gate, pause_after=json.dumps(first_node)), "Done.")
    document = await _complete_streamed_replan(serve_script, script, harness, model_gate)
    assert (harness.entered, document["nodes"]["a#2"]["result"]) == (["early"], {"value": "early"})
    assert [*document["nodes"]].index("c") < [*document["nodes"]].index("a#2")


async def test_streamed_replan_supersedes_unreachable_nodes(serve_script: ServeScript) -> None:
    harness, model_gate = CallHarness(), asyncio.Event()
    plan = plan_text(REPLANNED_NODE, call_node("b", "echo", value="{{a.result}}"), call_node("c", "echo", name="early"))
    new_plan = plan_text(call_node("d", "hold", name="{{c.result.name}}"), title="t" * 40)
    script = (plan, held_answer(new_plan, model_gate, pause_after=len(new_plan) // CHUNK_CHARACTERS), "Done.")
    document = await _complete_streamed_replan(serve_script, script, harness, model_gate)
    expected = {"a": "superseded", "b": "superseded", "c": "completed", "d": "completed"}
    assert {node_id: document["nodes"][node_id]["status"] for node_id in "abcd"} == expected


def answer_with_missing_parts(content: str, *missing: str) -> str:
    return json.dumps({"answer": content, "missing": list(missing)})


async def test_large_answer_in_a_response_format_is_the_output(serve_script: ServeScript) -> None:
    content = "long " * 60_000
    answer = slow(text(answer_with_missing_parts(content, "more")), chunk_characters=4_000)
    async with serve_script(plan_text(call_node("a", "echo", n=1)), answer, '{"nodes": []}') as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "More.", "echo"))
        document = await document_of(handle)
        [_, title] = await read_titles(runs, handle, "plan")
    # The size of the output includes its quotes in JSON.
    assert (document["status"], document["output"]["bytes"]) == ("completed", len(content) + 2)
    assert title == "planning again (1 of 3): missing in the answer: more"
