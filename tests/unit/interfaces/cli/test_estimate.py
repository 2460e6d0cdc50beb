"""Number of history events that `check` expects. Pure nodes that run together need few calls."""

from typing import Any

import pytest

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.interfaces.cli.check_command import _events_text, check_document, events_per_item, expected_events
from dagwright.interfaces.cli.plan_input import PlanSource
from dagwright.plans.preparation import check_plan, compile_within_limits

_TOOLS = {
    name: ToolDeclaration(name, effects=effects) for name, effects in (("sum", Effects.PURE), ("look", Effects.READ))
}


def _chain(*tools: str) -> list[dict[str, Any]]:
    return [
        {"id": f"n{number}", "tool": tool, "depends_on": [f"n{number - 1}"] if number else []}
        for number, tool in enumerate(tools)
    ]


@pytest.mark.parametrize(
    ("nodes", "event_count"),
    [
        (_chain(*["look"] * 50), 305),
        (_chain(*["sum"] * 50), 11),
        (_chain(*["sum"] * 20_000), 35),
        (_chain("sum", "sum", "look", "sum", "sum"), 23),
        ([{"id": "m", "tool": "look", "for_each": list(range(10))}], 38),
        ([*_chain("sum"), {"id": "m", "tool": "sum", "for_each": "{{n0.result}}"}], 14),
    ],
    ids=["ordinary", "pure", "many pure", "pure and ordinary", "items", "items of a result"],
)
def test_expected_events_are_counted_by_call_and_not_by_node(nodes: list[dict[str, Any]], event_count: int) -> None:
    checked_plan = check_plan({"plan": 1, "nodes": nodes}, _TOOLS)
    assert expected_events(checked_plan, compile_within_limits(checked_plan)) == event_count


def test_events_of_a_map_over_a_result_are_stated_per_item() -> None:
    inner_plan = {"nodes": _chain("look")}
    nodes = [
        *_chain("look"),
        {"id": "order", "tool": "look", "for_each": "{{n0.result}}"},
        {"id": "fixed", "tool": "look", "for_each": [1, 2]},
        {"id": "letter", "plan": inner_plan, "for_each": "{{n0.result}}"},
    ]
    checked_plan = check_plan({"plan": 1, "nodes": nodes}, _TOOLS)
    assert events_per_item(checked_plan) == {"order": 3, "letter": 4}
    source = PlanSource("plan.yaml", None, {})
    document = check_document(checked_plan, source, compiled_plan=compile_within_limits(checked_plan))
    text = "about 47, and 3 for each item of order, and 4 for each item of letter, in the run's history"
    assert _events_text({**document, "expected_events": 47}) == text


def test_nodes_with_unknown_tools_count_as_calls() -> None:
    checked_plan = check_plan({"plan": 1, "nodes": _chain(*["any"] * 50)}, {}, allow_unknown_tools=True)
    assert expected_events(checked_plan, None) == 305
