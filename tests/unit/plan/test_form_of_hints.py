"""All hints have one form: a clause in lower case, without a full stop; only commands stand in backticks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dagwright

_CHECKED = ("plan/*.py", "dialects/*.py", "preparation.py", "posted_plans.py")
_CODE = re.compile(r"`([^`]*)`")


def _texts(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
    elif isinstance(value, ast.BoolOp):
        yield from (text for each in value.values for text in _texts(each))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in value.values)


def _hints(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if (isinstance(each, ast.keyword) and each.arg == "hint") or (
            isinstance(each, ast.Assign) and [ast.unparse(target) for target in each.targets] == ["hint"]
        ):
            yield from _texts(each.value)
        elif isinstance(each, ast.Call) and ast.unparse(each.func) == "Problem":
            yield from (text for argument in each.args[4:5] for text in _texts(argument))


def _has_odd_code(hint: str) -> bool:
    return not all(code.startswith("dagwright ") for code in _CODE.findall(hint))


def test_hints_have_one_form() -> None:
    root = Path(dagwright.__file__).parent
    files = [file for pattern in _CHECKED for file in root.glob(pattern)]
    hints = [hint for file in files for hint in _hints(ast.parse(file.read_text()))]
    assert len(hints) > 30
    assert [hint for hint in hints if hint[:1].isupper() or hint.endswith(".") or _has_odd_code(hint)] == []
