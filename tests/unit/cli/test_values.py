"""Values of inputs as text: each as its declared type wants it."""

import io
import json
from typing import Any

import pytest

from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.plans import read_pairs, read_plan, typed_value


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({}, "7", "7"),
        ({"type": "string"}, "7", "7"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "7.0", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["integer", "string"]}, "seven", "seven"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["a", "b"]}, "c", "c"),
    ],
)
def test_text_becomes_the_declared_type(schema: dict[str, Any], text: str, value: Any) -> None:
    typed = typed_value(schema, text)
    assert (type(typed), typed) == (type(value), value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "7.5"),
        ("integer", "true"),
        ("number", "NaN"),
        ("boolean", "1"),
        ("array", "{}"),
        ("object", "x"),
        ("array", "[" * 100_000),
    ],
)
def test_text_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"is no {kind}"):
        typed_value({"type": kind}, text)


def test_pairs_split_at_the_first_sign() -> None:
    assert read_pairs(["a=b=c", "empty="], option="--input") == {"a": "b=c", "empty": ""}
    with pytest.raises(CommandRefused, match="--input takes KEY=VALUE, not '=x'"):
        read_pairs(["=x"], option="--input")


def test_plan_of_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in ({"nodes": [1]}, {"nodes": [2]}):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(plan).encode())))
        assert [read_plan("-"), read_plan("-")] == [plan, plan]
