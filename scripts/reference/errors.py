"""The table of exceptions, and the codes that the code of Dagwright uses."""

import ast
from collections.abc import Iterator, Mapping

from dagwright import errors
from scripts.reference.markdown import ROOT, code, first_paragraph, table

_CODE_OF: Mapping[str, str] = {"Problem": "code", "NodeError": "code", "ApiError": "code", "CommandRefused": "status"}
"""Class of an error -> its argument with the code."""
_CODE_FIRST = frozenset({"Problem", "NodeError"})
"""Classes whose first argument is the code."""


def exceptions_table() -> str:
    """Return a row for each name of `dagwright.errors`: name, base class and meaning."""
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        base = kind.__mro__[1].__name__ if issubclass(kind, Exception) else ""
        rows.append((code(name), code(base), first_paragraph(kind.__doc__)))
    return table(("Exception", "Base", "Meaning"), rows)


def used_codes() -> set[str]:
    """Return the codes that the code of Dagwright gives to problems, failures, responses and refused commands."""
    return {
        found
        for path in sorted((ROOT / "dagwright").rglob("*.py"))
        for found in _codes(ast.parse(path.read_text(encoding="utf-8")))
    }


def _codes(module: ast.Module) -> Iterator[str]:
    texts = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _CODE_OF:
            continue
        codes = [each.value for each in call.keywords if each.arg == _CODE_OF[call.func.id]]
        codes += call.args[:1] if call.func.id in _CODE_FIRST else []
        for value in codes:
            code = value.value if isinstance(value, ast.Constant) else None
            if isinstance(value, ast.Name):
                code = texts.get(value.id)
            if isinstance(code, str):
                yield code
