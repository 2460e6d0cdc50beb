"""Lone surrogates, very long values and names a fork does not have become ordinary problems."""

from typing import Any

import pytest

from dagwright.forks import unknown_rerun
from dagwright.plan.compiled import CompiledNode, CompiledPlan
from dagwright.plan.errors import PlanInvalid
from dagwright.plan.inputs import wrong_inputs
from dagwright.posted_plans import PostedPlan, check_posted
from dagwright.preparation import check_plan
from tests.unit.plan.building import TOOLS, node, plan_of


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"arguments": {"x": "\ud800"}}, "/nodes/0/arguments/x"),
        ({"human": {"type": "CLARIFICATION", "prompt": "\ud800"}}, "/nodes/0/human/prompt"),
        ({"arguments": {"\ud800": 1}}, "/nodes/0/arguments"),
    ],
)
def test_lone_surrogate_is_a_problem_with_its_pointer(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        check_plan(plan_of(node("a", **fields)), TOOLS)
    assert [(each.code, each.pointer) for each in caught.value.problems] == [("invalid_syntax", place)]


def test_lone_surrogate_in_a_text_has_its_line() -> None:
    found = check_posted(PostedPlan("nodes: \ud800"), TOOLS)
    assert [error["line"] for error in found["errors"]] == [1]


def test_long_value_leaves_the_reason_in_the_message() -> None:
    [problem] = wrong_inputs({"n": {"type": "number"}}, {"n": "x" * 500_000})
    assert problem.message == "the input 'n': \"" + "x" * 99 + '… is not of type "number"'


def test_unknown_node_of_a_fork_has_the_nearest_name() -> None:
    plan = CompiledPlan(nodes=(CompiledNode("book", kind="tool", tool="any"),))
    assert unknown_rerun("bok", plan) == "--rerun bok: the fork has no such node or item; did you mean 'book'?"
    assert unknown_rerun("zzz", plan) == "--rerun zzz: the fork has no such node or item"
