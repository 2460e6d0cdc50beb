"""The dialect `tasks`."""

from typing import Any

import pytest

from dagwright.dialects import to_document
from tests.conformance.kit import check, codes_of, problems_of


def task(task_id: str, query: str = "x", dependencies: list[str] | None = None) -> dict[str, Any]:
    return {"id": task_id, "tool": "t", "query": query, "dependencies": dependencies or []}


def test_query_is_the_one_argument() -> None:
    document = to_document({"dag": [task("a", "17 * {{b.result}}", ["b"]), task("b")]})
    assert document.plan == {
        "plan": 1,
        "nodes": [
            {"id": "a", "tool": "t", "arguments": {"query": "17 * {{b.result}}"}, "depends_on": ["b"]},
            {"id": "b", "tool": "t", "arguments": {"query": "x"}, "depends_on": []},
        ],
    }


def test_reference_next_to_the_dependencies_adds_the_edge_and_a_note() -> None:
    queries = "{{b.result}} {{b.result.x}} {{c.result}}"
    checked = check({"dag": [task("a", queries, ["c"]), task("b"), task("c")]})
    assert checked.levels == [["b", "c"], ["a"]]
    assert [(note.code, note.node) for note in checked.notes] == [("added_edge", "a")]
    assert "'b'" in checked.notes[0].message


@pytest.mark.parametrize("task_id", ["a b", "a.b", "ä", "a/b", "a\n", "task(1)"])
def test_id_with_other_characters_is_refused(task_id: str) -> None:
    (problem,) = problems_of({"dag": [task(task_id)]})
    assert (problem.code, problem.pointer) == ("invalid_field", "/dag/0/id")
    assert problem.hint is not None


def test_places_are_those_of_the_document_and_other_keys_are_refused() -> None:
    raw = {"dag": [task("a", "{{c.result}}", ["b", "d"]), task("b")]}
    assert codes_of(raw) == [("invalid_reference", "/dag/0/query"), ("unknown_dependency", "/dag/0/dependencies/1")]
    assert codes_of({"dag": [task("a")], "title": "x"}) == [("invalid_field", "/title")]
    unnamed: Any = {"dag": [{"tool": "t", "query": "", "dependencies": []}, task("task_1"), {"id": "task 1"}]}
    assert [node["id"] for node in to_document(unnamed).plan["nodes"]] == ["task 1'", "task_1", "task 1"]
