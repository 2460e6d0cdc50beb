"""Streamed answers on a real server: early and late readers, and pieces that are lost on the way."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.testing import Cut, json_text, slow, text, tool_call
from tests.support.answer_texts import PIECE, Reader, held_answer, texts_of
from tests.support.eventually import eventually
from tests.support.goals import call, goal, plan_text
from tests.support.runs import bare, document_of
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server

WORDS = "Oslo has rain today, and Bergen has more of it: take a coat, good shoes, and leave a little earlier."
_OF_CALLS_AND_MESSAGES = frozenset(EventType.values()) - {
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
}
"""Without workflow tasks: the number of results that one workflow task receives varies."""


async def test_answer_to_a_request_is_read_while_it_is_written(client: Client, serve_script: Scripted) -> None:
    released = asyncio.Event()
    answer = json_text({"answer": WORDS, "missing": []})
    script = (
        plan_text(call("one", "echo", said="rain")),
        slow(answer, characters=PIECE, held_after=6, released=released),
    )
    async with serve_script(*script) as (_, runs):
        texts = texts_of(client)
        handle = await runs.start_compiled_plan(goal(runs, "What is the weather?", "echo"))
        early = Reader(texts, handle.id)
        await eventually(lambda: early.text != "")
        late, elsewhere = Reader(texts, handle.id), Reader(texts_of(client), handle.id)
        started = WORDS[: 6 * PIECE - len('{"answer": "')]
        await eventually(lambda: [late.text, elsewhere.text] == [started, started])
        released.set()
        document = bare(await document_of(handle))
        assert document["output"] == WORDS
        entries = [await each.end(WORDS) for each in (early, late, elsewhere)]
    assert entries == [WORDS] * 3
    assert not any(piece.restarts for each in (early, late, elsewhere) for piece in each.pieces)
    assert [piece.offset for piece in early.pieces] == sorted({piece.offset for piece in early.pieces})
    assert {(piece.node, piece.attempt) for piece in early.pieces[:-1]} == {("answer", 1)}


async def test_text_of_an_agent_is_streamed_if_it_is_the_output_of_the_plan(
    client: Client, serve_script: Scripted
) -> None:
    released = asyncio.Event()
    card = AgentCard(
        name="guide", description="Tells", objective_template="Tell {what}", type="llm", prompt="Tell.", tools=("echo",)
    )
    plan = {
        "nodes": [{"id": "guide", "agent": "guide", "objective": "Tell of the weather."}],
        "output": "{{guide.result}}",
    }
    script = (tool_call("echo", said="rain"), held_answer(WORDS, released, after=4))
    async with serve_script(*script) as (_, runs):
        declared = agent_declaration(card)
        compiled = prepare_plan(check_plan(plan, {**runs.tools, declared.name: declared}), {})
        handle = await runs.start_compiled_plan(compiled)
        reader = Reader(texts_of(client), handle.id)
        await eventually(lambda: reader.text == WORDS[: 4 * PIECE])
        released.set()
        assert bare(await document_of(handle))["output"] == WORDS
        assert await reader.end(WORDS) == WORDS
    assert {piece.node for piece in reader.pieces if piece.node} == {"guide/turn2"}


@pytest.mark.parametrize("again", [WORDS, "Bergen has sun."])
async def test_an_attempt_after_a_broken_one_continues(client: Client, serve_script: Scripted, again: str) -> None:
    released = asyncio.Event()
    script = (
        plan_text(call("one", "echo", said="rain")),
        slow(text(WORDS), characters=PIECE, held_after=4, cut_after=5, cut=Cut.RESET, released=released),
        text(again),
    )
    async with serve_script(*script) as (server, runs):
        handle = await runs.start_compiled_plan(goal(runs, "What is the weather?", "echo", replans=0))
        reader = Reader(texts_of(client), handle.id)
        await eventually(lambda: reader.text == WORDS[: 4 * PIECE])
        released.set()
        assert bare(await document_of(handle))["output"] == again
        result = await reader.end(again)
    # The fifth piece may be seen before the next attempt sends something.
    assert result in ([WORDS] if again == WORDS else [WORDS[: count * PIECE] + again for count in (4, 5)])
    assert [piece.restarts for piece in reader.pieces].count(True) == int(again != WORDS)
    assert len(server.calls) == 3


async def test_history_is_the_same_with_and_without_a_reader(client: Client, serve_script: Scripted) -> None:
    plan = plan_text(call("one", "echo", said="rain"))
    answer = slow(text(WORDS), characters=PIECE, each_s=0.05)
    kinds = []
    for is_parsed in (True, False):
        async with serve_script(plan, answer) as (_, runs):
            handle = await runs.start_compiled_plan(goal(runs, "What is the weather?", "echo", replans=0))
            reader = Reader(texts_of(client), handle.id) if is_parsed else None
            await document_of(handle)
            if reader is not None:
                assert await reader.end(WORDS) == WORDS
                assert len(reader.pieces) > 1
            calls = [event.event_type for event in (await handle.fetch_history()).events]
            kinds.append(sorted(call for call in calls if call in _OF_CALLS_AND_MESSAGES))
    assert kinds[0] == kinds[1]
