"""What a newcomer reads after a mistake in the syntax of a plan: words that say what to change."""

import pytest

from dagwright.core.model.errors import PlanInvalid
from dagwright.dialects.reading import read_text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.yaml", "nodes:\n\t- id: a\n", "a tab; YAML is indented with spaces only at line 2, column 1"),
        (
            "p.yaml",
            "nodes:\n  - id: a\n     tool: b\n",
            "this line is indented more than the line before it, which has a value already at line 3, column 10",
        ),
        ("p.yaml", "a: b: c\n", "a ':' stands where no key can be; put the text in quotes at line 1, column 5"),
        ("p.json", '{"a": [1,]}', "a comma before ']' that must go at line 1, column 10"),
        ("p.json", '{"a": 1,\n}', "a comma before '}' that must go at line 2, column 1"),
        ("p.json", "{'a': 1}", "texts stand in double quotes at line 1, column 2"),
        ("p.json", '{"a": 1 "b": 2}', "a ',' is missing before this at line 1, column 9"),
        ("p.json", '{"a": 1', "the text ends before it is closed at line 1, column 8"),
        ("p.json", '{// x\n"a": 1}', "comments are not allowed; use YAML for them at line 1, column 2"),
    ],
)
def test_wrong_syntax_says_what_to_change(name: str, text: str, message: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        read_text(text, name=name)
    kind = "JSON" if name.endswith("json") else "YAML"
    assert [each.message for each in caught.value.problems] == [f"{name} is no valid {kind}: {message}"]


def test_reference_without_quotes_in_yaml_is_explained() -> None:
    with pytest.raises(PlanInvalid) as caught:
        read_text("a: {{b.result}}\n", name="p.yaml")
    assert "put {{…}} in quotes (line 1, column 5)" in caught.value.problems[0].message
