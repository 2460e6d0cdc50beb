"""The runs whose histories are saved: one scenario for each feature that determines the order of commands."""

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from dagwright.activities.call_starts import CallStarts
from dagwright.core.boundary import wire
from dagwright.core.compiler import offloaded_regions
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.plans import pages
from dagwright.protocol.call_limit_messages import CallRequest, LimitMessage
from dagwright.server.call_limits import remove_limit, send_limit_message, set_limit
from dagwright.settings import Settings
from tests.replay.model_scenarios import MODEL_SCENARIOS, Scenario
from tests.support.eventually import eventually
from tests.support.foreign import with_tools
from tests.support.people import answer, human_node, signal_answer, wait_for_requests
from tests.support.runs import Handle, Runs, document_of, serving_runs
from tests.support.shop_worker import shop_worker
from tests.support.tools import CallHarness

_FAST_RETRY = {"max_attempts": 3, "first_delay": "10ms"}


def _sum_node(node_id: str, left: Any, right: Any = 1, *, tool: str = "plus") -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": {"left": left, "right": right}}


def _pure_node(node_id: str, left: Any, right: Any = 1) -> dict[str, Any]:
    return _sum_node(node_id, left, right, tool="add")


CHAIN = {
    "nodes": [_sum_node("a", 1), _sum_node("b", "{{a.result}}"), _sum_node("c", "{{b.result}}")],
    "output": "{{c.result}}",
}

_DIAMOND = {
    "nodes": [
        _sum_node("d", "{{b.result}}", "{{c.result}}"),
        _sum_node("b", "{{a.result}}", 10),
        _sum_node("c", "{{a.result}}", 100),
        _sum_node("a", 1),
    ]
}
_FAN_OUT = {
    "nodes": [
        _sum_node("root", 0),
        *(_sum_node(f"n{number}", "{{root.result}}", number) | {"priority": 1 + number % 5} for number in range(30)),
        {"id": "join", "tool": "total", "arguments": {"values": [f"{{{{n{n}.result}}}}" for n in range(30)]}},
    ]
}
_PLAN_WITH_MIXED_STATUSES = {
    "nodes": [
        {"id": "ok", "tool": "echo", "arguments": {"n": 3}},
        {"id": "bad", "tool": "fail"},
        {"id": "blocked", "tool": "echo", "depends_on": ["bad"]},
        {"id": "value", "tool": "fail", "on_error": {"value": 1}},
        {"id": "no", "tool": "echo", "when": "ok.result.n > 5"},
        {"id": "skipped", "tool": "echo", "depends_on": ["no"]},
        {"id": "any", "tool": "echo", "depends_on": ["ok", "bad"], "join": "any"},
        {"id": "done", "tool": "echo", "arguments": {"why": "{{bad.error.code}}"}, "join": "all_done"},
        {"id": "flaky", "tool": "flaky", "arguments": {"succeeds_at": 3}, "retry": _FAST_RETRY},
    ]
}
_PLAN_WITH_ITEMS = {
    "nodes": [
        {"id": "list", "tool": "echo", "arguments": {"items": ["x", "y", "z"]}},
        {
            "id": "each",
            "tool": "echo",
            "for_each": "{{list.result.items}}",
            "key": "{{item}}",
            "max_parallel": 2,
            "arguments": {"item": "{{item}}", "at": "{{index}}"},
        },
        {"id": "after", "tool": "echo", "arguments": {"all": "{{each.result}}"}},
    ]
}
_SUB_PLAN_WITH_INPUT_X = {
    "inputs": {"x": {}},
    "nodes": [{"id": "in", "tool": "echo", "arguments": {"x": "{{PLACEHOLDER_x}}"}}],
}
_SUB_PLANS = {
    "nodes": [
        {"id": "sub", "plan": CHAIN},
        {"id": "each", "plan": {"nodes": [{"id": "x", "tool": "echo"}]}, "for_each": [1, 2]},
        {"id": "bad", "plan": {"nodes": [{"id": "x", "tool": "fail"}]}},
        {"id": "after", "tool": "echo", "arguments": {"got": "{{sub.result}}"}},
    ]
}
_LONG_PLAN = {
    "nodes": [
        {"id": "n0", "tool": "echo", "arguments": {"n": 0}},
        *(
            {"id": f"n{n}", "tool": "echo", "arguments": {"n": n, "before": f"{{{{n{n - 1}.result.n}}}}"}}
            for n in range(1, 15)
        ),
        {"id": "below", "plan": CHAIN},
        {"id": "each", "tool": "echo", "for_each": [1, 2, 3], "depends_on": ["n5"], "max_parallel": 1},
    ]
}
_MAP = {
    "nodes": [
        {
            "id": "m",
            "title": "Texts of the last items",
            "tool": "text",
            "for_each": list(range(501)),
            "when": "item in [3, 499, 500]",
            "arguments": {"size": 9_000},
        },
        {
            "id": "wrong",
            "tool": "give_up",
            "for_each": list(range(600)),
            "when": "item == 300",
            "key": "k{{item}}",
            "max_parallel": 2,
        },
        {"id": "after", "tool": "echo", "arguments": {"first": "{{m.result[0]}}"}},
    ]
}
_FAILING_PLAN = {"nodes": [_sum_node("a", 1), {"id": "b", "tool": "give_up", "depends_on": ["a"]}]}
_NODE_AFTER_FAILED = {"id": "c", "tool": "echo", "arguments": {"got": "{{b.result}}"}}
_REGION = {
    "nodes": [
        _pure_node("a", 1),
        _pure_node("b", "{{a.result}}"),
        _pure_node("no", "{{b.result}}") | {"when": "b.result > 100"},
        _pure_node("skipped", "{{no.result}}"),
        _pure_node("bad", "{{b.result.gone}}"),
        _pure_node("blocked", "{{bad.result}}"),
        _pure_node("value", "{{b.result.gone}}") | {"on_error": {"value": 7}},
        {"id": "slow", "tool": "echo", "arguments": {"n": "{{b.result}}"}},
        _pure_node("c", "{{slow.result.n}}", "{{value.result}}"),
        _pure_node("d", "{{c.result}}", "{{b.result}}"),
        {"id": "last", "tool": "echo", "arguments": {"d": "{{d.result}}"}},
    ]
}


