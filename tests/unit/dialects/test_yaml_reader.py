"""Reading of YAML texts, which may contain only JSON values."""

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dagwright.core.errors import PlanInvalid
from dagwright.dialects.yaml_reader import MAX_ALIASED_VALUES, read_yaml

texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def problems_of(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(PlanInvalid) as caught:
        read_yaml(text, name="p.yaml")
    return [(problem.code, problem.pointer, problem.message) for problem in caught.value.problems]


@settings(deadline=None)
@given(json_values)
def test_yaml_that_pyyaml_writes_is_read(value: Any) -> None:
    # PyYAML does not quote the texts 0E0 and 0o7. `read_yaml` reads YAML 1.2, in which these texts are numbers.
    assume(not re.search(r'"([-+]?[0-9.]+[eE][-+]?[0-9]+|0o[0-7]+)"', json.dumps(value)))
    text = yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=True)
    assert read_yaml(text, name="x") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            (text, text)
            for text in ("no", "on", "Yes", "off", "2024-01-15", "12:30", "1_000", "0b1", "1.2.3", "=", "<<")
        ),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        *((text, None) for text in ("", "~", "null", "Null", "NULL")),
        ("007", 7),
        ("-12", -12),
        ("+1", 1),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.5e-1", -0.05),
        ("1.", 1.0),
        ("'1'", "1"),
        ('"null"', "null"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: Any) -> None:
    (actual,) = dict(read_yaml(f"key: {text}", name="x")).values()  # type: ignore[arg-type]  # it is an object
    assert actual == value
    assert type(actual) is type(value)


@pytest.mark.parametrize(
    ("text", "pointer", "message"),
    [
        ("a: .inf", "/a", "p.yaml: '.inf' is not a JSON number, or does not fit into a double (line 1, column 4)"),
        ("a: [.NaN]", "/a/0", "p.yaml: '.NaN' is not a JSON number, or does not fit into a double (line 1, column 5)"),
        ("a:\n  1: x", "/a/1", "p.yaml: a key must be text: write '1' in quotes (line 2, column 3)"),
        ("? [a]\n: b", "", "p.yaml: a key must be text, not a list or an object (line 1, column 3)"),
        ("a: !!set x", "/a", "p.yaml: the tag 'tag:yaml.org,2002:set' is not allowed in a plan (line 1, column 4)"),
        ("a: !x {b: c}", "/a", "p.yaml: the tag '!x' is not allowed in a plan (line 1, column 4)"),
        ("a: 1\n---\nb: 2", "", "p.yaml: a second document starts; write one plan per file (line 2, column 1)"),
        ("a: *b", "/a", "p.yaml: the alias *b has no anchor before it, or stands inside its anchor (line 1, column 4)"),
        (
            "a: &b [*b]",
            "/a/0",
            "p.yaml: the alias *b has no anchor before it, or stands inside its anchor (line 1, column 8)",
        ),
        (
            "a: b: c",
            "",
            "p.yaml is not valid YAML: ':' is not allowed here; put the text in quotes at line 1, column 5",
        ),
        ("é: 1\na: \x07", "", "p.yaml is not valid YAML: control characters are not allowed at line 2, column 4"),
        ("a: [1", "", "p.yaml is not valid YAML: a ',' or the ']' of a list is missing at line 2, column 1"),
    ],
)
def test_values_outside_json_are_reported_with_their_line_and_column(text: str, pointer: str, message: str) -> None:
    assert problems_of(text) == [("invalid_syntax", pointer, message)]


def test_duplicate_keys_are_reported_with_their_pointers() -> None:
    assert problems_of("a: 1\nb:\n - c: 1\n   c: 2\na: 3\n") == [
        ("invalid_field", "/b/0/c", "the key 'c' occurs twice in one object"),
        ("invalid_field", "/a", "the key 'a' occurs twice in one object"),
    ]


def test_aliases_are_replaced_by_their_values_up_to_a_limit() -> None:
    assert read_yaml("a: &x {b: [1]}\nc: [*x, *x]", name="x") == {"a": {"b": [1]}, "c": [{"b": [1]}, {"b": [1]}]}
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    message = f"the aliases in p.yaml stand for more than {MAX_ALIASED_VALUES} values"
    assert problems_of("\n".join(lines)) == [("too_large", "", message)]
    chain = ["b0: &b0 [x]", *(f"b{n}: &b{n} [*b{n - 1}]" for n in range(1, 400))]
    assert [code for code, _, _ in problems_of("\n".join(chain))] == ["too_large"]


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 5_000 + "x", "{a: " * 5_000])
def test_too_deep_nesting_is_rejected(text: str) -> None:
    assert [code for code, _, _ in problems_of(text)] == ["too_large"]
