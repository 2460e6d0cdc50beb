"""The dialects `steps`, `agents`, `tasks` and `subgoals`."""

from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.expressions.references import Scope, resolve_bindings
from dagwright.dialects import to_document
from tests.conformance.kit import check, codes_and_pointers_of, problems_of

STEP = {"id": "a", "intent": "Find it", "tool": "t", "arguments": {"input": {}}}
AGENT: dict[str, Any] = {"id": "a", "agent": "w", "objective": ""}


@pytest.mark.parametrize(
    ("raw", "pointer_prefix"), [([STEP], ""), ({"steps": [STEP]}, "/steps"), ({"plan": [STEP]}, "/plan")]
)
def test_list_of_steps_may_be_the_document_or_the_value_of_a_key(raw: Any, pointer_prefix: str) -> None:
    document = to_document(raw)
    assert document.dialect == "steps"
    assert document.plan["nodes"] == [{"id": "a", "title": "Find it", "tool": "t", "arguments": {"input": {}}}]
    assert document.written_pointer("/nodes/0/title") == f"{pointer_prefix}/0/intent"
    assert document.written_pointer("/nodes/0/arguments/input") == f"{pointer_prefix}/0/arguments/input"


@pytest.mark.parametrize(
    ("entry", "key", "pointer_prefix"),
    [
        (STEP, "depends_on", ""),
        ({"id": "a", "agent": "x", "objective": "y"}, "depends_on", "/nodes"),
        ({"id": "a", "tool": "t", "query": "q"}, "dependencies", "/dag"),
    ],
    ids=["steps", "agents", "tasks"],
)
def test_dependency_problems_after_an_invalid_entry_have_the_right_index(
    entry: Any, key: str, pointer_prefix: str
) -> None:
    entries = [{**entry, "id": "b", key: []}, {**entry, key: ["b", 7, "unknown", None, "missing"]}]
    raw = {pointer_prefix[1:]: entries} if pointer_prefix else entries
    assert codes_and_pointers_of(raw) == [
        ("invalid_field", f"{pointer_prefix}/1/{key}/1"),
        ("invalid_field", f"{pointer_prefix}/1/{key}/3"),
        ("unknown_dependency", f"{pointer_prefix}/1/{key}/2"),
        ("unknown_dependency", f"{pointer_prefix}/1/{key}/4"),
    ]


def test_invalid_fields_of_a_step_are_reported_with_their_pointers() -> None:
    raw = [{"id": "", "intent": 7, "tool": " ", "arguments": [], "depends_on": "b", "title": "x"}]
    field_names = ["arguments", "depends_on", "id", "intent", "title", "tool"]
    assert sorted(codes_and_pointers_of(raw)) == [("invalid_field", f"/0/{name}") for name in field_names]


def test_agents_keep_objective_dependencies_and_metadata() -> None:
    node: Any = {"id": "b", "agent": "writer", "objective": "Write", "depends_on": ["c", "a"]}
    node_a = {**AGENT, "id": "a"}
    node_c = {**AGENT, "id": "c"}
    document = to_document({"nodes": [node, node_a, node_c], "metadata": {"k": [1]}})
    assert (document.dialect, document.plan["metadata"]) == ("agents", {"k": [1]})
    assert document.plan["nodes"] == [node, {**node_a, "depends_on": []}, {**node_c, "depends_on": []}]
    assert codes_and_pointers_of({"nodes": [AGENT], "metadata": []}) == [("invalid_field", "/metadata")]


@pytest.mark.parametrize(
    ("raw", "dialect"),
    [
        ({"nodes": [AGENT]}, "agents"),
        ({"nodes": [{"id": "a", "agent": "w", "objectve": ""}], "metadata": None}, "agents"),
        ({"plan": 1, "nodes": [AGENT]}, "plan"),
        ({"nodes": [{**AGENT, "when": "true"}]}, "plan"),
        ({"nodes": [AGENT], "output": "x"}, "plan"),
        ({"nodes": [AGENT, {"id": "b", "tool": "t"}]}, "plan"),
        ({"nodes": [{"id": "a"}]}, "plan"),
        ({"nodes": 7}, "plan"),
    ],
)
def test_dialect_depends_on_the_keys_of_the_document_and_of_its_nodes(raw: Any, dialect: str) -> None:
    assert to_document(raw, dialect=None if dialect == "plan" else dialect).dialect == dialect
    assert to_document(raw).dialect == dialect


def task(task_id: str, query: str = "x", dependencies: list[str] | None = None) -> dict[str, Any]:
    return {"id": task_id, "tool": "t", "query": query, "dependencies": dependencies or []}


def test_reference_without_a_declared_dependency_adds_the_edge_and_a_note() -> None:
    queries = "{{b.result}} {{b.result.x}} {{c.result}}"
    checked_plan = check({"dag": [task("a", queries, ["c"]), task("b"), task("c")]})
    assert checked_plan.levels == [["b", "c"], ["a"]]
    assert [(note.code, note.node_id) for note in checked_plan.notes] == [("added_edge", "a")]
    assert "'b'" in checked_plan.notes[0].message


@pytest.mark.parametrize("task_id", ["a b", "a.b", "ä", "a/b", "a\n", "task(1)"])
def test_task_id_with_invalid_characters_is_rejected(task_id: str) -> None:
    (problem,) = problems_of({"dag": [task(task_id)]})
    assert (problem.code, problem.pointer) == ("invalid_field", "/dag/0/id")
    assert problem.hint is not None


def test_pointers_refer_to_the_document_and_unknown_keys_are_rejected() -> None:
    raw = {"dag": [task("a", "{{c.result}}", ["b", "d"]), task("b")]}
    expected = [("invalid_reference", "/dag/0/query"), ("unknown_dependency", "/dag/0/dependencies/1")]
    assert codes_and_pointers_of(raw) == expected
    assert codes_and_pointers_of({"dag": [task("a")], "title": "x"}) == [("invalid_field", "/title")]


