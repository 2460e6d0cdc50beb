"""Plans that run while the model writes them: nodes that start early, nodes that wait, and interrupted streams."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent

from dagwright.activities.plan_stream import MESSAGE_INTERVAL_S
from dagwright.core.boundary import wire
from dagwright.protocol.planned_nodes import planned_message
from dagwright.testing import ReceivedCall, slow, step, text
from tests.support.answer_texts import CHUNK_CHARACTERS, held_answer
from tests.support.eventually import eventually
from tests.support.goals import call_node, checked_document, goal_plan, plan_text
from tests.support.people import answer, wait_for_requests
from tests.support.run_views import wait_for_node
from tests.support.runs import Document, Handle
from tests.support.tools import CallHarness
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server


_CLOCK_DIFFERENCE_S = 0.01
"""Maximum drift between the clocks of the server and the worker in a quarter of a second."""


def interrupted_answer(content: str, *, last_text: str) -> Any:
    """Return an answer whose stream ends with the chunk that contains the end of `last_text`."""
    end_index = content.index(last_text) + len(last_text)
    return slow(
        text(content),
        chunk_characters=CHUNK_CHARACTERS,
        cut_after=-(-end_index // CHUNK_CHARACTERS),
        chunk_delay_s=0.01,
    )


def node_ids_of(document: Document) -> Sequence[str]:
    return [*document["nodes"]]


async def read_node_messages(handle: Handle) -> list[Any]:
    """Return the contents of the signals that delivered nodes, in order."""
    signals = [event.workflow_execution_signaled_event_attributes for event in await read_signal_events(handle)]
    return [json.loads(signal.input.payloads[0].data) for signal in signals]


async def read_signal_events(handle: Handle) -> list[HistoryEvent]:
    """Return the events of the signals that delivered nodes, in order."""
    history = await handle.fetch_history()
    return [
        event
        for event in history.events
        if event.workflow_execution_signaled_event_attributes.signal_name == wire.SIGNAL_PLANNED
    ]


def assert_has_continuation_prompt(model_call: ReceivedCall, accepted_node: Document) -> None:
    prompt = model_call.messages[-1]["content"]
    assert prompt.startswith("Your last answer ended before the plan was complete.\nThese nodes")
    assert json.dumps(accepted_node) in prompt


async def test_first_node_starts_when_two_fifths_of_the_plan_are_written(serve_script: ServeScript) -> None:
    harness, release_event = CallHarness(), asyncio.Event()
    plan = plan_text(*[call_node(f"n{number}", "hold", name=f"n{number}") for number in range(6)])
    async with serve_script(
        held_answer(plan, release_event, pause_after=len(plan) * 2 // 5 // CHUNK_CHARACTERS), "Done.", harness=harness
    ) as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "hold"))
        await eventually(lambda: "n0" in harness.entered)
        assert server.calls[0].is_streamed
        release_event.set()
        for number in range(6):
            harness.open(f"n{number}")
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert sorted(node_ids_of(document)) == sorted(["plan", "read", *[f"n{number}" for number in range(6)], "answer"])
    assert sorted(harness.entered) == [f"n{number}" for number in range(6)]


async def test_nodes_with_side_effects_start_after_the_complete_plan(serve_script: ServeScript) -> None:
    harness, release_event = CallHarness(), asyncio.Event()
    plan = plan_text(
        call_node("change", "change", name="world"),
        call_node("order", "order", name="x", choices=["b"]),
        call_node("look", "hold", name="look"),
        title="t" * 40,
    )
    async with serve_script(
        held_answer(plan, release_event, pause_after='"name": "look"}}'), "Done.", harness=harness
    ) as (
        _,
        runs,
    ):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Change it.", "change", "order", "hold"))
        await eventually(lambda: harness.entered == ["look"])
        assert [[node["id"] for node in message["nodes"]] for message in await read_node_messages(handle)] == [["look"]]
        assert not harness.effects
        release_event.set()
        harness.open("look")
        await wait_for_requests(runs.client, handle.id, "change", "order")
        await answer(handle, "change", {"approved": True})
        await handle.signal(wire.CANCEL_NODE, {"node_id": "order"})
        document = await checked_document(runs, handle)
    assert node_ids_of(document) == ["plan", "read", "look", "change", "order", "answer"]
    assert len(harness.effects["world"]) == 1


async def test_repaired_plan_keeps_the_nodes_before_the_invalid_node(serve_script: ServeScript) -> None:
    harness, release_event = CallHarness(), asyncio.Event()
    first_node = call_node("a", "hold", name="a")
    invalid_plan = plan_text(first_node, call_node("b", "fly"), call_node("c", "echo", value="{{a.result}}"))
    last_node = call_node("d", "echo", value="{{a.result}}")
    repaired_plan = plan_text(
        call_node("b", "echo", value="{{c.result}}"), call_node("c", "echo", value="{{a.result}}"), last_node
    )
    script = (held_answer(invalid_plan, release_event, pause_after=json.dumps(first_node)), repaired_plan, "Done.")
    async with serve_script(*script, harness=harness) as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "hold", "echo"))
        await eventually(lambda: harness.entered == ["a"])
        release_event.set()
        await eventually(lambda: len(server.calls) == 2)
        harness.open("a")
        document = await checked_document(runs, handle)
    repair_call = server.calls[1]
    assert "This plan cannot be run:" in repair_call.text
    assert '"at": "/nodes/1/tool"' in repair_call.text
    assert json.dumps(first_node) in repair_call.text.partition("have been started already")[2]
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert harness.entered == ["a"]
    expected_results = {"a": "a", "b": {"value": {"value": "a"}}, "d": {"value": "a"}}
    assert {node_id: document["nodes"][node_id]["result"] for node_id in expected_results} == expected_results


async def test_interrupted_stream_continues_with_the_accepted_nodes(serve_script: ServeScript) -> None:
    harness = CallHarness()
    first_node = call_node("a", "hold", name="a")
    interrupted_plan = plan_text(
        first_node, *[call_node(f"long{number}", "echo", words="x" * 600) for number in range(3)]
    )
    second_plan = plan_text(call_node("b", "echo", value="{{a.result}}"))
    script = (interrupted_answer(interrupted_plan, last_text="x" * 500), second_plan, "Done.")
    async with serve_script(*script, harness=harness) as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "hold", "echo"))
        await eventually(lambda: len(server.calls) == 2)
        harness.open("a")
        document = await checked_document(runs, handle)
        messages = await read_node_messages(handle)
    assert [
        (message["attempt"], message["from"], [node["id"] for node in message["nodes"]]) for message in messages
    ] == [(1, 0, ["a"]), (2, 0, []), *[(2, 0, ["b"]) for _ in messages[2:]]]
    assert_has_continuation_prompt(server.calls[1], first_node)
    assert (document["status"], document["output"], harness.entered) == ("completed", "Done.", ["a"])
    assert node_ids_of(document) == ["plan", "read", "a", "b", "answer"]


async def test_duplicate_messages_and_messages_of_earlier_attempts_have_no_effect(serve_script: ServeScript) -> None:
    harness, release_event = CallHarness(), asyncio.Event()
    first_node = call_node("a", "hold", name="a")
    plan = plan_text(first_node, call_node("b", "echo"))
    script = (held_answer(plan, release_event, pause_after=json.dumps(first_node)), "Done.")
    async with serve_script(*script, harness=harness) as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "hold", "echo"))
        await eventually(lambda: harness.entered == ["a"])
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 1, offset=0, nodes=[first_node]))
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 2, offset=0, nodes=[]))
        late_node = call_node("late", "echo")
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 1, offset=1, nodes=[late_node]))
        release_event.set()
        harness.open("a")
        document = await checked_document(runs, handle)
    assert node_ids_of(document) == ["plan", "read", "a", "b", "answer"]
    assert (document["status"], document.get("notes"), harness.entered) == ("completed", None, ["a"])


_REJECTED_MESSAGES: list[tuple[Any, str]] = [
    (
        planned_message("plan", 1, offset=0, nodes=[call_node("w", "change", name="x")]),
        "must wait until the plan is complete",
    ),
    (
        planned_message("plan", 1, offset=0, nodes=[call_node("w", "call_model")]),
        "must wait until the plan is complete",
    ),
    (
        planned_message("plan", 1, offset=0, nodes=[call_node("w", "echo", value="{{plan.result}}")]),
        "not a node of the plan",
    ),
    (
        planned_message("plan", 1, offset=0, nodes=[call_node("answer", "echo")]),
        "the id 'answer' is reserved for nodes that the run adds",
    ),
    (planned_message("read", 1, offset=0, nodes=[call_node("w", "echo")]), "does not write a plan of this run"),
    (planned_message("plan", 1, offset=0, nodes=[call_node("w", "fly")]), "unknown_tool"),
    ({"call": "plan"}, "'attempt' must be an integer of at least 1"),
    ("nodes", "must be an object"),
]
"""Pairs of a message and a part of the reason for its rejection."""


async def test_message_with_nodes_that_cannot_start_is_rejected_with_the_reason(serve_script: ServeScript) -> None:
    release_events = [asyncio.Event() for _ in _REJECTED_MESSAGES]
    plan = plan_text(call_node("a", "echo"))
    script = [
        response for release_event in release_events for response in (step(plan, release_event=release_event), "Done.")
    ]
    async with serve_script(*script) as (server, runs):
        for release_event, (message, reason) in zip(release_events, _REJECTED_MESSAGES, strict=True):
            call_count = len(server.calls)
            handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "change", "echo"))
            await eventually(lambda call_count=call_count: len(server.calls) == call_count + 1)  # type: ignore[misc] # called in this iteration
            await handle.signal(wire.SIGNAL_PLANNED, message)
            release_event.set()
            document = await checked_document(runs, handle)
            assert [note["code"] for note in document["notes"]] == ["message_rejected"], reason
            assert reason in document["notes"][0]["message"]
            assert node_ids_of(document) == ["plan", "read", "a", "answer"]


async def test_no_node_starts_before_the_plan_is_approved(serve_script: ServeScript) -> None:
    async with serve_script(plan_text(call_node("a", "echo")), "Done.") as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "echo", approve_plan=True))
        await wait_for_requests(runs.client, handle.id, "approve")
        assert (await read_node_messages(handle), server.calls[0].is_streamed) == ([], False)
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 1, offset=0, nodes=[call_node("a", "echo")]))
        await answer(handle, "approve", {"approved": True})
        document = await checked_document(runs, handle)
    assert [note["code"] for note in document["notes"]] == ["message_rejected"]
    assert node_ids_of(document) == ["plan", "read", "approve", "a", "answer"]


async def test_stream_signals_a_run_in_batches_with_a_minimum_interval(serve_script: ServeScript) -> None:
    release_event = asyncio.Event()
    node_ids = [f"n{number}" for number in range(40)]
    plan = plan_text(*[call_node(node_id, "echo") for node_id in node_ids], title="t" * 40)
    last_chunk = -(-plan.index("]") // CHUNK_CHARACTERS)
    paced_answer = slow(
        text(plan),
        chunk_characters=CHUNK_CHARACTERS,
        chunk_delay_s=0.005,
        held_after_chunks=last_chunk + 1,
        release_event=release_event,
    )
    async with serve_script(paced_answer, "Done.") as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "echo"))

        async def has_all_nodes() -> bool:
            return [node["id"] for message in await read_node_messages(handle) for node in message["nodes"]] == node_ids

        await eventually(has_all_nodes)
        release_event.set()
        document = await checked_document(runs, handle)
        messages = await read_node_messages(handle)
        signal_times_s = [event.event_time.ToNanoseconds() / 1e9 for event in await read_signal_events(handle)]
    expected = [sum(len(message["nodes"]) for message in messages[:number]) for number in range(len(messages))]
    assert [message["from"] for message in messages] == expected
    # The number of signals depends on the speed of the machine, but their minimum interval does not.
    assert len(messages) > 1
    assert (
        min(later - earlier for earlier, later in pairwise(signal_times_s)) >= MESSAGE_INTERVAL_S - _CLOCK_DIFFERENCE_S
    )
    assert node_ids_of(document) == ["plan", "read", *node_ids, "answer"]


async def test_manual_retry_of_a_failed_planner_call_continues_its_plan(serve_script: ServeScript) -> None:
    harness, release_event = CallHarness(), asyncio.Event()
    first_node = call_node("a", "hold", name="a")
    interrupted_plan = plan_text(first_node, call_node("long", "echo", words="x" * 600))
    filtered_answer = replace(
        held_answer(interrupted_plan, release_event, pause_after=json.dumps(first_node)), finish_reason="content_filter"
    )
    second_plan = plan_text(call_node("b", "echo", value="{{a.result}}"))
    async with serve_script(filtered_answer, second_plan, "Done.", harness=harness) as (server, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Look.", "hold", "echo"))
        await eventually(lambda: harness.entered == ["a"])
        release_event.set()
        await wait_for_node(runs, handle, "plan", "failed")
        await handle.execute_update(wire.RETRY_NODE, {"node_id": "plan"})
        await eventually(lambda: len(server.calls) == 2)
        harness.open("a")
        document = await checked_document(runs, handle)
        messages = await read_node_messages(handle)
    assert [(message["call"], message["attempt"], [node["id"] for node in message["nodes"]]) for message in messages][
        :2
    ] == [("plan", 1, ["a"]), ("plan#2", 1, [])]
    assert_has_continuation_prompt(server.calls[1], first_node)
    assert [model_call.metadata["node_id"] for model_call in server.calls] == ["plan", "plan", "answer"]
    assert (document["status"], document["output"], harness.entered) == ("completed", "Done.", ["a"])
    assert document["nodes"]["plan"]["result"]["accepted_nodes"][0] == first_node
    assert node_ids_of(document) == ["plan", "read", "a", "b", "answer"]
