"""Formatting of Markdown, generated parts of the reference pages, and code blocks of pages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from dagwright.core.boundary import limits as core_limits
from dagwright.core.error_codes import FailureCode, ProblemCode
from dagwright.interfaces.cli.exit_codes import CommandErrorCode
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.plans.schema import plan_schema
from scripts.format_markdown import format_markdown
from scripts.reference.__main__ import with_generated_parts
from scripts.reference.errors import rejection_codes, used_problem_codes
from scripts.reference.failures import failures_table, used_failure_codes
from scripts.reference.json_types import type_name
from scripts.reference.limits import with_unit
from scripts.reference.markdown import constant_descriptions, table
from scripts.reference.plan import examples
from tests.support import docs


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("One sentence. Another\none, e.g. this.\n", "One sentence.\nAnother one, e.g. this.\n"),
        ("- First. Second.\n- Third\n", "- First.\n  Second.\n- Third\n"),
        ("Run `a. B` now. See [a. B](c.md).\n", "Run `a. B` now.\nSee [a. B](c.md).\n"),
        ("| a | b |\n|---|---|\n| One. Two. | c |\n", "| a | b |\n| -- | -- |\n| One. Two. | c |\n"),
        ('```yaml title="a.yaml"\nb: "One. Two."\n```\n', '```yaml title="a.yaml"\nb: "One. Two."\n```\n'),
        ("!!! note\n\n    One. Two.\n", "!!! note\n\n    One.\n    Two.\n"),
    ],
)
def test_each_sentence_has_a_line_and_formatting_is_idempotent(text: str, formatted: str) -> None:
    assert format_markdown(text) == formatted
    assert format_markdown(formatted) == formatted


def test_generated_part_replaces_only_the_text_between_its_marks() -> None:
    page = "# Page\n\n<!-- generated: run states -->\n\nold\n\n<!-- end of generated -->\n\nAfter.\n"
    result = with_generated_parts(page)
    assert result.startswith("# Page\n\n<!-- generated: run states -->\n\n| State of a run |")
    assert result.endswith("\n\n<!-- end of generated -->\n\nAfter.\n")
    assert "old" not in result
    assert with_generated_parts(result) == result


def test_mark_with_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="no such part"):
        with_generated_parts("<!-- generated: no such part -->\n<!-- end of generated -->\n")


def test_cell_of_a_table_is_one_line_with_escaped_bars() -> None:
    assert table(("a", "b"), [("x | y", "one\n  two")]) == "| a | b |\n| --- | --- |\n| x \\| y | one two |\n"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("A_BYTES", 256 * 1024, "256 KiB"),
        ("A_BYTES", 32_000_000, "32 MB"),
        ("A_BYTES", 1_500_000, "1.5 MB"),
        ("A_BYTES", 200, "200 bytes"),
        ("A_S", 0.2, "0.2 s"),
        ("A_S", 3_600.0, "1 h"),
        ("NODES", 20_000, "20,000"),
    ],
)
def test_limit_is_shown_with_the_unit_of_its_name(name: str, value: float, text: str) -> None:
    assert with_unit(name, value) == text


def test_constants_are_described_by_the_string_after_them() -> None:
    descriptions = constant_descriptions("dagwright/core/boundary/limits.py")
    assert descriptions["MAX_REF_BYTES"] == "Longest reference of the payload store."
    assert set(descriptions) <= set(vars(core_limits))


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"type": "array", "items": {"$ref": "#/$defs/Node"}}, "list of [Node](#node)"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "integer ≥ 1, ≤ 5"),
        ({"type": "integer", "minimum": 1, "maximum": 1}, "`1`"),
        ({"type": "string", "pattern": "^[0-9](ms|s|m|h|d)$"}, "duration"),
        ({}, "any JSON"),
    ],
)
def test_types_of_json_schemas_are_named(schema: dict[str, object], name: str) -> None:
    assert type_name(schema, link_template="#{name}") == name


@pytest.mark.parametrize(("name", "schema", "example"), list(examples()))
def test_example_of_a_field_of_a_plan_is_valid(name: str, schema: Mapping[str, Any], example: str) -> None:
    field_schema = {**schema, "$defs": plan_schema()["$defs"]}
    assert jsonschema_rs.is_valid(field_schema, yaml.safe_load(example)), name


def test_used_codes_equal_the_documented_codes() -> None:
    assert sorted(used_problem_codes()) == sorted(ProblemCode)
    assert sorted(used_failure_codes()) == sorted(FailureCode)


def test_every_rejection_code_is_documented_for_each_interface() -> None:
    codes = rejection_codes()
    assert codes >= {"empty_request", "no_tools", "no_worker", "session_busy", "session_ending"}
    assert sorted(codes - set(CommandErrorCode)) == []
    assert sorted(codes - set(ErrorCode)) == []


def test_failures_table_shows_which_codes_are_retryable() -> None:
    rows = [line.split(" | ") for line in failures_table().splitlines()[2:]]
    retryable_by_code = {code.removeprefix("| ").strip("`"): retryable for code, _, retryable, _ in rows}
    assert set(retryable_by_code) == set(FailureCode)
    codes = ("timeout", "not_started", "tool_failed", "worker_stopped", "tool_changed", "worker_failed")
    assert [retryable_by_code[code] for code in codes] == [*["yes"] * 2, *["depends on the cause"] * 3, "no"]


PAGE = """# A page

```yaml title="plans/price.yaml"
plan: 1
```

<!-- invalid -->

```json title="wrong.json"
{}
```

```python title="tools.py"
```

```bash title="In a second terminal"
true
```

```text
not a file
```
"""


def test_block_has_its_file_name_title_and_text_without_fences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    blocks = docs.blocks_of(page)
    fields = [(block.line, block.language, block.file_name, block.title, block.text) for block in blocks]
    assert fields == [
        (3, "yaml", "plans/price.yaml", "plans/price.yaml", "plan: 1\n"),
        (9, "json", "wrong.json", "wrong.json", "{}\n"),
        (13, "python", "tools.py", "tools.py", ""),
        (16, "bash", None, "In a second terminal", "true\n"),
        (20, "text", None, None, "not a file\n"),
    ]
    assert "invalid" in blocks[1].notes
