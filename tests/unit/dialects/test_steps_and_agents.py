"""The dialects `steps` and `agents`."""

from typing import Any

import pytest

from dagwright.dialects import to_document
from tests.conformance.kit import check, codes_of

STEP = {"id": "a", "intent": "Find it", "tool": "t", "arguments": {"input": {}}}
AGENT = {"id": "a", "agent": "w", "objective": ""}


@pytest.mark.parametrize(("raw", "at"), [([STEP], ""), ({"steps": [STEP]}, "/steps"), ({"plan": [STEP]}, "/plan")])
def test_list_of_steps_may_be_alone_or_under_a_key(raw: Any, at: str) -> None:
    document = to_document(raw)
    assert document.dialect == "steps"
    assert document.plan["nodes"] == [{"id": "a", "title": "Find it", "tool": "t", "arguments": {"input": {}}}]
    assert document.written_pointer("/nodes/0/title") == f"{at}/0/intent"
    assert document.written_pointer("/nodes/0/arguments/input") == f"{at}/0/arguments/input"


def test_edges_of_a_step_are_references_and_depends_on() -> None:
    first, second = {**STEP, "id": "b.1 (x)"}, {**STEP, "id": "c"}
    last = {**STEP, "arguments": {"x": "{{b.1 (x).result}}"}, "depends_on": ["c"]}
    assert check([last, first, second]).levels == [["b.1 (x)", "c"], ["a"]]


@pytest.mark.parametrize(
    ("entry", "key", "at"),
    [
        (STEP, "depends_on", ""),
        ({"id": "a", "agent": "x", "objective": "y"}, "depends_on", "/nodes"),
        ({"id": "a", "tool": "t", "query": "q"}, "dependencies", "/dag"),
    ],
    ids=["steps", "agents", "tasks"],
)
def test_problems_after_a_non_text_are_reported_at_their_own_place(entry: Any, key: str, at: str) -> None:
    entries = [{**entry, "id": "b", key: []}, {**entry, key: ["b", 7, "nobody", None, "neither"]}]
    raw = {at[1:]: entries} if at else entries
    assert codes_of(raw) == [
        ("invalid_field", f"{at}/1/{key}/1"),
        ("invalid_field", f"{at}/1/{key}/3"),
        ("unknown_dependency", f"{at}/1/{key}/2"),
        ("unknown_dependency", f"{at}/1/{key}/4"),
    ]


def test_wrong_fields_of_a_step_are_reported_under_their_own_names() -> None:
    raw = [{"id": "", "intent": 7, "tool": " ", "arguments": [], "depends_on": "b", "title": "x"}]
    names = ["arguments", "depends_on", "id", "intent", "title", "tool"]
    assert sorted(codes_of(raw)) == [("invalid_field", f"/0/{name}") for name in names]


def test_agents_keep_objective_dependencies_and_metadata() -> None:
    node: Any = {"id": "b", "agent": "writer", "objective": "Write", "depends_on": ["c", "a"]}
    others: Any = [{"id": name, "agent": "reader", "objective": ""} for name in ("a", "c")]
    document = to_document({"nodes": [node, *others], "metadata": {"k": [1]}})
    assert (document.dialect, document.plan["metadata"]) == ("agents", {"k": [1]})
    assert document.plan["nodes"] == [node, *({**other, "depends_on": []} for other in others)]
    assert codes_of({"nodes": [AGENT], "metadata": []}) == [("invalid_field", "/metadata")]


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
def test_nodes_with_other_fields_are_not_agent_nodes(raw: Any, dialect: str) -> None:
    assert to_document(raw, dialect=None if dialect == "plan" else dialect).dialect == dialect
    assert to_document(raw).dialect == dialect
