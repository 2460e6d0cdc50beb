"""Handles of nodes with any ID and any path: texts and conditions read exactly its target."""

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from dagwright.core.expressions.condition_parser import Read
from dagwright.core.expressions.conditions import parse_condition
from dagwright.core.expressions.references import ResultOf, parse_template
from dagwright.core.model.errors import PlanInvalid
from dagwright.plans.plan import Plan

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["in", "true", "size", "has", "a.result", "odd id", 'q"', "a\\", "}}", "{{", "a]", "é", "nodes", "map", "x-1", "{"]
)
_STEPS = st.lists(_TEXTS | st.integers(0, 9), max_size=3)


def handle_of(plan: Plan, node_id: str, steps: list[str | int]) -> Any:
    try:
        handle: Any = plan.add("any", id=node_id)
    except PlanInvalid:
        assume(False)
    for step in steps:
        handle = handle[step]
    return handle


@given(_TEXTS, _STEPS)
@example("a.result", ["b"])
def test_text_of_a_handle_is_its_reference(node_id: str, steps: list[str | int]) -> None:
    plan = Plan()
    handle = handle_of(plan, node_id, steps)
    (node,) = plan.nodes
    reference = ResultOf(node.id, "result", tuple(steps))
    assert parse_template(str(handle), {node.id}) == (reference,)
    assert parse_template(str(plan.text("{{ {x}", x=handle)), {node.id}) == ("{ ", reference)


@given(_TEXTS, _STEPS)
@example("true", ["in", 0, "size"])
def test_condition_reads_the_value_of_the_handle(node_id: str, steps: list[str | int]) -> None:
    plan = Plan()
    handle = handle_of(plan, node_id, steps)
    (node,) = plan.nodes
    condition = parse_condition(str(handle == 1), {node.id}.__contains__)
    assert condition.reading.reads == [
        Read(condition.reading.reads[0].variable, "nodes", node.id, ("result", *steps), "value", False)
    ]
