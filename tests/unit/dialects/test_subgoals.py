"""The dialect `subgoals`."""

from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.expressions.reference_resolution import Scope, resolve_bindings
from dagwright.dialects import to_document
from tests.conformance.kit import check, codes_of, problems_of

SLOTS = ["plain", "odd slot", 'quo"te', "a.b", "}}", "0", "ключ"]
SOURCE: dict[str, Any] = {"id": 1, "worker": "w", "outputs": SLOTS}


def ref(slot: str, number: Any = 1) -> dict[str, Any]:
    return {"from_sub_goal": number, "slot": slot}


def test_sub_goal_becomes_a_worker_node() -> None:
    entry: Any = {
        **{"id": 12, "worker": "es_query_gen", "description": "Write the query", "params": {"size": 5}},
        "inputs": {"found": ref("plain"), "all": [ref("odd slot"), ref("plain")]},
        **{"outputs": ["es_query"], "goal_type": "support"},
    }
    plain = "{{sg1.result.plain}}"
    document = to_document({"sub_goals": [entry, SOURCE]})
    assert document.plan["nodes"][0] == {
        **{"id": "sg12", "title": "Write the query", "tool": "es_query_gen"},
        "arguments": {"size": 5, "found": plain, "all": ['{{sg1.result["odd slot"]}}', plain]},
        "metadata": {"outputs": ["es_query"], "goal_type": "support"},
    }


@pytest.mark.parametrize("slot", SLOTS)
def test_any_slot_name_gets_the_value_of_that_slot(slot: str) -> None:
    plan = compile_plan(check({"sub_goals": [SOURCE, {"id": 2, "worker": "w", "inputs": {"x": ref(slot)}}]}))
    outputs = {name: [name] for name in SLOTS}
    scope = Scope(node_value=lambda _, __: outputs, inputs={})
    assert resolve_bindings(dict(plan.nodes[1].arguments), plan.nodes[1].bindings, scope=scope) == {"x": [slot]}
    assert plan.nodes[1].is_worker


def test_unknown_slots_and_keys_or_ids_given_twice_are_refused() -> None:
    (problem,) = problems_of({"sub_goals": [SOURCE, {"id": 2, "worker": "w", "inputs": {"x": [ref("plian")]}}]})
    assert (problem.code, problem.pointer) == ("invalid_reference", "/sub_goals/1/inputs/x/0/slot")
    assert problem.hint == "did you mean 'plain'?"
    raw = {"sub_goals": [SOURCE, {"id": 2, "worker": "w", "params": {"x": 1}, "inputs": {"x": ref("plain")}}]}
    assert codes_of(raw) == [("invalid_field", "/sub_goals/1/inputs/x")]
    (problem,) = problems_of({"sub_goals": [SOURCE, SOURCE]})
    assert (problem.code, problem.pointer, problem.node) == ("duplicate_id", "/sub_goals/1/id", "sg1")


@pytest.mark.parametrize(
    ("given", "code", "place"),
    [
        (ref("plain", 9), "invalid_reference", "/from_sub_goal"),
        *((ref("plain", number), "invalid_field", "") for number in ("1", True)),
        *((wrong, "invalid_field", "") for wrong in ({"slot": "plain"}, {"from_sub_goal": 1}, "sg1.plain", None)),
        ({**ref("plain"), "path": "x"}, "invalid_field", "/path"),
        ([[ref("plain")]], "invalid_field", "/0"),
    ],
)
def test_malformed_input_is_reported_at_its_key(given: Any, code: str, place: str) -> None:
    raw = {"sub_goals": [SOURCE, {"id": 2, "worker": "w", "inputs": {"x": given}}]}
    assert codes_of(raw) == [(code, f"/sub_goals/1/inputs/x{place}")]


@pytest.mark.parametrize("number", ["1", 1.5, True, None, -1, 10**400])
def test_id_must_be_a_whole_number(number: Any) -> None:
    assert codes_of({"sub_goals": [{"id": number, "worker": "w"}]}) == [("invalid_field", "/sub_goals/0/id")]


def test_answer_of_a_planner_is_parsed_completely() -> None:
    checked = check({"action": "continue", "reasoning": "Look first.", "sub_goals": [SOURCE]})
    assert checked.plan.metadata == {"reasoning": "Look first."}
    expected = [("invalid_field", "/action"), ("invalid_field", "/reasoning")]
    assert codes_of({"action": "failed", "reasoning": 7, "sub_goals": [SOURCE]}) == expected


def test_state_of_a_sub_goal_must_be_that_of_one_which_has_not_run() -> None:
    fresh = {**SOURCE, "status": "pending", "result": None, "error": None}
    assert check({"sub_goals": [fresh]}).levels == [["sg1"]]
    done = {**SOURCE, "status": "success", "result": {"plain": 1}, "goal_type": "other"}
    assert codes_of({"sub_goals": [done]}) == [
        ("invalid_field", "/sub_goals/0/result"),
        ("invalid_field", "/sub_goals/0/status"),
        ("invalid_field", "/sub_goals/0/goal_type"),
    ]
