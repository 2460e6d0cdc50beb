"""Calls and constants in the source code of Dagwright."""

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache

from scripts.reference.markdown import ROOT

_FOLDERS = ("dagwright", "activities", "workflows")


def calls_of(name: str) -> Sequence[ast.Call]:
    """Return the calls of a function, class or method with this name, in any module or class."""
    return _index().calls[name]


def members_of(enum: str) -> Set[str]:
    """Return the names of the enum members that Dagwright's source code uses."""
    return {name for name in _index().attributes[enum] if name.isupper()}


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


@dataclass(frozen=True, slots=True)
class _Index:
    """Calls by the name of their function, and names of attributes by the name of their object.

    One walk over all modules builds the index, because each walk takes a second or more.
    """

    calls: Mapping[str, list[ast.Call]]
    attributes: Mapping[str, set[str]]


@cache
def _index() -> _Index:
    index = _Index(defaultdict(list), defaultdict(set))
    for node in (node for module in _modules() for node in ast.walk(module)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                index.calls[name].append(node)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                index.attributes[name].add(attribute)
    return index


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