def _short_node(node_id: str, value: Any, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "short", "arguments": {"name": node_id, "value": value}, **fields}


_CALL_BATCH = {
    "nodes": [
        _short_node("a", 1),
        _short_node("b", "{{a.result}}"),
        _short_node("no", "{{b.result}}", when="b.result > 100"),
        _short_node("skipped", "{{no.result}}"),
        _short_node("bad", "{{b.result.gone}}"),
        {"id": "busy", "tool": "short_busy", "arguments": {"succeeds_at": 2}, "depends_on": ["b"]},
        {"id": "slow", "tool": "short_hold", "arguments": {"name": "a slow call"}},
        _short_node("c", "{{busy.result}}", depends_on=["slow"]),
        _short_node("each", "{{item}}", for_each=[1, 2], depends_on=["b"]),
        {"id": "last", "tool": "echo", "arguments": {"c": "{{c.result}}"}, "depends_on": ["each"]},
    ]
}


async def _call_batch(runs: Runs, harness: CallHarness) -> Handle:
    """Short calls in a batch. The first attempt of one call fails, and another call is slow."""
    handle = await runs.start(_CALL_BATCH)

    async def slow_call_has_an_activity() -> bool:
        events = (await handle.fetch_history()).events
        return any(event.activity_task_scheduled_event_attributes.activity_id == "slow" for event in events)

    await eventually(slow_call_has_an_activity)
    harness.open("a slow call")
    return await _wait_for_end(handle)


_REGION_BATCHES = {
    "nodes": [
        {"id": "root", "tool": "text", "arguments": {"size": 100_000}},
        *({"id": f"n{n}", "tool": "text", "arguments": {"size": 100_000}, "depends_on": ["root"]} for n in range(6)),
        {"id": "last", "tool": "length", "arguments": {"text": "{{n5.result}}"}},
    ],
    "output": "{{last.result}}",
}
_LARGE_RESULTS = {
    "nodes": [
        {"id": "big", "tool": "echo", "arguments": {"text": "x" * 20_000, "parts": ["y" * 9_000, "z"], "n": 7}},
        {"id": "small", "tool": "echo", "arguments": {"n": "{{big.result.n}}", "part": "{{big.result.parts[1]}}"}},
        {"id": "whole", "tool": "length", "arguments": {"text": "{{big.result.text}}"}},
        {"id": "asked", "tool": "echo", "when": "big.result.n == 7", "arguments": {"all": "{{big.result}}"}},
        {"id": "each", "tool": "length", "for_each": "{{big.result.parts}}", "arguments": {"text": "{{item}}"}},
    ],
    "output": {"n": "{{small.result.n}}", "lengths": "{{each.result}}", "text": "{{big.result.text}}"},
}
_OFFLOADED_REGION = {
    "nodes": [
        {"id": "first", "tool": "echo", "arguments": {"n": 1}},
        _pure_node("a", "{{first.result.n}}"),
        *(_pure_node(f"n{number}", "{{a.result}}", number) for number in range(6)),
        _pure_node("bad", "{{n5.result.gone}}"),
        {"id": "last", "tool": "echo", "arguments": {"n": "{{n3.result}}"}},
    ]
}


