"""The dialect `plan`, and sub-plans in other dialects."""

from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.dialect import Dialect
from dagwright.dialects import detect_dialect, to_document
from tests.conformance.kit import check, codes_and_pointers_of, problems_of

TASKS = {"dag": [{"id": "t", "tool": "t", "query": "{{u.result}}", "dependencies": []}]}


def plan_with_sub_plans(*sub_plans: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": [{"id": f"n{index}", "plan": plan} for index, plan in enumerate(sub_plans)]}


def test_sub_plans_of_other_dialects_are_converted_with_notes_and_context() -> None:
    raw = plan_with_sub_plans([{"id": "s", "tool": "t", "arguments": {}}], plan_with_sub_plans(TASKS))
    document = to_document(raw)
    assert [node["plan"]["plan"] for node in document.plan["nodes"]] == [1, 1]
    assert document.plan["nodes"][1]["plan"]["nodes"][0]["plan"]["nodes"][0]["id"] == "t"
    assert codes_and_pointers_of(raw) == [("invalid_reference", "/nodes/1/plan/nodes/0/plan/dag/0/query")]
    tasks = {"dag": [*TASKS["dag"], {"id": "u", "tool": "t", "query": "", "dependencies": []}]}
    assert [note.code for note in check(plan_with_sub_plans(tasks)).notes] == ["added_edge"]
    raw = plan_with_sub_plans({"intents": [{"verb": "v", "refs": {"a": "@cbu"}}]})
    assert codes_and_pointers_of(raw) == [("missing_context", "/nodes/0/plan/intents/0/refs/a")]
    assert check(raw, context={"cbu": 7}).sub_plans[0].nodes[0].arguments == {"a": 7}


def test_too_deeply_nested_sub_plans_are_rejected() -> None:
    raw: Any = {"plan": 1, "nodes": [{"id": "a", "tool": "t"}]}
    for added_levels in (32, 300):
        for _ in range(added_levels):
            raw = plan_with_sub_plans(raw)
        assert {code for code, _ in codes_and_pointers_of(raw)} == {"too_large"}


_EMPTY_DOCUMENTS: list[Any] = [
    *({}, [], {"nodes": []}, {"plan": []}, {"steps": []}),
    *(plan_with_sub_plans({}), plan_with_sub_plans([]), plan_with_sub_plans({"plan": 1, "nodes": []})),
]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        *((raw, "empty_plan") for raw in _EMPTY_DOCUMENTS),
        ({"plan": 1}, "invalid_field"),
        (plan_with_sub_plans({"x": 1}), "invalid_field"),
    ],
)
def test_document_without_nodes_has_one_problem(raw: Any, code: str) -> None:
    assert [actual for actual, _ in codes_and_pointers_of(raw)] == [code]


@pytest.mark.parametrize("raw", [None, True, 7, {"sub_goal": []}])
def test_value_of_an_unknown_shape_is_rejected_with_a_list_of_the_dialects(raw: Any) -> None:
    (problem,) = problems_of(raw)
    assert (problem.code, problem.pointer) == ("invalid_field", "")
    assert all(f"({name})" in problem.message for name in Dialect)
    assert problem.hint == ("did you mean 'sub_goals'?" if raw == {"sub_goal": []} else None)


def test_unknown_dialect_is_rejected() -> None:
    (problem,) = problems_of([], dialect="yaml")
    assert problem.message == f"unknown dialect 'yaml'; the dialects are {', '.join(Dialect)}"


def test_key_plan_selects_the_dialect_plan() -> None:
    assert detect_dialect({"plan": 1, "dag": []}) == "plan"
    with pytest.raises(PlanInvalid):
        check({"plan": 1, "dag": [], "nodes": [{"id": "a", "tool": "t"}]})
