"""Markdown for generated parts, and descriptions of constants and fields in the source code."""

import ast
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; texts of cells are Markdown in one line."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return a text as code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def sentence(text: str) -> str:
    """Return a description with a capital letter and a full stop, in one line."""
    line = " ".join(text.split()).rstrip(".")
    return f"{line[:1].upper()}{line[1:]}." if line else ""


def constant_descriptions(path: str) -> dict[str, str]:
    """Return the descriptions of a module's constants: name -> the string after its definition.

    Args:
        path: path of the module in the repository.
    """
    return _descriptions(ast.parse((ROOT / path).read_text(encoding="utf-8")).body)


def constant_names(path: str) -> list[str]:
    """Return the names of the constants of a module, in order."""
    names = map(_names_of, ast.parse((ROOT / path).read_text(encoding="utf-8")).body)
    return list(itertools.chain.from_iterable(names))


def field_descriptions(path: str, class_name: str) -> dict[str, str]:
    """Return the descriptions of a class's fields: name -> the string after its definition."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return _descriptions(node.body)
    raise ValueError(f"{path} has no class {class_name}")


def _descriptions(body: Sequence[ast.stmt]) -> dict[str, str]:
    descriptions: dict[str, str] = {}
    for statement, next_statement in itertools.pairwise(body):
        text = next_statement.value if isinstance(next_statement, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            descriptions |= dict.fromkeys(_names_of(statement), text.value)
    return descriptions


def _names_of(statement: ast.stmt) -> list[str]:
    """Return the names that a statement assigns."""
    match statement:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target):
            targets = [target]
        case _:
            targets = []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def section(title: str, *parts: str, level: int = 2) -> str:
    """Return a section with a heading."""
    return "\n\n".join([f"{'#' * level} {title}", *(part.strip() for part in parts if part.strip())]) + "\n\n"


def first_paragraph(text: str | None) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())
