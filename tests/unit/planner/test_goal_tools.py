"""A run decodes the tools of a goal only once."""

from typing import Any

import pytest

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.run_scheduler import create_scheduler
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.planning.plan_and_execute.goal_spec import decode_tools
from dagwright.protocol.planned_nodes import UnparsedPlannedNodes
from dagwright.protocol.run_start import extender_of
from tests.support.plan_building import with_extender

MANY_TOOLS = {
    f"tool{number}": ToolDeclaration(f"tool{number}", Effects.READ, {"type": "object", "properties": {"a": {}}})
    for number in range(5_000)
}


def test_tools_of_a_goal_are_decoded_once_for_all_planned_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = prepare_goal("Look.", MANY_TOOLS, PlanningOptions())
    assert plan.extender is not None
    scheduler = with_extender(create_scheduler(plan, {}), extender_of(plan))
    decoded_counts: list[int] = []

    def count_and_decode(encoded: Any) -> dict[str, ToolDeclaration]:
        decoded_counts.append(len(encoded))
        return decode_tools(encoded)

    monkeypatch.setattr("dagwright.planning.plan_and_execute.goal_extender.decode_tools", count_and_decode)
    scheduler.start(0.0)
    assert scheduler.next_task(0.0) is not None
    invalid_nodes = UnparsedPlannedNodes("plan", 1, 0, [{"id": "a", "tool": "fly"}])
    rejections = [invalid_nodes.rejection_of(scheduler, at=float(number)) for number in range(20)]
    assert all(rejection is not None and "unknown_tool" in rejection for rejection in rejections)
    assert len(decoded_counts) == 1
