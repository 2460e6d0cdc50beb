"""Replans: after failures, with guidance, and the outcomes of bad plans."""

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

_PIECE = 8
"""Characters of one piece of a stream."""
FRAGILE = {**call("a", "give_up"), "on_error": "replan"}


async def titles(runs: Runs, handle: Handle, role: str) -> list[str | None]:
    scheduler = (await view_of(runs, handle)).scheduler
    assert scheduler is not None
    return [node.title for node, _ in scheduler.state.visible_nodes() if node.id.partition("#")[0] == role]


def held_answer(words: str, released: asyncio.Event) -> Any:
    """Return a model response that continues when `released` is set."""
    return slow(text(words), characters=_PIECE, held_after=len(words) // _PIECE, released=released)


async def test_nodes_of_a_plan_that_is_made_again_start_while_it_is_written(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = plan_text(FRAGILE, call("b", "echo", name="early"))
    new_plan = json.dumps(
        {"nodes": [call("c", "hold", name="{{b.result.name}}"), call("a", "echo", of="{{c.result}}")]}
    )
    stopped = slow(
        text(new_plan), characters=_PIECE, held_after=-(-(new_plan.index('"id": "a"')) // _PIECE), released=released
    )
    async with serve_script(plan, stopped, "Done.", bench=bench) as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "give_up", "echo", "hold"))
        await eventually(lambda: "early" in bench.entered)
        released.set()
        bench.open("early")
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert (bench.entered, document["nodes"]["a#2"]["result"]) == (["early"], {"of": "early"})
    assert [*document["nodes"]].index("c") < [*document["nodes"]].index("a#2")


async def test_unreachable_nodes_are_omitted_if_the_complete_plan_was_streamed(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = plan_text(
        {**call("a", "give_up"), "on_error": "replan"},
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


async def test_large_answer_in_its_response_format_is_given_out(serve_script: Scripted) -> None:
    words = "long " * 60_000
    answer = slow(text(answer_with_gaps(words, "more")), characters=4_000)
    async with serve_script(plan_text(call("a", "echo", n=1)), answer, '{"nodes": []}') as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "More.", "echo"))
        document = await document_of(handle)
        [_, title] = await titles(runs, handle, "plan")
    assert (document["status"], document["output"]["bytes"]) == ("completed", len(words) + 2)
    assert title == "planning again (1 of 3): missing in the answer: more"
