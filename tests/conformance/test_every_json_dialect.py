"""Rules that apply to every dialect with JSON documents; `kit` writes a graph in each dialect."""

import itertools
from typing import Any

import pytest

from dagwright.core.errors import pointer
from tests.conformance.kit import JSON_DIALECTS, Dialect, check, codes_of, problems_of, value_at

pytestmark = pytest.mark.parametrize("dialect", JSON_DIALECTS, ids=lambda dialect: dialect.name)

WRONG_VALUES: tuple[Any, ...] = (None, True, 7, -0.5, "", "{{", [], [None], {}, {"": None}, [[[]]])


def entry_at(dialect: Dialect, index: int, *keys: str | int) -> str:
    return pointer(*dialect.list_payloads, index, *keys)


def test_empty_list_is_an_empty_plan(dialect: Dialect) -> None:
    raw = [] if not dialect.list_payloads else {dialect.list_payloads[0]: []}
    (problem,) = problems_of(raw, dialect=dialect.name)
    assert (problem.code, problem.pointer) == ("empty_plan", pointer(*dialect.list_payloads))


def test_unknown_key_is_reported_with_the_nearest_known_one(dialect: Dialect) -> None:
    raw = dialect.write({1: [], 2: [1]})
    wrong = dialect.tool_key + "s"
    dialect.entries_of(raw)[1][wrong] = "x"
    (problem,) = problems_of(raw, dialect=dialect.name)
    assert (problem.code, problem.pointer) == ("invalid_field", entry_at(dialect, 1, wrong))
    assert problem.hint == f"did you mean {dialect.tool_key!r}?"


def test_wrong_entries_are_reported_together_with_what_is_wrong_elsewhere(dialect: Dialect) -> None:
    raw = dialect.write({1: [], 2: [1], 3: [3]})
    dialect.entries_of(raw)[1] = 7
    del dialect.entries_of(raw)[0][dialect.tool_key]
    codes = [code for code, _ in codes_of(raw, dialect=dialect.name)]
    assert codes.count("invalid_field") == 2
    assert "self_dependency" in codes


def test_required_key_that_is_missing_or_has_a_wrong_type_is_reported(dialect: Dialect) -> None:
    for key in dialect.required:
        raw = dialect.write({1: []})
        (entry,) = dialect.entries_of(raw)
        entry[key] = 0.5
        (first, *more) = codes_of(raw, dialect=dialect.name)
        assert first == ("invalid_field", entry_at(dialect, 0, key))
        assert not more or dialect.name == "plan"
        del entry[key]
        assert codes_of(raw, dialect=dialect.name) == [("invalid_field", entry_at(dialect, 0))]


def test_any_value_anywhere_is_reported_with_a_pointer_into_the_document(dialect: Dialect) -> None:
    keys = sorted(dialect.entries_of(dialect.write({1: []}))[0])
    for key, value in [*itertools.product(keys, WRONG_VALUES), *((None, value) for value in WRONG_VALUES)]:
        raw = dialect.write({1: [], 2: [1], 3: [2]})
        if key is None:
            dialect.entries_of(raw)[0] = value
        else:
            dialect.entries_of(raw)[1][key] = value
        for problem in problems_of(raw, dialect=dialect.name):
            value_at(raw, problem.pointer)


def test_document_as_a_sub_plan_is_read_and_reported_in_place(dialect: Dialect) -> None:
    inner = dialect.write({1: [], 2: []})
    plan = {"plan": 1, "nodes": [{"id": "first", "tool": "t"}, {"id": "sub", "plan": inner}]}
    checked = check(plan)
    assert checked.sub_plans[1].levels == [[dialect.id_of(1), dialect.id_of(2)]]
    dialect.entries_of(inner)[1][dialect.tool_key + "s"] = "x"
    dialect.entries_of(inner)[0] = 7
    at = pointer("nodes", 1, "plan")
    assert codes_of(plan) == [
        ("invalid_field", at + entry_at(dialect, 0)),
        ("invalid_field", at + entry_at(dialect, 1, dialect.tool_key + "s")),
    ]
