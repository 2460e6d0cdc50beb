"""The graphs of the benchmarks: valid plans of the documented size."""

from collections.abc import Callable

import pytest

from benchmarks import shapes, tools
from dagwright.plans.preparation import check_plan
from dagwright.tools import load_tools


@pytest.mark.parametrize(
    ("make_plan", "node_count", "edge_count"),
    [
        (shapes.fan_out, 202, 400),
        (shapes.chain, 50, 49),
        (shapes.layers, 200, 3_600),
        (shapes.stragglers, 102, 120),
        (lambda: shapes.large_plan(1_000), 1_000, 2_990),
    ],
)
def test_shape_is_a_valid_plan_of_its_size(
    make_plan: Callable[[], shapes.Plan], node_count: int, edge_count: int
) -> None:
    checked_plan = check_plan(make_plan(), load_tools([tools.__file__]).declarations())
    assert len(checked_plan.nodes) == node_count
    assert sum(len(node_ids) for node_ids in checked_plan.dependencies) == edge_count


def test_each_step_has_one_slow_chain_and_each_chain_has_at_most_one_slow_step() -> None:
    stragglers = [(chain, step) for step in range(5) for chain in range(20) if shapes.is_straggler(chain, step)]
    assert stragglers == [(0, 0), (4, 1), (8, 2), (12, 3), (16, 4)]