def test_missing_task_id_is_replaced_by_a_unique_id() -> None:
    dag: list[Any] = [{"tool": "t", "query": "", "dependencies": []}, task("task_1"), {"id": "task 1"}]
    assert [node["id"] for node in to_document({"dag": dag}).plan["nodes"]] == ["task 1'", "task_1", "task 1"]


SLOTS = ["plain", "odd slot", 'quo"te', "a.b", "}}", "0", "ключ"]
SOURCE_SUB_GOAL: dict[str, Any] = {"id": 1, "worker": "w", "outputs": SLOTS}


def slot_ref(slot: str, sub_goal_id: Any = 1) -> dict[str, Any]:
    return {"from_sub_goal": sub_goal_id, "slot": slot}


def test_sub_goal_becomes_a_call_of_its_worker_tool() -> None:
    entry: Any = {
        **{"id": 12, "worker": "es_query_gen", "description": "Write the query", "params": {"size": 5}},
        "inputs": {"found": slot_ref("plain"), "all": [slot_ref("odd slot"), slot_ref("plain")]},
        **{"outputs": ["es_query"], "goal_type": "support"},
    }
    plain_reference = "{{sg1.result.plain}}"
    document = to_document({"sub_goals": [entry, SOURCE_SUB_GOAL]})
    assert document.plan["nodes"][0] == {
        **{"id": "sg12", "title": "Write the query", "tool": "es_query_gen"},
        "arguments": {"size": 5, "found": plain_reference, "all": ['{{sg1.result["odd slot"]}}', plain_reference]},
        "metadata": {"outputs": ["es_query"], "goal_type": "support"},
    }


@pytest.mark.parametrize("slot", SLOTS)
def test_input_is_the_value_of_its_slot_for_any_slot_name(slot: str) -> None:
    plan = compile_plan(
        check({"sub_goals": [SOURCE_SUB_GOAL, {"id": 2, "worker": "w", "inputs": {"x": slot_ref(slot)}}]})
    )
    outputs = {name: [name] for name in SLOTS}
    scope = Scope(get_node_value=lambda _, __: outputs, inputs={})
    assert resolve_bindings(dict(plan.nodes[1].arguments), plan.nodes[1].bindings, scope=scope) == {"x": [slot]}
    assert plan.nodes[1].is_worker


def test_unknown_slots_and_duplicate_keys_or_ids_are_rejected() -> None:
    (problem,) = problems_of(
        {"sub_goals": [SOURCE_SUB_GOAL, {"id": 2, "worker": "w", "inputs": {"x": [slot_ref("plian")]}}]}
    )
    assert (problem.code, problem.pointer) == ("invalid_reference", "/sub_goals/1/inputs/x/0/slot")
    assert problem.hint == "did you mean 'plain'?"
    raw = {
        "sub_goals": [SOURCE_SUB_GOAL, {"id": 2, "worker": "w", "params": {"x": 1}, "inputs": {"x": slot_ref("plain")}}]
    }
    assert codes_and_pointers_of(raw) == [("invalid_field", "/sub_goals/1/inputs/x")]
    (problem,) = problems_of({"sub_goals": [SOURCE_SUB_GOAL, SOURCE_SUB_GOAL]})
    assert (problem.code, problem.pointer, problem.node_id) == ("duplicate_id", "/sub_goals/1/id", "sg1")


@pytest.mark.parametrize(
    ("value", "code", "pointer"),
    [
        (slot_ref("plain", 9), "invalid_reference", "/from_sub_goal"),
        *((slot_ref("plain", sub_goal_id), "invalid_field", "") for sub_goal_id in ("1", True)),
        *((value, "invalid_field", "") for value in ({"slot": "plain"}, {"from_sub_goal": 1}, "sg1.plain", None)),
        ({**slot_ref("plain"), "path": "x"}, "invalid_field", "/path"),
        ([[slot_ref("plain")]], "invalid_field", "/0"),
    ],
)
def test_malformed_input_is_reported_at_its_key(value: Any, code: str, pointer: str) -> None:
    raw = {"sub_goals": [SOURCE_SUB_GOAL, {"id": 2, "worker": "w", "inputs": {"x": value}}]}
    assert codes_and_pointers_of(raw) == [(code, f"/sub_goals/1/inputs/x{pointer}")]


def test_action_and_reasoning_of_a_planner_response_are_checked() -> None:
    checked_plan = check({"action": "continue", "reasoning": "Look first.", "sub_goals": [SOURCE_SUB_GOAL]})
    assert checked_plan.plan.metadata == {"reasoning": "Look first."}
    expected = [("invalid_field", "/action"), ("invalid_field", "/reasoning")]
    assert codes_and_pointers_of({"action": "failed", "reasoning": 7, "sub_goals": [SOURCE_SUB_GOAL]}) == expected


def test_executed_sub_goal_is_rejected_and_a_pending_sub_goal_is_valid() -> None:
    pending_sub_goal = {**SOURCE_SUB_GOAL, "status": "pending", "result": None, "error": None}
    assert check({"sub_goals": [pending_sub_goal]}).levels == [["sg1"]]
    executed_sub_goal = {**SOURCE_SUB_GOAL, "status": "success", "result": {"plain": 1}, "goal_type": "other"}
    assert codes_and_pointers_of({"sub_goals": [executed_sub_goal]}) == [
        ("invalid_field", "/sub_goals/0/result"),
        ("invalid_field", "/sub_goals/0/status"),
        ("invalid_field", "/sub_goals/0/goal_type"),
    ]
