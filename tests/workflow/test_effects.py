"""Retries, time-outs, keys and items on the real server: what each kind of effect allows."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from activities.call_starts import CallStarts
from dagwright.protocol.idempotency import idempotency_key
from tests.support.eventually import eventually
from tests.support.runs import Runs, bare, document_of, done, events_of, failed
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_FAST = {"max_attempts": 3, "first_delay": "10ms"}


async def test_failed_attempts_are_tried_again(runs: Runs) -> None:
    nodes = [
        {"id": "third", "tool": "flaky", "arguments": {"until": 3}, "retry": _FAST},
        {"id": "never", "tool": "flaky", "arguments": {"until": 4}, "retry": _FAST},
        {"id": "once", "tool": "flaky", "arguments": {"until": 2}, "retry": {"max_attempts": 1}},
        {"id": "final", "tool": "fail", "retry": _FAST},
    ]
    assert (await runs.run({"nodes": nodes}))["nodes"] == {
        "third": done(3, attempts=3),
        "never": failed("tool_failed: RuntimeError: attempt 3", attempts=3),
        "once": failed("tool_failed: RuntimeError: attempt 1"),
        "final": failed("tool_failed: no"),
    }


async def test_delay_of_the_service_comes_before_that_of_the_plan(runs: Runs) -> None:
    # With the plan's own delay of an hour the run would not end within the test.
    node = {"id": "busy", "tool": "busy", "arguments": {"until": 3}, "retry": {"first_delay": "1h", "max_attempts": 3}}
    assert (await runs.run({"nodes": [node]}))["nodes"] == {"busy": done(3, attempts=3)}


async def test_idempotency_key_is_the_same_for_every_attempt(runs: Runs, bench: Bench, unique: str) -> None:
    def keyed(node: str, **more: Any) -> dict[str, Any]:
        arguments = {"name": f"{unique} {node}", "until": 3}
        return {"id": node, "tool": "keyed", "arguments": arguments, "retry": _FAST, **more}

    plan = {
        "nodes": [
            keyed("plain"),
            {**keyed("each"), "for_each": ["x"], "key": "{{item}}"},
            {"id": "sub", "plan": {"nodes": [keyed("inner")]}},
        ]
    }
    handle = await runs.start(plan)
    assert (await document_of(handle))["status"] == "completed"
    scope = handle.first_execution_run_id
    assert scope is not None
    paths = {
        "plain": [["node", "plain"]],
        "each": [["node", "each"], ["item", "x"]],
        "inner": [["node", "sub"], ["node", "inner"]],
    }
    expected = {name: [idempotency_key(scope, path)] * 3 for name, path in paths.items()}
    assert {name: bench.effects[f"{unique} {name}"] for name in paths} == expected


async def test_write_is_never_repeated_blindly(runs: Runs, bench: Bench, unique: str) -> None:
    nodes = [
        {"id": "fails", "tool": "write", "arguments": {"name": f"{unique} fails", "error": "broke"}},
        {
            "id": "told",
            "tool": "write",
            "arguments": {"name": f"{unique} told", "error": "broke"},
            "retry": _FAST,
        },
        {
            "id": "slow",
            "tool": "hold_write",
            "arguments": {"name": f"{unique} slow"},
            "timeout": "2s",
            "retry": _FAST,
        },
    ]
    document = await runs.run({"nodes": nodes})
    bench.open(f"{unique} slow")
    outcome = "outcome unknown: it took over 2 s, so hold_write may or may not have made its change"
    assert document["nodes"] == {
        "fails": failed("tool_failed: RuntimeError: broke"),
        "told": failed("tool_failed: RuntimeError: broke"),
        "slow": failed(f"outcome_unknown: {outcome}"),
    }
    assert [len(bench.effects[f"{unique} {name}"]) for name in ("fails", "told", "slow")] == [1, 1, 1]


async def test_write_that_takes_too_long_before_it_is_called_is_not_started(
    runs: Runs, bench: Bench, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record_never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(CallStarts, "record", record_never)
    node = {"id": "w", "tool": "hold_write", "arguments": {"name": unique}, "timeout": "1s", "retry": _FAST}
    document = await runs.run({"nodes": [node]})
    why = "hold_write was not called: it took over 1 s before the call began, so nothing was changed"
    assert document["nodes"] == {"w": failed(f"not_started: {why}")}
    assert bench.effects[unique] == []


async def test_read_that_takes_too_long_is_tried_again_and_then_failed(runs: Runs, bench: Bench, unique: str) -> None:
    node = {
        "id": "slow",
        "tool": "hold",
        "arguments": {"name": unique},
        "timeout": "1s",
        "heartbeat": "1s",
        "retry": {"max_attempts": 2, "first_delay": "10ms"},
    }
    document = await runs.run({"nodes": [node]})
    bench.open(unique)
    slow = document["nodes"]["slow"]
    assert (slow["status"], slow["attempts"], slow["error"].partition(":")[0]) == ("failed", 2, "timeout")
    await eventually(lambda: bench.entered.count(unique) == 2)


async def test_deadline_ends_the_run_and_keeps_what_is_done(runs: Runs, bench: Bench, unique: str) -> None:
    plan = {
        "deadline": "4s",
        "nodes": [
            {"id": "quick", "tool": "add", "arguments": {"left": 1, "right": 1}},
            {"id": "slow", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"},
            {"id": "after", "tool": "echo", "depends_on": ["slow"]},
        ],
    }
    reason = "the run took over its deadline"
    assert await runs.run(plan) == {
        "status": "failed",
        "output": {"quick": 2.0},
        "error": f"deadline_exceeded: {reason}; still running: slow",
        "nodes": {
            "quick": done(2.0),
            "slow": {"status": "cancelled"},
            "after": {"status": "cancelled", "reason": reason},
        },
    }
    assert bench.cleaned.count(unique) == 1


async def test_deadline_of_the_start_message_counts_too(runs: Runs, bench: Bench, unique: str) -> None:
    plan = {"nodes": [{"id": "slow", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"}]}
    document = await runs.run_raw({"plan": plan, "options": {"deadline": "300ms"}})
    assert document["error"] == "deadline_exceeded: the run took over its deadline; still running: slow"


async def test_at_most_max_parallel_tasks_of_a_run_are_in_flight(runs: Runs, bench: Bench, unique: str) -> None:
    nodes = [{"id": f"n{number}", "tool": "hold", "arguments": {"name": unique}} for number in range(5)]
    handle = await runs.start_raw({"plan": {"nodes": nodes}, "options": {"max_parallel": 2}})
    await eventually(lambda: bench.running[unique] == 2)
    bench.open(unique)
    assert (await document_of(handle))["status"] == "completed"
    assert bench.most_running[unique] == 2


async def test_history_reads_like_the_plan(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "mail", "title": "Fetch the mail of Sarah", "tool": "echo", "priority": 1, "timeout": "30s"},
            {"id": "each", "tool": "echo", "for_each": [1], "key": "n{{item}}"},
            {"id": "order", "title": "Fetch each order", "tool": "echo", "for_each": [1], "key": "{{item}}7"},
        ]
    }
    handle = await runs.start(plan)
    document = await document_of(handle)
    scheduled = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    found = []
    for event in scheduled:
        attributes = event.activity_task_scheduled_event_attributes
        summary = event.user_metadata.summary.data.decode()
        timeout = attributes.start_to_close_timeout.ToTimedelta()
        priority = attributes.priority.priority_key
        found.append((attributes.activity_id, attributes.activity_type.name, summary, timeout, priority))
    assert found == [
        ("mail", "echo", '"Fetch the mail of Sarah"', timedelta(seconds=30), 1),
        ("each[n1]", "echo", '"each[n1]"', timedelta(seconds=60), 3),
        ("order[17]", "echo", '"Fetch each order [17]"', timedelta(seconds=60), 3),
    ]
    assert bare(document)["status"] == "completed"


async def test_items_keep_their_order_and_have_names_and_what_is_no_list_fails(runs: Runs) -> None:
    items = [{"name": "north", "n": 2}, {"name": "south", "n": 1}]
    each = {"tool": "echo", "key": "{{item.name}}", "arguments": {"n": "{{item.n}}", "at": "{{index}}"}}
    nodes = [
        {"id": "list", "tool": "echo", "arguments": {"items": items}},
        {"id": "m", "for_each": "{{list.result.items}}", **each},
        {"id": "after", "tool": "echo", "arguments": {"all": "{{m.result}}"}},
        {"id": "none", "for_each": "{{list.result.items[0]}}", **each},
    ]
    values = [{"n": 2, "at": 0}, {"n": 1, "at": 1}]
    assert await runs.run({"nodes": nodes, "output": "{{after.result}}"}) == {
        "status": "completed_with_failures",
        "output": {"all": values},
        "nodes": {
            "list": done({"items": items}),
            "m": done(values),
            "m[north]": done(values[0]),
            "m[south]": done(values[1]),
            "after": done({"all": values}),
            "none": failed('invalid_for_each: for_each needs a list, not \'{"name":"north","n":2}\''),
        },
    }


async def test_at_most_max_parallel_calls_of_a_tool_run_at_once(runs: Runs, unique: str) -> None:
    nodes = [{"id": f"n{number}", "tool": "narrow", "arguments": {"name": unique, "wanted": 2}} for number in range(6)]
    document = await runs.run({"nodes": nodes})
    assert document["output"] == {f"n{number}": 2 for number in range(6)}
