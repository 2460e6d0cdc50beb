"""The snippets of docs/tools.md run."""

import re
from pathlib import Path

import pytest

from dagwright.tools import load_tools
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment

PAGE = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("snippet", "names"),
    list(
        zip(
            SNIPPETS,
            [["price", "shop.order"], ["book_seat", "free_seat"], ["review"], ["order"], ["publish"], ["ChargeCard"]],
            strict=True,
        )
    ),
)
def test_each_snippet_is_a_module_of_tools(tmp_path: Path, snippet: str, names: list[str]) -> None:
    (tmp_path / "snippet.py").write_text(snippet, encoding="utf-8")
    assert list(load_tools(["snippet.py"], base=tmp_path).declarations()) == names


def test_the_table_of_built_in_tools_is_whole_and_right() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (pure|read|idempotent|write) \|", PAGE, re.MULTILINE)
    registry = builtin_tools(ToolEnvironment(Path()))
    assert rows == [(spec.name, str(spec.declaration.effects)) for spec in registry]


def test_every_built_in_tool_describes_itself_and_its_parameters() -> None:
    for spec in builtin_tools(ToolEnvironment(Path())):
        schema = spec.declaration.input_schema
        assert spec.declaration.description, spec.name
        assert schema is not None
        for name, parameter in schema["properties"].items():
            assert parameter.get("description"), f"{spec.name}: {name}"
