"""Pure tools that ask models in a region: they stay open there, or say what would make them calls of their own."""

from pathlib import Path
from typing import Any

from activities.pure_calls import PureCalls
from activities.region_slices import RegionSlice
from dagwright.plan.compilation import compile_plan
from dagwright.plan.regions import can_be_in_region
from dagwright.plan.scheduler import Scheduler
from dagwright.preparation import check_plan
from dagwright.tools import ToolRegistry, context, tool
from dagwright.tools.context import Cancellation
from dagwright.tools.environment import ToolEnvironment


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
PLAN = {
    "nodes": [
        {"id": "a", "tool": "double", "arguments": {"number": 1}},
        {"id": "asks", "tool": "ask", "arguments": {"words": "twice {{a.result}}"}},
        {"id": "asks too", "tool": "ask_async", "arguments": {"words": "twice {{a.result}}"}},
        {"id": "waits", "tool": "double", "arguments": {"number": "{{asks.result}}"}},
        {"id": "b", "tool": "double", "arguments": {"number": "{{a.result}}"}},
    ]
}


def ended(answered: frozenset[int] | None) -> dict[str, Any]:
    """Returns how the nodes of the plan ended in one slice: those that did."""
    plan = compile_plan(check_plan(PLAN, REGISTRY.declarations()))
    scheduler = Scheduler(plan, {})
    scheduler.begin(0.0)
    calls = PureCalls("run", ToolEnvironment(Path()), load=lambda refs: {}, cancellation=Cancellation())
    region = RegionSlice(scheduler, {spec.name: spec for spec in REGISTRY}, calls=calls, answered=answered)
    region.run()
    calls.close()
    records = ((plan.nodes[number].id, scheduler.records[number]) for number in region.ended())
    return {name: record.error.code if record.error is not None else record.result for name, record in records}


def test_a_call_that_asks_a_model_is_left_open_and_the_others_go_on() -> None:
    assert ended(None) == {"a": 2, "b": 4}


def test_in_a_region_whose_inside_the_run_does_not_hold_it_fails_with_advice() -> None:
    found = ended(frozenset())
    assert {name: found[name] for name in ("a", "b", "asks", "asks too")} == {
        "a": 2,
        "b": 4,
        "asks": "needs_own_call",
        "asks too": "needs_own_call",
    }


def test_what_the_advice_says_makes_it_a_call_of_its_own() -> None:
    nodes = [{**node, "heartbeat": "30s"} if node["id"] == "asks" else node for node in PLAN["nodes"]]
    plan = compile_plan(check_plan({"nodes": nodes}, REGISTRY.declarations()))
    assert {node.id for node in plan.nodes if not can_be_in_region(node, plan.tools.get(node.tool))} == {"asks"}