async def _wait_for_end(handle: Handle) -> Handle:
    """Wait until a run has ended, and return its handle."""
    await document_of(handle)
    return handle


def _plan_scenario(plan: dict[str, Any]) -> Scenario:
    async def run(runs: Runs, harness: CallHarness) -> Handle:
        return await _wait_for_end(await runs.start(plan))

    return run


def _paged_plan_scenario(plan: dict[str, Any]) -> Scenario:
    """Return a scenario that sends a plan like a large plan: in pages, and with offloaded regions."""

    async def run(runs: Runs, harness: CallHarness) -> Handle:
        limits: dict[str, Any] = {"MAX_INLINE_PLAN_NODES": 2, "MAX_INLINE_PLAN_BYTES": 100, "MAX_PLAN_PAGE_NODES": 3}
        with patch.multiple(pages, **limits), patch.object(offloaded_regions, "MIN_OFFLOADED_MEMBERS", 4):
            return await _wait_for_end(await runs.start(plan))

    return run


async def _raw_input(runs: Runs, harness: CallHarness) -> Handle:
    return await _wait_for_end(await runs.start_raw({"plan": CHAIN}))


async def _rejected_plan(runs: Runs, harness: CallHarness) -> Handle:
    return await _wait_for_end(await runs.start_raw({"plan": {"nodes": [{"id": "a", "tool": "nobody"}]}}))


def _plan_with_held_node(name: str, **fields: Any) -> dict[str, Any]:
    return {
        **fields,
        "nodes": [
            _sum_node("done", 1),
            {"id": "held", "tool": "hold", "arguments": {"name": name}, "depends_on": ["done"], "heartbeat": "1s"},
            {"id": "after", "tool": "echo", "depends_on": ["held"]},
        ],
    }


async def _cancelled_run(runs: Runs, harness: CallHarness) -> Handle:
    handle = await runs.start(_plan_with_held_node("signal"))
    await eventually(lambda: "signal" in harness.entered)
    await handle.signal("cancel", {"reason": "enough", "by": "ann"})
    return await _wait_for_end(handle)


async def _cancelled_through_temporal(runs: Runs, harness: CallHarness) -> Handle:
    handle = await runs.start(_plan_with_held_node("temporal"))
    await eventually(lambda: "temporal" in harness.entered)
    await handle.cancel()
    return await _wait_for_end(handle)


async def _cancelled_sub_plan(runs: Runs, harness: CallHarness) -> Handle:
    handle = await runs.start({"nodes": [{"id": "sub", "plan": _plan_with_held_node("below")}]})
    await eventually(lambda: "below" in harness.entered)
    await handle.signal("cancel")
    return await _wait_for_end(handle)


async def _signal_with_cancel(runs: Runs, harness: CallHarness) -> Handle:
    """One workflow task receives a signal that starts a sub-plan, and then Temporal's cancellation."""
    queue, registry = f"{runs.task_queue}-separate", harness.registry()
    nodes = [
        {"id": "a", "tool": "hold", "arguments": {"name": "with cancel"}},
        {"id": "wrong", "plan": _SUB_PLAN_WITH_INPUT_X, "arguments": {"x": "{{a.error.code}}"}},
        {"id": "right", "tool": "hold", "arguments": {"name": "never entered"}, "depends_on": ["a"]},
        {"id": "below", "plan": _SUB_PLAN_WITH_INPUT_X, "arguments": {"x": "{{a.result}}"}},
    ]
    with TemporaryDirectory() as folder:
        serve = partial(serving_runs, runs.client, registry, settings=Settings(state_dir=Path(folder)), queue=queue)
        async with serve() as first_runs:
            handle = await first_runs.start({"nodes": nodes})
            await eventually(lambda: "with cancel" in harness.entered)
            await handle.signal("pause", {})
            harness.open("with cancel")

            async def is_paused() -> bool:
                return bool((await handle.query(wire.QUERY_STATUS))["status"] == "waiting")

            await eventually(is_paused)
        await handle.signal("resume", {})
        await handle.cancel()
        async with serve():
            return await _wait_for_end(handle)


