"""Retries, timeouts, idempotency keys and failures of tools with different effects, and the contents of a history."""

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.activities.call_starts import CallStarts
from dagwright.protocol.idempotency import idempotency_key
from dagwright.settings import Settings
from dagwright.tools import RetryLater, ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs, bare_document, checked_runs, completed_node, document_of, events_of, failed_node
from tests.support.tools import CallHarness
from tests.workflow.building import Gate

pytestmark = pytest.mark.server

_FAST_RETRY = {"max_attempts": 3, "first_delay": "10ms"}


async def test_failed_attempts_are_retried_up_to_the_maximum(runs: Runs) -> None:
    nodes = [
        tool_node("completes_at_third_attempt", "flaky", arguments={"succeeds_at": 3}, retry=_FAST_RETRY),
        tool_node("needs_fourth_attempt", "flaky", arguments={"succeeds_at": 4}, retry=_FAST_RETRY),
        tool_node("single_attempt", "flaky", arguments={"succeeds_at": 2}, retry={"max_attempts": 1}),
        tool_node("not_retryable", "fail", retry=_FAST_RETRY),
        # The server rejects a first delay above the maximum delay, so the run must shorten the first delay.
        tool_node(
            "shortened",
            "flaky",
            arguments={"succeeds_at": 3},
            retry={**_FAST_RETRY, "first_delay": "1h", "max_delay": "10ms"},
        ),
    ]
    assert (await runs.run({"nodes": nodes}))["nodes"] == {
        "completes_at_third_attempt": completed_node(3, attempts=3),
        "needs_fourth_attempt": failed_node("tool_failed: RuntimeError: attempt 3", attempts=3),
        "single_attempt": failed_node("tool_failed: RuntimeError: attempt 1"),
        "not_retryable": failed_node("tool_failed: no"),
        "shortened": completed_node(3, attempts=3),
    }


async def test_retry_delay_of_the_service_overrides_the_delay_of_the_plan(runs: Runs) -> None:
    # With the plan's delay of an hour, the run would not end within the test.
    node = tool_node("busy", "busy", arguments={"succeeds_at": 3}, retry={"first_delay": "1h", "max_attempts": 3})
    assert (await runs.run({"nodes": [node]}))["nodes"] == {"busy": completed_node(3, attempts=3)}


