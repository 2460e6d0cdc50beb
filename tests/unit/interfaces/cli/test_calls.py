"""Commands name the modules that do their work in strings, which no type checker reads."""

import ast
import importlib
from pathlib import Path

import pytest

from dagwright.interfaces import cli

_NAMED = sorted(
    (node.args[0].value, node.args[1].value)
    for file in Path(cli.__path__[0]).glob("*.py")
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "call"
    if isinstance(node.args[0], ast.Constant) and isinstance(node.args[1], ast.Constant)
)


def test_commands_name_their_modules() -> None:
    assert len(_NAMED) > 30


@pytest.mark.parametrize(("module", "function"), _NAMED)
def test_module_of_a_command_has_its_function(module: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(f"{cli.__name__}.{module}"), function))