async def _unstarted_call(runs: Runs, harness: CallHarness) -> Handle:
    """A `write` call times out before its start is recorded."""

    async def never_record(*_: Any) -> None:
        await asyncio.Event().wait()

    nodes = [
        {"id": "w", "tool": "hold_write", "arguments": {"name": "never called"}, "timeout": "500ms"},
        {"id": "why", "tool": "echo", "arguments": {"code": "{{w.error.code}}"}, "join": "all_done"},
    ]
    with patch.object(CallStarts, "record", never_record):
        handle = await runs.start({"nodes": nodes})
        return await _wait_for_end(handle)


async def _human_requests(runs: Runs, harness: CallHarness) -> Handle:
    order = {"name": "replay", "choices": ["a", "b"]}
    nodes = [
        human_node("check", assignee="ann", deadline="1h"),
        human_node("late", deadline="100ms", on_timeout={"default": {"approved": False}}),
        {"id": "order", "tool": "order", "arguments": order, "approval": "required"},
        {"id": "after", "tool": "echo", "arguments": {"said": "{{check.result}}", "late": "{{late.result}}"}},
    ]
    handle = await runs.start({"nodes": nodes})
    await wait_for_requests(runs.client, handle.id, "check", "order")
    await answer(handle, "order", {"approved": True})
    await wait_for_requests(runs.client, handle.id, "check", "order#2")
    await signal_answer(handle, "order#2", {"selected": ["b"]})
    # The next answer comes before its request opens. No request has the ID `nobody`.
    await signal_answer(handle, "order#3", {"text": "early"})
    await signal_answer(handle, "nobody", {"text": "?"})
    await answer(handle, "check", {"approved": True})
    return await _wait_for_end(handle)


async def _compensated_run(runs: Runs, harness: CallHarness) -> Handle:
    """A failed run that compensates its calls, and the calls of its items and of its sub-plan."""
    nodes = [
        _undoable_node("a"),
        {"id": "sub", "plan": {"nodes": [_undoable_node("b")]}, "depends_on": ["a"]},
        {**_undoable_node("m", "{{item}}"), "for_each": ["x", "y"], "key": "{{item}}", "depends_on": ["a"]},
        {"id": "refuse", "tool": "refuse", "depends_on": ["sub", "m"]},
    ]
    return await _wait_for_end(await runs.start({"nodes": nodes}, compensate=True))


def _undoable_node(node_id: str, name: str = "") -> dict[str, Any]:
    return {"id": node_id, "tool": "make", "arguments": {"name": f"replay {node_id} {name}"}}


async def _lookup(runs: Runs, harness: CallHarness) -> Handle:
    """A run that asks which party is meant, creates the party, fails and compensates all its calls."""
    sarah, unknown_person = ({"search_text": name, "entity_type": "person"} for name in ("Sarah Chen", "Vera Replay"))
    intents = [
        {"verb": "make", "params": {"name": "replay"}, "refs": {}, "lookups": {"after": unknown_person}},
        {"verb": "refuse", "params": {}, "refs": {"message": "@result_1"}, "lookups": {"after": sarah}},
    ]
    handle = await runs.start({"intents": intents}, compensate=True)
    await wait_for_requests(runs.client, handle.id, "lookup:person:Vera Replay")
    await answer(handle, "lookup:person:Vera Replay", {"text": "create new"})
    return await _wait_for_end(handle)


async def _session(runs: Runs, harness: CallHarness) -> Handle:
    """A session that continues as new. The run of its last turn has invalid input, and never reports its end."""
    handle = await runs.start_raw(
        {"session_id": "replay"}, workflow_id="session-replay", workflow=wire.WORKFLOW_SESSION
    )
    newest_execution = runs.client.get_workflow_handle(handle.id)

    async def is_idle() -> bool:
        return bool((await newest_execution.query(wire.QUERY_STATUS))["status"] == "idle")

    plan = {"nodes": [{"id": "a", "tool": "echo", "arguments": {"n": 1}}]}
    for number, start in enumerate([{"plan": plan}, {"plan": plan}, {"neither": 1}], 1):
        turn = {"run_id": f"replay-turn-{number}", "request": f"Turn {number}.", "start": start}
        await newest_execution.execute_update(wire.UPDATE_START_TURN, turn)
        await newest_execution.signal(wire.SIGNAL_TURN_ENDED, {"turn": "nobody"})
        await eventually(is_idle)
    await newest_execution.signal(wire.SIGNAL_END_SESSION, {})
    await handle.result()
    return handle


