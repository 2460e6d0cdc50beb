"""The check of every example in `seeds/` has the expected result. The examples are in five dialects.

Each file in `seeds/` has a `document`, and either `valid` (the result of the check) or `errors` (the reported
problems). Some files have a `context` for the check, or `resolves`: the expected arguments of a node, for the listed
inputs and results.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.expressions.references import Scope, resolve_bindings
from dagwright.dialects import to_document
from tests.conformance.kit import check, problems_of

EXAMPLES = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "seeds").glob("*.json"))
}
VALID_EXAMPLES = {name: example for name, example in EXAMPLES.items() if "valid" in example}
INVALID_EXAMPLES = {name: example for name, example in EXAMPLES.items() if "errors" in example}
EXAMPLES_WITH_RESOLVED_ARGUMENTS = {name: example for name, example in EXAMPLES.items() if "resolves" in example}


def test_every_example_has_an_expected_outcome() -> None:
    assert VALID_EXAMPLES.keys() | INVALID_EXAMPLES.keys() == EXAMPLES.keys()
    dialects = {example["valid"]["dialect"] for example in VALID_EXAMPLES.values()}
    assert dialects == {"tasks", "steps", "agents", "intents", "subgoals"}


@pytest.mark.parametrize("name", VALID_EXAMPLES)
def test_valid_example_has_the_expected_graph(name: str) -> None:
    example, expected = VALID_EXAMPLES[name], VALID_EXAMPLES[name]["valid"]
    checked_plan = check(example["document"], context=example.get("context"))
    actual: dict[str, Any] = {
        "dialect": checked_plan.dialect,
        "levels": checked_plan.levels,
        "edge_count": checked_plan.edge_count,
        "critical_path": checked_plan.critical_path,
        "notes": [[note.code, note.node_id] for note in checked_plan.notes],
        "inputs": list(checked_plan.inputs),
        "lookups": [[lookup.search_text, lookup.entity_type] for lookup in checked_plan.lookups],
        "titles": [node.title for node in checked_plan.nodes],
        "metadata": checked_plan.plan.metadata,
        "arguments": [node.arguments for node in checked_plan.nodes],
    }
    assert {key: actual[key] for key in {"notes", *expected}} == {"notes": [], **expected}


@pytest.mark.parametrize("name", INVALID_EXAMPLES)
def test_invalid_example_has_the_expected_errors(name: str) -> None:
    example = INVALID_EXAMPLES[name]
    problems = problems_of(example["document"], context=example.get("context"))
    expected = example["errors"]
    assert [problem.code for problem in problems] == [error["code"] for error in expected]
    for problem, error in zip(problems, expected, strict=True):
        problem_json = problem.to_json()
        exact_fields = {key: value for key, value in error.items() if key != "hint"}
        assert {key: problem_json[key] for key in exact_fields} == exact_fields
        assert error.get("hint", "") in (problem.hint or "")


@pytest.mark.parametrize("name", EXAMPLES_WITH_RESOLVED_ARGUMENTS)
def test_arguments_are_resolved_as_expected(name: str) -> None:
    example, expected = EXAMPLES_WITH_RESOLVED_ARGUMENTS[name], EXAMPLES_WITH_RESOLVED_ARGUMENTS[name]["resolves"]
    plan = compile_plan(check(example["document"]))
    (node,) = (node for node in plan.nodes if node.id == expected["node"])
    scope = Scope(
        get_node_value=lambda node_id, part: expected["results"][node_id] if part == "result" else "completed",
        inputs=expected["inputs"],
    )
    assert resolve_bindings(dict(node.arguments), node.bindings, scope=scope) == expected["arguments"]


def test_arguments_with_a_binding_are_null_in_the_document() -> None:
    document = to_document(EXAMPLES["intents-onboarding"]["document"])
    for (number, key), _ in document.bindings.items():
        assert document.plan["nodes"][number]["arguments"][key] is None
    assert len(document.bindings) == 7
