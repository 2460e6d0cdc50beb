"""Calls and constants in the source code of Dagwright."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from functools import cache

from scripts.reference.markdown import ROOT

_FOLDERS = ("dagwright", "activities", "workflows")


def calls_of(name: str) -> Iterator[ast.Call]:
    """Yield the calls of a function, class or method of this name, without its module or object."""
    for node in _nodes():
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=called) | ast.Attribute(attr=called) if called == name:
                yield node


def members_of(enum: str) -> set[str]:
    """Return the names of the members of an enum that Dagwright's source code uses."""
    return {name for node in _nodes() for name in [_member_of(node, enum)] if name is not None and name.isupper()}


def _member_of(node: ast.AST, enum: str) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id=found), attr=name) if found == enum:
            return name
    return None


def texts_of(expression: ast.expr) -> Set[str]:
    """Return the possible values of an expression that is a string, a constant of any module, or a choice of these."""
    match expression:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _constants().get(name, set())
        case ast.IfExp(body=first, orelse=second):
            return texts_of(first) | texts_of(second)
        case ast.BoolOp(values=values):
            return {text for value in values for text in texts_of(value)}
        case _:
            return set()


def _nodes() -> Iterator[ast.AST]:
    for module in _modules():
        yield from ast.walk(module)


@cache
def _modules() -> list[ast.Module]:
    paths = sorted(path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


@cache
def _constants() -> Mapping[str, Set[str]]:
    texts: dict[str, set[str]] = defaultdict(set)
    for node in (node for module in _modules() for node in module.body):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text)))
            ) if name.isupper():
                texts[name].add(text)
    return texts
