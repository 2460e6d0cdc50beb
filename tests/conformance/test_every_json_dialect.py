"""Rules that apply to every dialect with JSON documents.

The module `kit` writes the documents: `dialect.write({1: [], 2: [1]})` has two nodes, and node 2 depends on node 1.
"""

import itertools
from typing import Any

import pytest

from dagwright.core.errors import pointer
from tests.conformance.kit import JSON_DIALECTS, Dialect, check, codes_and_pointers_of, problems_of, value_at

pytestmark = pytest.mark.parametrize("dialect", JSON_DIALECTS, ids=lambda dialect: dialect.name)

WRONG_VALUES: tuple[Any, ...] = (None, True, 7, -0.5, "", "{{", [], [None], {}, {"": None}, [[[]]])


def test_empty_list_of_entries_is_reported(dialect: Dialect) -> None:
    raw = [] if not dialect.entries_path else {dialect.entries_path[0]: []}
    (problem,) = problems_of(raw, dialect=dialect.name)
    assert (problem.code, problem.pointer) == ("empty_plan", pointer(*dialect.entries_path))


def test_unknown_key_is_reported_with_the_most_similar_known_key(dialect: Dialect) -> None:
    raw = dialect.write({1: [], 2: [1]})
    unknown_key = dialect.tool_key + "s"
    dialect.entries_of(raw)[1][unknown_key] = "x"
    (problem,) = problems_of(raw, dialect=dialect.name)
    assert (problem.code, problem.pointer) == ("invalid_field", dialect.entry_pointer(1, unknown_key))
    assert problem.hint == f"did you mean {dialect.tool_key!r}?"


def test_invalid_entries_are_reported_together_with_other_problems(dialect: Dialect) -> None:
    raw = dialect.write({1: [], 2: [1], 3: [3]})
    dialect.entries_of(raw)[1] = 7
    del dialect.entries_of(raw)[0][dialect.tool_key]
    codes = [code for code, _ in codes_and_pointers_of(raw, dialect=dialect.name)]
    assert codes.count("invalid_field") == 2
    assert "self_dependency" in codes


def test_missing_required_key_and_wrong_type_are_reported(dialect: Dialect) -> None:
    for key in dialect.required_keys:
        raw = dialect.write({1: []})
        (entry,) = dialect.entries_of(raw)
        entry[key] = 0.5
        assert codes_and_pointers_of(raw, dialect=dialect.name) == [("invalid_field", dialect.entry_pointer(0, key))]
        del entry[key]
        assert codes_and_pointers_of(raw, dialect=dialect.name) == [("invalid_field", dialect.entry_pointer(0))]


def test_problems_of_any_wrong_value_have_existing_pointers(dialect: Dialect) -> None:
    keys = sorted(dialect.entries_of(dialect.write({1: []}))[0])
    for key, value in [*itertools.product(keys, WRONG_VALUES), *((None, value) for value in WRONG_VALUES)]:
        raw = dialect.write({1: [], 2: [1], 3: [2]})
        if key is None:
            dialect.entries_of(raw)[0] = value
        else:
            dialect.entries_of(raw)[1][key] = value
        for problem in problems_of(raw, dialect=dialect.name):
            value_at(raw, problem.pointer)


def test_sub_plan_in_the_dialect_is_checked_and_its_problems_have_pointers_into_the_plan(dialect: Dialect) -> None:
    sub_plan = dialect.write({1: [], 2: []})
    plan = {"plan": 1, "nodes": [{"id": "first", "tool": "t"}, {"id": "sub", "plan": sub_plan}]}
    assert check(plan).sub_plans[1].levels == [[dialect.node_id_of(1), dialect.node_id_of(2)]]
    dialect.entries_of(sub_plan)[1][dialect.tool_key + "s"] = "x"
    dialect.entries_of(sub_plan)[0] = 7
    sub_plan_pointer = pointer("nodes", 1, "plan")
    assert codes_and_pointers_of(plan) == [
        ("invalid_field", sub_plan_pointer + dialect.entry_pointer(0)),
        ("invalid_field", sub_plan_pointer + dialect.entry_pointer(1, dialect.tool_key + "s")),
    ]
