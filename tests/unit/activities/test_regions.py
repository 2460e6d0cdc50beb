"""Regions in a worker: errors of their tools, calls that the run must make, thread switching, and cached regions."""

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from dagwright.activities import region_batches, region_state
from dagwright.activities.pure_calls import PureCalls
from dagwright.activities.region_batches import RegionBatch
from dagwright.activities.region_state import OffloadedRegionState, RegionCache
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.run_region import region_activity
from dagwright.activities.values import LargeValues
from dagwright.core.compiler.compilation import compile_plan
from dagwright.features.regions.offloaded_batches import OffloadedBatchInput
from dagwright.features.run_scheduler import create_scheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.process.event_loop import SWITCH_INTERVAL_S
from dagwright.protocol.ready_calls import next_call
from dagwright.tools import ToolRegistry, context, tool
from dagwright.tools.context import Cancellation
from dagwright.tools.environment import ToolEnvironment
from tests.support.activity_harness import ActivityHarness
from tests.support.eventually import eventually
from tests.support.function_harness import FunctionHarness
from tests.support.memory_store import MemoryStore
from tests.support.tools import ODD_FAILURES, ODD_RESULTS, CallHarness


@tool(effects="pure")
def double(number: float) -> float:
    return 2 * number


@tool(effects="pure")
def ask(words: str) -> str:
    return context().ask_model(words).wait().text


@tool(effects="pure")
async def ask_async(words: str) -> str:
    return (await context().ask_model(words)).text


REGISTRY = ToolRegistry.of(double, ask, ask_async)
HARNESS_TOOLS = CallHarness().registry()
PLAN = {
    "nodes": [
        {"id": "a", "tool": "double", "arguments": {"number": 1}},
        {"id": "asks", "tool": "ask", "arguments": {"words": "twice {{a.result}}"}},
        {"id": "asks too", "tool": "ask_async", "arguments": {"words": "twice {{a.result}}"}},
        {"id": "waits", "tool": "double", "arguments": {"number": "{{asks.result}}"}},
        {"id": "b", "tool": "double", "arguments": {"number": "{{a.result}}"}},
    ]
}


def region_results(
    inline_nodes: frozenset[int] | None, *, nodes: Sequence[Any] = PLAN["nodes"], registry: ToolRegistry = REGISTRY
) -> dict[str, Any]:
    """Run one batch of a plan, and return the result or error of each node that ended.

    Args:
        inline_nodes: `None` for a region whose batches return all results to the run. For an offloaded region, the
            numbers of the nodes whose results are returned.
    """
    plan = compile_plan(check_plan({"nodes": [*nodes]}, registry.declarations()))
    scheduler = create_scheduler(plan, {})
    scheduler.start(0.0)
    calls = PureCalls("run", ToolEnvironment(Path()), load=lambda refs: {}, cancellation=Cancellation())
    region = RegionBatch(scheduler, {spec.name: spec for spec in registry}, calls=calls, inline_nodes=inline_nodes)
    # On a busy machine, a batch could time out before its nodes end.
    with patch.object(region_batches, "REGION_BATCH_S", 60.0):
        region.run()
    calls.close()
    records = ((plan.nodes[number].id, scheduler.records[number]) for number in region.ended_node_numbers())
    return {node_id: record.error if record.error is not None else record.result for node_id, record in records}


