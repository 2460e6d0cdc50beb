"""Streamed answers on a real server: early and late readers, and broken streams."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.testing import Cut, json_text, slow, text, tool_call
from tests.support.answer_texts import CHUNK_CHARACTERS, AnswerReader, held_answer, token_streams_of
from tests.support.eventually import eventually
from tests.support.goals import call_node, goal_plan, plan_text
from tests.support.plan_building import plan_of
from tests.support.runs import bare_document, document_of
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server

ANSWER_TEXT = "Oslo has rain today, and Bergen has more of it: take a coat, good shoes, and leave a little earlier."
_COMPARED_EVENT_TYPES = frozenset(EventType.values()) - {
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
}
"""All event types except the types of workflow task events, because the number of workflow tasks varies."""


async def test_readers_receive_the_answer_while_the_model_writes(client: Client, serve_script: ServeScript) -> None:
    release_event = asyncio.Event()
    answer = json_text({"answer": ANSWER_TEXT, "missing": []})
    script = (
        plan_text(call_node("one", "echo", weather="rain")),
        slow(answer, chunk_characters=CHUNK_CHARACTERS, held_after_chunks=6, release_event=release_event),
    )
    async with serve_script(*script) as (_, runs):
        token_streams = token_streams_of(client)
        handle = await runs.start_compiled_plan(goal_plan(runs, "What is the weather?", "echo"))
        early_reader = AnswerReader(token_streams, handle.id)
        await eventually(lambda: early_reader.text != "")
        # The third reader has separate token streams, as a reader in another process has.
        late_reader, separate_reader = (
            AnswerReader(token_streams, handle.id),
            AnswerReader(token_streams_of(client), handle.id),
        )
        # The six chunks start with the JSON before the text of the answer.
        first_part = ANSWER_TEXT[: 6 * CHUNK_CHARACTERS - len('{"answer": "')]
        await eventually(lambda: [late_reader.text, separate_reader.text] == [first_part, first_part])
        release_event.set()
        assert bare_document(await document_of(handle))["output"] == ANSWER_TEXT
        complete_texts = [
            await reader.complete_text(ANSWER_TEXT) for reader in (early_reader, late_reader, separate_reader)
        ]
    assert complete_texts == [ANSWER_TEXT] * 3
    readers = (early_reader, late_reader, separate_reader)
    assert not any(chunk.starts_new_text for reader in readers for chunk in reader.chunks)
    assert [chunk.offset for chunk in early_reader.chunks] == sorted({chunk.offset for chunk in early_reader.chunks})
    assert {(chunk.call_id, chunk.attempt) for chunk in early_reader.chunks[:-1]} == {("answer", 1)}


async def test_text_of_an_agent_whose_result_is_the_output_is_streamed(
    client: Client, serve_script: ServeScript
) -> None:
    release_event = asyncio.Event()
    card = AgentCard(
        name="guide", description="Tells", objective_template="Tell {what}", type="llm", prompt="Tell.", tools=("echo",)
    )
    plan = plan_of({"id": "guide", "agent": "guide", "objective": "Tell of the weather."}, output="{{guide.result}}")
    script = (tool_call("echo", weather="rain"), held_answer(ANSWER_TEXT, release_event, pause_after=4))
    async with serve_script(*script) as (_, runs):
        declaration = agent_declaration(card)
        handle = await runs.start(plan, tools={**runs.tools, declaration.name: declaration})
        reader = AnswerReader(token_streams_of(client), handle.id)
        await eventually(lambda: reader.text == ANSWER_TEXT[: 4 * CHUNK_CHARACTERS])
        release_event.set()
        assert bare_document(await document_of(handle))["output"] == ANSWER_TEXT
        assert await reader.complete_text(ANSWER_TEXT) == ANSWER_TEXT
    assert {chunk.call_id for chunk in reader.chunks if chunk.call_id} == {"guide/turn2"}


@pytest.mark.parametrize("second_answer", [ANSWER_TEXT, "Bergen has sun."])
async def test_next_attempt_continues_or_replaces_a_broken_stream(
    client: Client, serve_script: ServeScript, second_answer: str
) -> None:
    release_event = asyncio.Event()
    script = (
        plan_text(call_node("one", "echo", weather="rain")),
        slow(
            text(ANSWER_TEXT),
            chunk_characters=CHUNK_CHARACTERS,
            held_after_chunks=4,
            cut_after=5,
            cut=Cut.RESET,
            release_event=release_event,
        ),
        text(second_answer),
    )
    async with serve_script(*script) as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "What is the weather?", "echo", max_replans=0))
        reader = AnswerReader(token_streams_of(client), handle.id)
        await eventually(lambda: reader.text == ANSWER_TEXT[: 4 * CHUNK_CHARACTERS])
        release_event.set()
        assert bare_document(await document_of(handle))["output"] == second_answer
        complete_text = await reader.complete_text(second_answer)
    # The reader may receive the fifth chunk before the next attempt starts.
    assert complete_text in (
        [ANSWER_TEXT]
        if second_answer == ANSWER_TEXT
        else [ANSWER_TEXT[: count * CHUNK_CHARACTERS] + second_answer for count in (4, 5)]
    )
    assert [chunk.starts_new_text for chunk in reader.chunks].count(True) == int(second_answer != ANSWER_TEXT)
    assert len(server.calls) == 3


async def test_history_is_the_same_with_and_without_a_reader(client: Client, serve_script: ServeScript) -> None:
    plan = plan_text(call_node("one", "echo", weather="rain"))
    answer = slow(text(ANSWER_TEXT), chunk_characters=CHUNK_CHARACTERS, chunk_delay_s=0.05)
    compared_types = []
    for has_reader in (True, False):
        async with serve_script(plan, answer) as (_, runs):
            handle = await runs.start_compiled_plan(goal_plan(runs, "What is the weather?", "echo", max_replans=0))
            reader = AnswerReader(token_streams_of(client), handle.id) if has_reader else None
            await document_of(handle)
            if reader is not None:
                assert await reader.complete_text(ANSWER_TEXT) == ANSWER_TEXT
                assert len(reader.chunks) > 1
            all_event_types = [event.event_type for event in (await handle.fetch_history()).events]
            compared_types.append(sorted(kind for kind in all_event_types if kind in _COMPARED_EVENT_TYPES))
    assert compared_types[0] == compared_types[1]
