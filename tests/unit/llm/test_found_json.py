"""JSON in what a model wrote around it."""

from typing import Any

import pytest

from dagwright.llm.found_json import values_in


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": 1}', [{"a": 1}]),
        (" [1] \n", [[1]]),
        ('Sure!\n```json\n{"a": "```"}\n```\nDone.', [{"a": "```"}]),
        ("```\n[1]\n```\nor\n```json\n[2]\n```", [[1], [2]]),
        ('It is {"a": {"b": [1]}} and {"c": 2}.', [{"a": {"b": [1]}}, {"c": 2}]),
        ('<think>{"no": 1}</think>\n{"yes": 1}', [{"yes": 1}]),
        ('{not json} {"a": 1}', [{"a": 1}]),
        ('{"a": 1', []),
        ("no JSON at all", []),
        ("", []),
    ],
)
def test_values_are_found(text: str, values: list[Any]) -> None:
    found: list[Any] = []
    for value in values_in(text):
        if value not in found:
            found.append(value)
    assert found == values


@pytest.mark.parametrize("text", ["{" * 200_000, "[" * 200_000, '{"a":' * 100_000])
def test_a_text_of_brackets_takes_no_time(text: str) -> None:
    assert list(values_in(text)) == []
