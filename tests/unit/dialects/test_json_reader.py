"""Strict JSON of plans: syntax errors, duplicate keys, and limits."""

from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.dialects.json_reader import MAX_DEPTH, json_problems, read_json


def problems_of(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(PlanInvalid) as caught:
        read_json(text, name="plan.json")
    return [(problem.code, problem.pointer, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,}', "a comma before '}'; remove it at line 1, column 9"),
        ('{\n "a" 1}', "expecting ':' delimiter at line 2, column 6"),
        ("[1] x", "extra data at line 1, column 5"),
        ('["\t"]', "invalid control character at line 1, column 3"),
        ("['a']", "write texts in double quotes at line 1, column 2"),
        ('["NaN",\n NaN]', "NaN is not a JSON number, or does not fit into a double at line 2, column 2"),
        ("[-Infinity]", "-Infinity is not a JSON number, or does not fit into a double at line 1, column 2"),
        ("[0, 1e999]", "1e999 is not a JSON number, or does not fit into a double at line 1, column 5"),
        (
            f"[{'9' * 5000}]",
            "999999999999… (5000 characters) is not a JSON number, or does not fit into a double at line 1, column 2",
        ),
    ],
)
def test_syntax_error_has_its_line_and_column(text: str, message: str) -> None:
    assert problems_of(text) == [("invalid_syntax", "", f"plan.json is not valid JSON: {message}")]


def test_duplicate_keys_and_lone_surrogates_are_rejected_with_their_pointers() -> None:
    assert problems_of('{"a": 1, "a": [{"b/c": 1, "b/c": 1, "b/c": 2}], "d": 0}') == [
        ("invalid_field", "/a", "the key 'a' occurs twice in one object"),
        ("invalid_field", "/a/0/b~1c", "the key 'b/c' occurs twice in one object"),
    ]
    message = "the text '\\\\ud800' holds a lone surrogate, which is not a character"
    assert problems_of('{"a": ["\\ud83d\\ude00", "\\ud800"]}') == [("invalid_syntax", "/a/1", message)]
    assert [code for code, _, _ in problems_of('{"\\udfff": 1}')] == ["invalid_syntax"]
    assert read_json('"\\ud83d\\ude00"', name="x") == "😀"


def test_too_deep_nesting_is_rejected() -> None:
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, name="x") is not None
    for text in ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "[" * 100_000, '{"a":' * 5_000):
        assert [code for code, _, _ in problems_of(text)] == ["too_large"]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": [float("nan")]}, "/a/0"),
        *(({"a": value}, "/a") for value in (float("inf"), 10**400, {1: 2}, "\ud800", (1, 2), b"x")),
    ],
)
def test_values_that_are_not_json_are_reported_with_their_location(value: Any, pointer: str) -> None:
    assert [(problem.code, problem.pointer) for problem in json_problems(value)] == [("invalid_syntax", pointer)]