async def _workflow_nodes(runs: Runs, harness: CallHarness) -> Handle:
    """Nodes call a workflow of a shop worker: once, for each item, and with attempts that fail."""
    nodes = [
        {"id": "lamp", "tool": "ship", "arguments": {"item": "lamp"}},
        {"id": "each", "tool": "ship", "for_each": ["desk", "chair"], "arguments": {"item": "{{item}}"}},
        {"id": "lost", "tool": "try_ship", "arguments": {"item": "lamp", "fails": True}, "retry": _FAST_RETRY},
        {"id": "done", "tool": "echo", "arguments": {"as": "{{lamp.result.shipped}}"}, "depends_on": ["each"]},
    ]
    async with shop_worker(runs.client) as tools:
        handle = await with_tools(runs, tools).start({"nodes": nodes})
        return await _wait_for_end(handle)


async def _call_limit(runs: Runs, harness: CallHarness) -> Handle:
    """A call limit: two calls, a change of the limit, and its removal."""
    subject, limit = Subject("tool", "replay"), parse_limit("2/s concurrency=1")
    await set_limit(runs.client, subject, limit, task_queue=runs.task_queue, by="ann")
    await send_limit_message(runs.client, subject, LimitMessage({"a": CallRequest(), "b": CallRequest()}))
    await set_limit(runs.client, subject, parse_limit("tokens=1000"), task_queue=runs.task_queue, by=None)
    message = LimitMessage({"b": CallRequest(kind="model_call")}, releases=["a"], tokens=[700])
    await send_limit_message(runs.client, subject, message)
    await remove_limit(runs.client, subject)
    return runs.client.get_workflow_handle(f"{wire.ID_CALL_LIMIT}{subject}")


SCENARIOS: dict[str, Scenario] = {
    **MODEL_SCENARIOS,
    "human_requests": _human_requests,
    "chain": _plan_scenario(CHAIN),
    "diamond": _plan_scenario(_DIAMOND),
    "fan_out": _plan_scenario(_FAN_OUT),
    "mixed": _plan_scenario(_PLAN_WITH_MIXED_STATUSES),
    "map_items": _plan_scenario(_PLAN_WITH_ITEMS),
    "sub_plans": _plan_scenario(_SUB_PLANS),
    "region": _plan_scenario(_REGION),
    "call_batch": _call_batch,
    "region_batches": _plan_scenario(_REGION_BATCHES),
    "map": _plan_scenario(_MAP),
    "long": _plan_scenario(_LONG_PLAN),
    "large_results": _plan_scenario(_LARGE_RESULTS),
    "plan_pages": _paged_plan_scenario(_PLAN_WITH_MIXED_STATUSES),
    "offloaded_region": _paged_plan_scenario(_OFFLOADED_REGION),
    "failed": _plan_scenario(_FAILING_PLAN),
    "fail_fast": _plan_scenario(
        {**_FAILING_PLAN, "on_failure": "fail_fast", "nodes": [*_FAILING_PLAN["nodes"], _NODE_AFTER_FAILED]}
    ),
    "deadline": _plan_scenario(_plan_with_held_node("deadline", deadline="500ms")),
    "raw_input": _raw_input,
    "rejected": _rejected_plan,
    "cancelled": _cancelled_run,
    "cancelled_through_temporal": _cancelled_through_temporal,
    "cancelled_sub_plan": _cancelled_sub_plan,
    "ends_canceled": _cancelled_sub_plan,
    "signal_with_cancel": _signal_with_cancel,
    "session": _session,
    "call_limit": _call_limit,
    "compensated": _compensated_run,
    "lookup": _lookup,
    "workflow_nodes": _workflow_nodes,
    "unstarted_call": _unstarted_call,
}
"""Name of the history -> the scenario that produces it."""

CONTINUE_AS_NEW_AFTER_EVENTS = {"long": 30, "session": 30}
"""Scenario -> number of events after which the server suggests continue-as-new, if it is not the default number."""
