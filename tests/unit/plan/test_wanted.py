"""Which parts of a result a plan names: those that its worker tells of it if it is large."""

from typing import Any

import pytest

from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.stored import Want
from tests.unit.plan.building import compiled, node, plan_of


def _wanted(plan: CompiledPlan) -> dict[str, list[Want]]:
    """Returns node id -> what is named of its result; of those of sub-plans under `id/inner id`."""
    found = {node.id: list(node.wanted) for node in plan.nodes if node.wanted}
    for outer in plan.nodes:
        if outer.sub_plan is not None:
            found |= {f"{outer.id}/{inner}": wants for inner, wants in _wanted(outer.sub_plan).items()}
    return found


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"arguments": {"x": "{{a.result}}"}}, []),
        ({"arguments": {"x": "{{a.result.id}}"}}, [(("id",), "value")]),
        (
            {"arguments": {"x": "no {{a.result.list[0]}} and {{a.result.id}}"}},
            [(("list", 0), "value"), (("id",), "value")],
        ),
        ({"arguments": {"x": "{{a.result.id}}", "y": ["{{a.result.id}}"]}}, [(("id",), "value")]),
        ({"arguments": {"x": "{{a.result..name}}"}}, [("$..name", "value")]),
        ({"arguments": {"x": "{{a.status}}"}}, []),
        ({"depends_on": ["a"]}, []),
        ({"when": "a.result.score > 3"}, [(("score",), "whole")]),
        ({"when": "size(a.result.list) > 3"}, [(("list",), "value")]),
        ({"when": "has(a.result.b.c)"}, [(("b", "c"), "value"), (("b",), "value")]),
        ({"for_each": "{{a.result.list}}"}, [(("list",), "whole")]),
        ({"for_each": "{{a.result}}"}, [((), "whole")]),
        (
            {"for_each": "{{a.result.list}}", "key": "{{item.id}}"},
            [(("list",), "whole"), ('$["list"][*]["id"]', "whole")],
        ),
        ({"for_each": "{{a.result.list}}", "key": "{{item}} {{index}}"}, [(("list",), "whole")]),
        ({"for_each": ["{{a.result.id}}"], "arguments": {"x": "{{item}}"}}, [(("id",), "value")]),
    ],
    ids=str,
)
def test_parts_that_one_node_names_of_another(fields: dict[str, Any], wanted: list[Want]) -> None:
    plan = compiled(plan_of(node("a"), node("b", **fields)))
    assert _wanted(plan) == ({"a": wanted} if wanted else {})


def test_parts_that_the_output_names() -> None:
    plan = compiled(plan_of(node("a"), node("b"), output={"x": "{{a.result.id}}", "y": "{{b.result}}"}))
    assert _wanted(plan) == {"a": [(("id",), "value")]}


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ("{{a.result[0].id}}", [(("id",), "value")]),
        ("{{a.result[*].id}}", [(("id",), "value")]),
        ("{{a.result}}", []),
    ],
)
def test_path_into_a_list_of_items_names_a_part_of_each(reference: str, wanted: list[Want]) -> None:
    plan = compiled(plan_of(node("a", for_each=[1, 2]), node("b", arguments={"x": reference})))
    assert _wanted(plan) == ({"a": wanted} if wanted else {})


def test_part_that_a_sub_plan_names_of_its_input_is_named_of_what_is_handed_down() -> None:
    below = plan_of(
        node("x", arguments={"v": "{{PLACEHOLDER_doc}}"}, when="inputs.doc.size > 3"),
        inputs={"doc": {"type": "object"}},
    )
    plan = compiled(plan_of(node("a"), {"id": "s", "plan": below, "arguments": {"doc": "{{a.result.inner}}"}}))
    assert _wanted(plan) == {"a": [(("inner",), "value"), (("inner", "size"), "whole")]}


def test_part_that_is_named_of_a_sub_plan_is_named_of_what_its_output_holds() -> None:
    below = plan_of(node("x"), node("y"), output={"first": "{{x.result.doc}}", "all": "{{y.result}}"})
    reads = {"p": "{{s.result.first.id}}", "q": "{{s.result.all.name}}"}
    plan = compiled(plan_of({"id": "s", "plan": below}, node("b", arguments=reads)))
    assert _wanted(plan) == {
        "s/x": [(("doc",), "value"), (("doc", "id"), "value")],
        "s/y": [(("name",), "value")],
    }


def test_output_that_was_not_written_holds_the_results_of_the_sinks() -> None:
    below = plan_of(node("x"))
    plan = compiled(plan_of({"id": "s", "plan": below}, node("b", arguments={"p": "{{s.result.x.id}}"})))
    assert _wanted(plan) == {"s/x": [(("id",), "value")]}


def test_worker_is_asked_for_its_outputs_and_for_what_a_run_reads_of_it() -> None:
    plan = compiled(plan_of(node("a"), node("b", arguments={"x": "{{a.result.id}}"})), workers=[0])
    own = [(name,) for name in ("status", "outputs", "error", "message")]
    assert _wanted(plan) == {
        "a": [(("id",), "value"), (("outputs", "id"), "value"), *((path, "value") for path in own)]
    }
