"""Streamed replans: nodes that start early, superseded nodes, and large answers."""

import asyncio
import json
from typing import Any

import pytest

from dagwright.testing import slow, text
from tests.support.eventually import eventually
from tests.support.goals import call, checked_document, goal, plan_text
from tests.support.people import view_of
from tests.support.runs import Handle, Runs, document_of
from tests.support.tools import Bench
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server

_CHUNK_CHARACTERS = 8
"""Characters of one chunk of a stream."""
REPLANNED_NODE = {**call("a", "give_up"), "on_error": "replan"}


async def titles(runs: Runs, handle: Handle, role: str) -> list[str | None]:
    scheduler = (await view_of(runs, handle)).scheduler
    assert scheduler is not None
    return [node.title for node, _ in scheduler.state.visible_nodes() if node.id.partition("#")[0] == role]


def held_answer(words: str, released: asyncio.Event) -> Any:
    """Return a model response that continues when `released` is set."""
    return slow(
        text(words), characters=_CHUNK_CHARACTERS, held_after=len(words) // _CHUNK_CHARACTERS, released=released
    )


async def test_nodes_of_a_replan_start_while_the_model_writes(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = plan_text(REPLANNED_NODE, call("b", "echo", name="early"))
    new_plan = json.dumps(
        {"nodes": [call("c", "hold", name="{{b.result.name}}"), call("a", "echo", of="{{c.result}}")]}
    )
    held_response = slow(
        text(new_plan),
        characters=_CHUNK_CHARACTERS,
        held_after=-(-(new_plan.index('"id": "a"')) // _CHUNK_CHARACTERS),
        released=released,
    )
    async with serve_script(plan, held_response, "Done.", bench=bench) as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "give_up", "echo", "hold"))
        await eventually(lambda: "early" in bench.entered)
        released.set()
        bench.open("early")
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert (bench.entered, document["nodes"]["a#2"]["result"]) == (["early"], {"of": "early"})
    assert [*document["nodes"]].index("c") < [*document["nodes"]].index("a#2")


async def test_streamed_replan_supersedes_unreachable_nodes(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = plan_text(
        REPLANNED_NODE,
        call("b", "echo", of="{{a.result}}"),
        call("c", "echo", name="early"),
    )
    new_plan = plan_text(call("d", "hold", name="{{c.result.name}}"), title="t" * 40)
    async with serve_script(plan, held_answer(new_plan, released), "Done.", bench=bench) as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "give_up", "echo", "hold"))
        await eventually(lambda: "early" in bench.entered)
        released.set()
        bench.open("early")
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    expected = {"a": "superseded", "b": "superseded", "c": "completed", "d": "completed"}
    assert {name: document["nodes"][name]["status"] for name in "abcd"} == expected


def answer_with_gaps(words: str, *missing: str) -> str:
    return json.dumps({"answer": words, "missing": list(missing)})


async def test_large_answer_in_a_response_format_is_the_output(serve_script: Scripted) -> None:
    words = "long " * 60_000
    answer = slow(text(answer_with_gaps(words, "more")), characters=4_000)
    async with serve_script(plan_text(call("a", "echo", n=1)), answer, '{"nodes": []}') as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "More.", "echo"))
        document = await document_of(handle)
        [_, title] = await titles(runs, handle, "plan")
    assert (document["status"], document["output"]["bytes"]) == ("completed", len(words) + 2)
    assert title == "planning again (1 of 3): missing in the answer: more"
