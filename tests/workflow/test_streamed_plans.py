"""Plans that run while a model still writes them: what starts early, what waits, and what breaks off."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent

from dagwright.activities.plan_stream import BATCH_S
from dagwright.core.boundary import wire
from dagwright.protocol.planned_nodes import planned_message
from dagwright.testing import slow, step, text
from tests.support.eventually import eventually
from tests.support.goals import call, checked_document, goal, plan_text
from tests.support.people import answer, view_of, wait_for_requests
from tests.support.runs import Document, Handle
from tests.support.tools import Bench
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server

_PIECE = 8
"""Characters of one piece of a stream."""
_CLOCKS_S = 0.01
"""Maximum difference between the server's and the worker's clock in a quarter of a second."""


def held_answer(words: str, released: asyncio.Event, *, after: str = "", share: float = 1.0) -> Any:
    """Return an answer that stops behind a part of its text, or behind a share of it, until it is released."""
    end = words.index(after) + len(after) if after else int(len(words) * share)
    return slow(text(words), characters=_PIECE, held_after=-(-end // _PIECE), released=released)


def cut(words: str, *, after: str) -> Any:
    """Return an answer that breaks off soon behind a part of its text."""
    end = words.index(after) + len(after)
    return slow(text(words), characters=_PIECE, cut_after=-(-end // _PIECE), each_s=0.01)


def reported_nodes(document: Document) -> Sequence[str]:
    """Return the ids of the nodes of a run, in order."""
    return [*document["nodes"]]


def results(document: Document, *names: str) -> Mapping[str, Any]:
    """Return the results of some nodes."""
    return {name: document["nodes"][name]["result"] for name in names}


async def updates_of(handle: Handle) -> list[Any]:
    """Return the messages in which nodes came, in order."""
    signals = [event.workflow_execution_signaled_event_attributes for event in await update_events(handle)]
    return [json.loads(signal.input.payloads[0].data) for signal in signals]


async def update_times(handle: Handle) -> list[float]:
    """Return when these messages came, in seconds."""
    return [event.event_time.ToNanoseconds() / 1e9 for event in await update_events(handle)]


async def update_events(handle: Handle) -> list[HistoryEvent]:
    """Return the events of these messages, in order."""
    history = await handle.fetch_history()
    return [
        event
        for event in history.events
        if event.workflow_execution_signaled_event_attributes.signal_name == wire.SIGNAL_PLANNED
    ]


async def test_first_tool_starts_before_two_fifths_of_the_plan_are_written(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    plan = plan_text(*[call(f"n{place}", "hold", name=f"n{place}") for place in range(6)])
    async with serve_script(held_answer(plan, released, share=0.4), "Done.", bench=bench) as (server, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "hold"))
        await eventually(lambda: "n0" in bench.entered)
        assert server.calls[0].is_streamed
        released.set()
        for place in range(6):
            bench.open(f"n{place}")
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert sorted(reported_nodes(document)) == sorted(["plan", "read", *[f"n{place}" for place in range(6)], "answer"])
    assert sorted(bench.entered) == [f"n{place}" for place in range(6)]


async def test_node_with_side_effects_waits_until_the_plan_is_complete(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    change = call("change", "change", name="world")
    plan = plan_text(
        change, call("order", "order", name="x", choices=["b"]), call("look", "hold", name="look"), title="t" * 40
    )
    async with serve_script(held_answer(plan, released, after='"name": "look"}}'), "Done.", bench=bench) as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Change it.", "change", "order", "hold"))
        await eventually(lambda: bench.entered == ["look"])
        assert [[node["id"] for node in message["nodes"]] for message in await updates_of(handle)] == [["look"]]
        assert not bench.effects
        released.set()
        bench.open("look")
        await wait_for_requests(runs.client, handle.id, "change", "order")
        await answer(handle, "change", {"approved": True})
        await handle.signal(wire.CANCEL_NODE, {"node_id": "order"})
        document = await checked_document(runs, handle)
    assert reported_nodes(document) == ["plan", "read", "look", "change", "order", "answer"]
    assert len(bench.effects["world"]) == 1


async def test_invalid_node_in_the_middle_is_returned_and_accepted_nodes_stay(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    first_node = call("a", "hold", name="a")
    invalid_text = plan_text(first_node, call("b", "fly"), call("c", "echo", of="{{a.result}}"))
    last = call("d", "echo", of="{{a.result}}")
    repaired = plan_text(call("b", "echo", of="{{c.result}}"), call("c", "echo", of="{{a.result}}"), last)
    async with serve_script(
        held_answer(invalid_text, released, after=json.dumps(first_node)), repaired, "Done.", bench=bench
    ) as (
        server,
        runs,
    ):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "hold", "echo"))
        await eventually(lambda: bench.entered == ["a"])
        released.set()
        await eventually(lambda: len(server.calls) == 2)
        bench.open("a")
        document = await checked_document(runs, handle)
    repair = server.calls[1]
    assert "This plan cannot be run:" in repair.text
    assert '"at": "/nodes/1/tool"' in repair.text
    assert json.dumps(first_node) in repair.text.partition("have been started already")[2]
    assert (document["status"], document["output"]) == ("completed", "Done.")
    assert bench.entered == ["a"]
    assert results(document, "a", "d") == {"a": "a", "d": {"of": "a"}}
    assert document["nodes"]["b"]["result"]["of"] == {"of": "a"}


async def test_interrupted_stream_continues_with_the_accepted_nodes(serve_script: Scripted) -> None:
    bench = Bench()
    first_node = call("a", "hold", name="a")
    broken = plan_text(first_node, *[call(f"long{place}", "echo", words="x" * 600) for place in range(3)])
    rest = plan_text(call("b", "echo", of="{{a.result}}"))
    async with serve_script(cut(broken, after="x" * 500), rest, "Done.", bench=bench) as (server, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "hold", "echo"))
        await eventually(lambda: len(server.calls) == 2)
        bench.open("a")
        document = await checked_document(runs, handle)
        messages = await updates_of(handle)
    assert [(m["attempt"], m["from"], [n["id"] for n in m["nodes"]]) for m in messages] == [
        (1, 0, ["a"]),
        (2, 0, []),
        *[(2, 0, ["b"]) for m in messages[2:]],
    ]
    last = server.calls[1].messages[-1]["content"]
    assert last.startswith("Your last answer ended before the plan was complete.\nThese nodes")
    assert json.dumps(first_node) in last
    assert (document["status"], document["output"], bench.entered) == ("completed", "Done.", ["a"])
    assert reported_nodes(document) == ["plan", "read", "a", "b", "answer"]


async def test_doubles_and_messages_of_earlier_attempts_have_no_effect(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    first_node = call("a", "hold", name="a")
    plan = plan_text(first_node, call("b", "echo"))
    async with serve_script(held_answer(plan, released, after=json.dumps(first_node)), "Done.", bench=bench) as (
        _,
        runs,
    ):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "hold", "echo"))
        await eventually(lambda: bench.entered == ["a"])
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 1, offset=0, nodes=[first_node]))
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 2, offset=0, nodes=[]))
        late = call("late", "echo")
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 1, offset=1, nodes=[late]))
        released.set()
        bench.open("a")
        document = await checked_document(runs, handle)
    assert reported_nodes(document) == ["plan", "read", "a", "b", "answer"]
    assert (document["status"], document.get("notes"), bench.entered) == ("completed", None, ["a"])


_REFUSED: list[tuple[Any, str]] = [
    (
        planned_message("plan", 1, offset=0, nodes=[call("w", "change", name="x")]),
        "must wait until the plan is complete",
    ),
    (planned_message("plan", 1, offset=0, nodes=[call("w", "call_model")]), "must wait until the plan is complete"),
    (planned_message("plan", 1, offset=0, nodes=[call("w", "echo", of="{{plan.result}}")]), "not a node of the plan"),
    (
        planned_message("plan", 1, offset=0, nodes=[call("answer", "echo")]),
        "the id 'answer' is reserved for nodes that the run adds",
    ),
    (planned_message("read", 1, offset=0, nodes=[call("w", "echo")]), "does not write a plan of this run"),
    (planned_message("plan", 1, offset=0, nodes=[call("w", "fly")]), "unknown_tool"),
    ({"call": "plan"}, "'attempt' must be an integer of at least 1"),
    ("nodes", "must be an object"),
]
"""Message of a stream -> a part of the reason for which it is rejected."""


async def test_message_that_brings_what_must_not_start_is_refused(serve_script: Scripted) -> None:
    gates = [asyncio.Event() for _ in _REFUSED]
    plan = plan_text(call("a", "echo"))
    script = [each for gate in gates for each in (step(plan, released=gate), "Done.")]
    async with serve_script(*script) as (server, runs):
        for gate, (message, why) in zip(gates, _REFUSED, strict=True):
            called = len(server.calls)
            handle = await runs.start_compiled_plan(goal(runs, "Look.", "change", "echo"))
            await eventually(lambda called=called: len(server.calls) == called + 1)  # type: ignore[misc] # bound at once
            await handle.signal(wire.SIGNAL_PLANNED, message)
            gate.set()
            document = await checked_document(runs, handle)
            assert [note["code"] for note in document["notes"]] == ["refused"], why
            assert why in document["notes"][0]["message"]
            assert reported_nodes(document) == ["plan", "read", "a", "answer"]


async def test_nothing_starts_before_the_plan_is_approved(serve_script: Scripted) -> None:
    async with serve_script(plan_text(call("a", "echo")), "Done.") as (server, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "echo", approve_plan=True))
        await wait_for_requests(runs.client, handle.id, "approve")
        assert (await updates_of(handle), server.calls[0].is_streamed) == ([], False)
        await handle.signal(wire.SIGNAL_PLANNED, planned_message("plan", 1, offset=0, nodes=[call("a", "echo")]))
        await answer(handle, "approve", {"approved": True})
        document = await checked_document(runs, handle)
    assert [note["code"] for note in document["notes"]] == ["refused"]
    assert reported_nodes(document) == ["plan", "read", "approve", "a", "answer"]


async def test_a_stream_wakes_a_run_by_batches_and_not_by_nodes(serve_script: Scripted) -> None:
    released = asyncio.Event()
    names = [f"n{place}" for place in range(40)]
    plan = plan_text(*[call(name, "echo") for name in names], title="t" * 40)
    end = -(-plan.index("]") // _PIECE)
    paced = slow(text(plan), characters=_PIECE, each_s=0.005, held_after=end + 1, released=released)
    async with serve_script(paced, "Done.") as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "echo"))

        async def all_came() -> bool:
            return [node["id"] for message in await updates_of(handle) for node in message["nodes"]] == names

        await eventually(all_came)
        released.set()
        document = await checked_document(runs, handle)
        messages = await updates_of(handle)
        times = await update_times(handle)
    assert [message["from"] for message in messages] == [
        sum(len(message["nodes"]) for message in messages[:place]) for place in range(len(messages))
    ]
    # Their number depends on the speed of the machine; their minimum distance does not.
    assert len(messages) > 1
    assert min(later - at for at, later in pairwise(times)) >= BATCH_S - _CLOCKS_S
    assert reported_nodes(document) == ["plan", "read", *names, "answer"]


async def test_call_that_a_person_repeats_finishes_the_plan_of_the_failed_one(serve_script: Scripted) -> None:
    bench, released = Bench(), asyncio.Event()
    first_node = call("a", "hold", name="a")
    broken = plan_text(first_node, call("long", "echo", words="x" * 600))
    filtered = replace(held_answer(broken, released, after=json.dumps(first_node)), finish_reason="content_filter")
    rest = plan_text(call("b", "echo", of="{{a.result}}"))
    async with serve_script(filtered, rest, "Done.", bench=bench) as (server, runs):
        handle = await runs.start_compiled_plan(goal(runs, "Look.", "hold", "echo"))

        async def has_failed() -> bool:
            return bool((await view_of(runs, handle)).document()["nodes"]["plan"]["status"] == "failed")

        await eventually(lambda: bench.entered == ["a"])
        released.set()
        await eventually(has_failed)
        await handle.execute_update(wire.RETRY_NODE, {"node_id": "plan"})
        await eventually(lambda: len(server.calls) == 2)
        bench.open("a")
        document = await checked_document(runs, handle)
        messages = await updates_of(handle)
    assert [(m["call"], m["attempt"], [n["id"] for n in m["nodes"]]) for m in messages][:2] == [
        ("plan", 1, ["a"]),
        ("plan#2", 1, []),
    ]
    last = server.calls[1].messages[-1]["content"]
    assert last.startswith("Your last answer ended before the plan was complete.\nThese nodes")
    assert json.dumps(first_node) in last
    assert [received.metadata["node_id"] for received in server.calls] == ["plan", "plan", "answer"]
    assert (document["status"], document["output"], bench.entered) == ("completed", "Done.", ["a"])
    assert document["nodes"]["plan"]["result"]["accepted"][0] == first_node
    assert reported_nodes(document) == ["plan", "read", "a", "b", "answer"]