async def test_idempotency_key_is_the_same_for_every_attempt(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    def keyed_node(node_id: str, **fields: Any) -> dict[str, Any]:
        arguments = {"name": f"{unique_name} {node_id}", "succeeds_at": 3}
        return {"id": node_id, "tool": "return_key", "arguments": arguments, "retry": _FAST_RETRY, **fields}

    plan = plan_of(
        keyed_node("plain"),
        {**keyed_node("each"), "for_each": ["x"], "key": "{{item}}"},
        {"id": "sub", "plan": {"nodes": [keyed_node("inner")]}},
    )
    handle = await runs.start(plan)
    assert (await document_of(handle))["status"] == "completed"
    execution_id = handle.first_execution_run_id
    assert execution_id is not None
    paths = {
        "plain": [["node", "plain"]],
        "each": [["node", "each"], ["item", "x"]],
        "inner": [["node", "sub"], ["node", "inner"]],
    }
    expected = {name: [idempotency_key(execution_id, path)] * 3 for name, path in paths.items()}
    assert {name: harness.effects[f"{unique_name} {name}"] for name in paths} == expected


async def test_write_is_not_retried(runs: Runs, harness: CallHarness, unique_name: str) -> None:
    nodes = [
        call_node("default", "write", name=f"{unique_name} default", error="broke"),
        tool_node(
            "with_retry", "write", arguments={"name": f"{unique_name} with_retry", "error": "broke"}, retry=_FAST_RETRY
        ),
        tool_node("slow", "hold_write", arguments={"name": f"{unique_name} slow"}, timeout="2s", retry=_FAST_RETRY),
    ]
    document = await runs.run({"nodes": nodes})
    harness.open(f"{unique_name} slow")
    outcome = "outcome unknown: it took over 2 s, so hold_write may or may not have made its change"
    assert document["nodes"] == {
        "default": failed_node("tool_failed: RuntimeError: broke"),
        "with_retry": failed_node("tool_failed: RuntimeError: broke"),
        "slow": failed_node(f"outcome_unknown: {outcome}"),
    }
    assert [len(harness.effects[f"{unique_name} {name}"]) for name in ("default", "with_retry", "slow")] == [1, 1, 1]


async def test_write_that_times_out_before_its_start_is_not_called(
    runs: Runs, harness: CallHarness, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_record(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(CallStarts, "record", never_record)
    node = tool_node("w", "hold_write", arguments={"name": unique_name}, timeout="1s", retry=_FAST_RETRY)
    document = await runs.run({"nodes": [node]})
    message = "hold_write was not called: it took over 1 s before the call started, so nothing was changed"
    assert document["nodes"] == {"w": failed_node(f"not_started: {message}")}
    assert harness.effects[unique_name] == []


async def test_read_that_times_out_is_retried_and_then_fails(runs: Runs, gate: Gate) -> None:
    node = {
        **hold_node("slow", gate.name, timeout="1s"),
        **{"heartbeat": "1s", "retry": {"max_attempts": 2, "first_delay": "10ms"}},
    }
    document = await runs.run({"nodes": [node]})
    gate.open()
    slow_node = document["nodes"]["slow"]
    expected = ("failed", 2, "timeout")
    assert (slow_node["status"], slow_node["attempts"], slow_node["error"].partition(":")[0]) == expected
    await eventually(lambda: gate.call_count == 2)


async def test_history_has_the_ids_titles_timeouts_and_priorities_of_the_plan(runs: Runs) -> None:
    plan = plan_of(
        tool_node("mail", "echo", title="Fetch the mail of Sarah", priority=1, timeout="30s"),
        tool_node("each", "echo", for_each=[1], key="n{{item}}"),
        tool_node("order", "echo", title="Fetch each order", for_each=[1], key="{{item}}7"),
    )
    handle = await runs.start(plan)
    document = await document_of(handle)
    scheduled_events = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    calls = []
    for event in scheduled_events:
        attributes = event.activity_task_scheduled_event_attributes
        summary = event.user_metadata.summary.data.decode()
        timeout = attributes.start_to_close_timeout.ToTimedelta()
        priority = attributes.priority.priority_key
        calls.append((attributes.activity_id, attributes.activity_type.name, summary, timeout, priority))
    assert calls == [
        ("mail", "echo", '"Fetch the mail of Sarah"', timedelta(seconds=30), 1),
        ("each[n1]", "echo", '"each[n1]"', timedelta(seconds=60), 3),
        ("order[17]", "echo", '"Fetch each order [17]"', timedelta(seconds=60), 3),
    ]
    assert bare_document(document)["status"] == "completed"


async def test_heartbeats_keep_a_long_call_alive_and_pass_details_to_the_next_attempt(
    client: Client, tmp_path: Path
) -> None:
    @tool(effects="read")
    def slow() -> int:
        context().wait_for_cancellation(2.5)
        return context().attempt

    @tool(effects="read")
    async def pages() -> Any:
        if context().last_heartbeat is None:
            context().heartbeat({"page": 7})
            raise RetryLater("later", after=timedelta(milliseconds=10))
        return [context().attempt, context().last_heartbeat]

    nodes = [tool_node("slow", "slow", heartbeat="1s"), tool_node("pages", "pages", heartbeat="1s")]
    async with checked_runs(client, ToolRegistry.of(slow, pages), settings=Settings(state_dir=tmp_path)) as runs:
        document = await runs.run({"nodes": nodes})
    assert document["nodes"] == {"slow": completed_node(1), "pages": completed_node([2, {"page": 7}], attempts=2)}


async def test_history_of_a_plan_has_few_bytes(runs: Runs) -> None:
    """`benchmarks.many_runs` compares the size with a hand-written workflow.

    Workflow tasks and the names of queues do not count, because their number and length vary."""
    layers = [[f"n{layer}-{number}" for number in range(4)] for layer in range(5)]
    arguments = {"left": 1, "right": 1}
    nodes = [{"id": name, "tool": "plus", "arguments": arguments} for name in layers[0]]
    nodes += [
        tool_node(name, "plus", *previous_layer, arguments={"left": f"{{{{{dependency}.result}}}}", "right": 1})
        for previous_layer, layer in pairwise(layers)
        for name, dependency in zip(layer, previous_layer, strict=True)
    ]
    handle = await runs.start({"nodes": nodes})
    await document_of(handle)
    sizes: Counter[str] = Counter()
    for event in (await handle.fetch_history()).events:
        encoded_event = event.SerializeToString().replace(runs.task_queue.encode(), b"queue")
        sizes[EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")] += len(encoded_event)
    assert sum(size for kind, size in sizes.items() if not kind.startswith("WORKFLOW_TASK_")) < 9_700, sizes
    await runs.check_runs()
