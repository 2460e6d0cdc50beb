"""Threads that run what others wrote leave the event loop its turn sooner than Python's own do."""

import json
import sys
from pathlib import Path

from activities.call_tool import tool_activities
from activities.result_cache import ResultCache
from activities.run_region import region_activity
from activities.values import Values
from dagwright.contracts.outcomes import next_call
from dagwright.event_loop import SWITCH_INTERVAL_S
from dagwright.plan.scheduler import Scheduler
from dagwright.preparation import check_plan, prepare_plan
from dagwright.tools import ToolRegistry, tool
from dagwright.tools.environment import ToolEnvironment
from tests.support.activity_bench import ActivityBench
from tests.support.memory_store import MemoryStore


@tool(effects="pure")
def interval(after: float = 0) -> float:
    """Return how long a thread may keep the others waiting."""
    return sys.getswitchinterval() + 0 * after


_REGISTRY = ToolRegistry.of(interval)
_ENVIRONMENT = ToolEnvironment(Path(), secret=lambda _: None)


async def test_thread_of_a_tool_leaves_the_loop_its_turn_soon() -> None:
    usual_s, store = sys.getswitchinterval(), MemoryStore()
    [call] = tool_activities(_REGISTRY, _ENVIRONMENT, values=Values(store), cache=ResultCache(store))
    payload = await ActivityBench(call).payload({})
    assert (json.loads(payload.data), sys.getswitchinterval()) == (SWITCH_INTERVAL_S, usual_s)


async def test_thread_of_a_region_leaves_the_loop_its_turn_soon() -> None:
    usual_s, store = sys.getswitchinterval(), MemoryStore()
    second = {"id": "b", "tool": "interval", "arguments": {"after": "{{a.result}}"}}
    checked = check_plan({"nodes": [{"id": "a", "tool": "interval"}, second]}, _REGISTRY.declarations())
    scheduler = Scheduler(prepare_plan(checked, {}), {})
    scheduler.begin(1.0)
    ready = next_call(scheduler, 1.0)
    assert ready is not None
    activity = region_activity(_REGISTRY, _ENVIRONMENT, store=store, values=Values(store), cache=ResultCache(store))
    payload = await ActivityBench(activity).payload(json.loads(ready.arguments))
    assert payload.data.count(str(SWITCH_INTERVAL_S).encode()) == 2
    assert sys.getswitchinterval() == usual_s