async def failures_of_activities(tool: str, kinds: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the code and message of a tool's failure outside of a region, for each kind of failure."""
    function = next(spec.function for spec in HARNESS_TOOLS if spec.name == tool)
    assert function is not None
    harness = FunctionHarness(function)
    failures = {kind: await harness.failure({"kind": kind}) for kind in kinds}
    return {kind: (failure.type or "", failure.message) for kind, failure in failures.items()}


async def failures_of_a_region(tool: str, kinds: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the code and message of a tool's failure inside of a region, for each kind of failure.

    The region also has a node `good`, which must complete.
    """
    good_node = {"id": "good", "tool": "add", "arguments": {"left": 1, "right": 1}}
    nodes = [good_node, *({"id": kind, "tool": tool, "arguments": {"kind": kind}} for kind in kinds)]
    results = await asyncio.to_thread(region_results, None, nodes=nodes, registry=HARNESS_TOOLS)
    assert results.pop("good") == 2
    return {node_id: (error.code, error.message) for node_id, error in results.items()}


@pytest.mark.parametrize("tool", ["pure_failure", "pure_failure_async"])
async def test_any_error_of_a_pure_tool_fails_only_its_node(tool: str) -> None:
    # The event loop does not pass the GeneratorExit of an async tool to the activity.
    # So the expected failure of this kind comes from a tool that is not async.
    expected = await failures_of_activities(tool.replace("pure", "odd"), ODD_FAILURES.keys() - {"generator"})
    expected |= await failures_of_activities("odd_failure", ["generator"])
    assert await failures_of_a_region(tool, ODD_FAILURES) == expected


async def test_result_of_a_pure_tool_that_is_not_json_fails_only_its_node() -> None:
    expected = await failures_of_activities("odd_result", ODD_RESULTS)
    assert await failures_of_a_region("pure_result", ODD_RESULTS) == expected


def test_call_in_a_region_has_three_attempts_in_one_batch() -> None:
    nodes = [{"id": f"n{n}", "tool": "pure_flaky", "arguments": {"succeeds_at": n}} for n in (2, 4)]
    actual = region_results(None, nodes=nodes, registry=HARNESS_TOOLS)
    assert (actual["n2"], actual["n4"].message) == (2, "RuntimeError: attempt 3")


def test_tool_that_mutates_its_arguments_does_not_change_other_results() -> None:
    values = {"a": [{"n": 1}], "b": ["{{a.result[0]}}", "{{a.result}}"], "c": [{"a": "{{a.result}}"}]}
    nodes = [
        {"id": node_id, "tool": "pure_change", "arguments": {"values": argument}}
        for node_id, argument in values.items()
    ]
    item = {"n": 1, "changed": True}
    expected = {"a": [item], "b": [item, [item]], "c": [{"a": [item], "changed": True}]}
    assert region_results(None, nodes=nodes, registry=HARNESS_TOOLS) == expected


def test_call_that_uses_a_model_stays_open_while_the_other_nodes_run() -> None:
    assert region_results(None) == {"a": 2, "b": 4}


def test_call_that_uses_a_model_fails_in_an_offloaded_region() -> None:
    actual = region_results(frozenset())
    assert (actual["a"], actual["b"]) == (2, 4)
    assert [actual[node_id].code for node_id in ("asks", "asks too")] == ["needs_own_activity"] * 2


@tool(effects="pure")
def interval(after: float = 0) -> float:
    """Return the thread switch interval. `after` only makes the call wait for another call."""
    return sys.getswitchinterval() + 0 * after


_INTERVAL_REGISTRY = ToolRegistry.of(interval)
_ENVIRONMENT = ToolEnvironment(Path(), find_secret=lambda _: None)


async def test_thread_of_a_tool_runs_with_the_short_switch_interval() -> None:
    default_interval_s = sys.getswitchinterval()
    assert await FunctionHarness(interval).result({}) == SWITCH_INTERVAL_S
    assert sys.getswitchinterval() == default_interval_s


async def test_thread_of_a_region_runs_with_the_short_switch_interval() -> None:
    default_interval_s, store = sys.getswitchinterval(), MemoryStore()
    second_node = {"id": "b", "tool": "interval", "arguments": {"after": "{{a.result}}"}}
    checked_plan = check_plan(
        {"nodes": [{"id": "a", "tool": "interval"}, second_node]}, _INTERVAL_REGISTRY.declarations()
    )
    scheduler = create_scheduler(prepare_plan(checked_plan, {}), {})
    scheduler.start(1.0)
    ready_call = next_call(scheduler, 1.0)
    assert ready_call is not None
    activity = region_activity(
        _INTERVAL_REGISTRY, _ENVIRONMENT, store=store, values=LargeValues(store), cache=ResultCache(store)
    )
    payload = await ActivityHarness(activity).payload(json.loads(ready_call.arguments))
    assert payload.data.count(str(SWITCH_INTERVAL_S).encode()) == 2
    assert sys.getswitchinterval() == default_interval_s


def region_with_nodes(node_count: int) -> OffloadedRegionState:
    scheduler = SimpleNamespace(is_finished=False, state=SimpleNamespace(ended_numbers=[]))
    state = SimpleNamespace(region=SimpleNamespace(member_numbers=range(node_count)), scheduler=scheduler, last=None)
    return cast(OffloadedRegionState, state)


def put_region(cache: RegionCache, run_id: str, region: OffloadedRegionState) -> None:
    cache.put(run_id, OffloadedBatchInput("inner", None, None), region, ref="r1")


def pop_region(cache: RegionCache, run_id: str) -> OffloadedRegionState | None:
    return cache.pop(run_id, OffloadedBatchInput("inner", "r1", None))


async def test_region_is_cached_for_one_batch() -> None:
    cache, region = RegionCache(), region_with_nodes(3)
    put_region(cache, "a", region)
    assert pop_region(cache, "a") is region
    assert pop_region(cache, "a") is None


async def test_cache_over_its_node_limit_evicts_the_least_recently_used_region() -> None:
    cache = RegionCache()
    regions = {run: region_with_nodes(count) for run, count in (("a", 1), ("b", 1), ("c", 1_000_000))}
    for run, region in regions.items():
        put_region(cache, run, region)
    put_region(cache, "a", regions["a"])
    put_region(cache, "d", region_with_nodes(199_999))
    assert [pop_region(cache, run) is not None for run in "abcd"] == [True, False, True, True]


async def test_region_is_evicted_after_its_cache_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_state, "CACHE_TIME_S", 0.0)
    cache = RegionCache()
    put_region(cache, "a", region_with_nodes(1))
    await eventually(lambda: not cache._regions)
    assert (pop_region(cache, "a"), cache._expiry_timers) == (None, {})
