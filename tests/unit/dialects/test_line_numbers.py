"""Mapping of problems in a text to their lines."""

import pytest

from dagwright.core.errors import Problem
from dagwright.dialects.line_numbers import lines_of_problems

YAML = """\
plan: 1
nodes:
  - id: sum
    tool: calculator
    arguments:
      expression: 1 + 2
  - {id: other,
     "a/b": [1,
             2]}
"""
JSON = """{
\t"plan": 1,
\t"nodes": [
\t\t{"id": "sum",
\t\t "tool": "calculator"}
\t]
}"""


def lines_of_pointers(text: str, *pointers: str) -> list[int | None]:
    return lines_of_problems(text, [Problem("invalid_field", "wrong", pointer) for pointer in pointers])


def test_pointer_is_mapped_to_the_line_of_its_key() -> None:
    actual = lines_of_pointers(YAML, "", "/nodes/0", "/nodes/0/arguments/expression", "/nodes/1/id", "/nodes/1/a~1b/1")
    assert actual == [1, 3, 6, 7, 9]
    assert lines_of_pointers(JSON, "/plan", "/nodes", "/nodes/0", "/nodes/0/tool") == [2, 3, 4, 5]
    assert lines_of_pointers(YAML, "/nodes/0/timeout", "/nodes/7", "/inputs/number") == [3, 2, 1]
    assert lines_of_pointers("a: &x [1]\nb: *x\n", "/b/0") == [2]


def test_problem_of_an_invalid_text_has_the_line_that_its_message_names() -> None:
    message = "the plan is not valid YAML: a ':' stands where no key can be at line 4, column 2"
    assert lines_of_problems("a: [", [Problem("invalid_syntax", message)]) == [4]


@pytest.mark.parametrize("text", ["", "? [1, 2]\n: x\n", "a: &x [1]\nb: *x\n", "[" * 2_000, '{"a": "\\ud83d"}'])
def test_unusual_texts_are_mapped_without_an_error(text: str) -> None:
    assert len(lines_of_pointers(text, "", "/a/0", "/b")) == 3
