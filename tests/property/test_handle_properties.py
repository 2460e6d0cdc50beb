"""A handle refers to the value at its path, for any node ID. The schema of a value has exactly the value's parts."""

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from dagwright.core.errors import PlanInvalid
from dagwright.core.expressions.condition_parser import Read
from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.reference_parser import parse_template
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.value_schemas import JSON_NAMES, ValueSchema, find_mismatch, type_of
from dagwright.core.validation.condition_checks import check_condition
from dagwright.plans.plan import Plan

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["in", "true", "size", "has", "a.result", "odd id", 'q"', "a\\", "}}", "{{", "a]", "é", "nodes", "map", "x-1", "{"]
)
_PATHS = st.lists(_TEXTS | st.integers(0, 9), max_size=3)


def handle_of(plan: Plan, node_id: str, path: list[str | int]) -> Any:
    try:
        handle: Any = plan.add("any", id=node_id)
    except PlanInvalid:
        assume(False)
    for step in path:
        handle = handle[step]
    return handle


@given(_TEXTS, _PATHS)
@example("a.result", ["b"])
def test_text_of_a_handle_parses_to_its_reference(node_id: str, path: list[str | int]) -> None:
    plan = Plan()
    handle = handle_of(plan, node_id, path)
    (node,) = plan.nodes
    reference = ResultOf(node.id, "result", tuple(path))
    assert parse_template(str(handle), {node.id}) == (reference,)
    assert parse_template(str(plan.text("{{ {x}", x=handle)), {node.id}) == ("{ ", reference)


@given(_TEXTS, _PATHS)
@example("true", ["in", 0, "size"])
def test_condition_reads_the_value_of_the_handle(node_id: str, path: list[str | int]) -> None:
    plan = Plan()
    handle = handle_of(plan, node_id, path)
    (node,) = plan.nodes
    condition = check_condition(str(handle == 1), {node.id}.__contains__)
    assert condition.analysis.reads == [
        Read(condition.analysis.reads[0].variable, "nodes", node.id, ("result", *path), "value", False)
    ]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(_TEXTS, part, max_size=3),
    max_leaves=8,
)


@example({"a": None}, None, "a")
@given(_VALUES, _VALUES, _TEXTS | st.integers(-5, 5))
def test_schema_of_a_value_has_exactly_the_parts_of_the_value(value: Any, alternative: Any, step: str | int) -> None:
    schema = ValueSchema.of_value(value)
    union = ValueSchema.any_of(schema, ValueSchema.of_value(alternative))
    assert type_of(value) in schema.types
    assert find_mismatch(schema, schema) is None
    assert find_mismatch(schema, union) is None
    try:
        part = get_value(value, (step,), name="")
    except MissingValue:
        assert schema.part(step) is None
        assert schema.problem_of(step, names=JSON_NAMES) is not None
    else:
        assert schema.at((step,)) == ValueSchema.of_value(part)
        assert union.part(step) is not None
