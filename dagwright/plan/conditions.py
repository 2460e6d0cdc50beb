"""`when`: a condition in CEL over results, inputs and the item (contract.md section 1).

Conditions are evaluated in workflow code, so they must be quick and give the same answer at every replay.
Therefore comprehensions do not nest, and `map` and `filter` are refused: the library iterates maps in
random order, and those two let the order show.

Null-safe means: where a value is null or missing and the condition needs it, the condition is false.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cel

from dagwright.plan.paths import MissingValue, get_value

_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_MACRO = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_UNORDERED_MACROS = frozenset({"map", "filter"})
_NODES_KEY = re.compile(r"""\bnodes\s*\[\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*\]""", re.DOTALL)
_NODES_NAME = re.compile(r"\bnodes\s*\.\s*([A-Za-z_]\w*)")
_NODES = re.compile(r"\bnodes\b")
_MEMBER = re.compile(r"""\s*(?:\.\s*([A-Za-z_]\w*)(?!\s*\()|\[\s*(?:([0-9]+)|("[^"\\]*"|'[^'\\]*'))\s*\])""")
_WORD = re.compile(r"[A-Za-z_]\w*")
_LONGEST = 4_000
"""Characters of a condition; a person writes far fewer."""

SCOPE_NAMES = frozenset({"nodes", "inputs", "item", "index"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition.

    Args:
        text: as written.
        nodes: ids of the nodes whose results it reads, in the order of their first mention.
        uses_item: it reads `item` or `index`, so it is asked for each item of a `for_each`.
        uses_inputs: names in `inputs.x`.
    """

    text: str
    nodes: tuple[str, ...]
    uses_item: bool


class ConditionFailed(Exception):
    """A condition cannot be evaluated to true or false; the message says why."""


def parse_condition(text: str, is_node: Callable[[str], bool]) -> Condition:
    """Returns what a condition reads.

    Args:
        text: a CEL expression.
        is_node: tells whether a text is the id of a node of the plan.

    Raises:
        ValueError: it is no CEL expression, reads what is not there, or uses what is not allowed in a condition.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"the condition has {len(text)} characters; at most {_LONGEST} are allowed")
    program = _compiled(text)
    bare = _STRING.sub(lambda match: '""' + " " * (len(match[0]) - 2), text)
    bound = _check_macros(bare)
    nodes: list[str] = []
    keys = list(_NODES_KEY.finditer(text)) + list(_NODES_NAME.finditer(bare))
    if len(keys) < len(_NODES.findall(bare)):
        raise ValueError('after `nodes` comes the id of a node in brackets and quotes, such as nodes["my node"]')
    variables = set(program.variables()) - bound
    mentions = [(match.start(), _unquoted(match[1])) for match in keys]
    # A node may be called `nodes`; in a condition the word alone means all of them.
    words = variables - SCOPE_NAMES
    mentions += [(match.start(), match[0]) for match in _WORD.finditer(bare) if match[0] in words]
    for _, name in sorted(mentions):
        if is_node(name):
            nodes.append(name)
        else:
            raise ValueError(f"there is no node {name!r}")
    return Condition(text, tuple(dict.fromkeys(nodes)), bool(variables & {"item", "index"}))


def _check_macros(bare: str) -> set[str]:
    bound = set()
    end_of_last = 0
    for match in _MACRO.finditer(bare):
        if match[1] in _UNORDERED_MACROS:
            raise ValueError(f"{match[1]}() cannot be used in a condition; use all(), exists() or exists_one()")
        if match.start() < end_of_last:
            raise ValueError(f"{match[1]}() cannot stand inside another comprehension")
        end_of_last = _closing_parenthesis(bare, bare.index("(", match.start()))
        bound.add(match[2])
    return bound


def _closing_parenthesis(text: str, position: int) -> int:
    depth = 0
    for index in range(position, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return len(text)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> cel.Program:
    try:
        return cel.compile(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).split("ERROR:")[-1].split("\n")[0].split("Syntax error:")[-1].strip()
        raise ValueError(f"it is no CEL expression: {reason}") from None


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def evaluate_condition(condition: Condition, scope: Mapping[str, Any]) -> bool:
    """Returns whether a condition holds; false where it needs a value that is null or missing.

    Args:
        condition: as `parse_condition` made it.
        scope: `nodes` (id -> `{"result", "status", "error"}`), `inputs`, and inside a `for_each` `item`, `index`.

    Raises:
        ConditionFailed: it is neither true nor false, or an operation does not fit its values.
    """
    names = {**scope["nodes"], **scope}
    try:
        value = _compiled(condition.text).execute(names)
    except (KeyError, IndexError):
        return False
    # The library raises whatever fits the operation, so the kinds are many; none of them is ours.
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        if _reads_null(condition.text, names):
            return False
        raise ConditionFailed(f"{condition.text!r} cannot be evaluated: {str(error).splitlines()[0]}") from None
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConditionFailed(f"{condition.text!r} is neither true nor false but {value!r:.60}")
    return value


def _reads_null(text: str, names: Mapping[str, Any]) -> bool:
    """Tells whether a path that the condition reads ends at null or nowhere."""
    for match in _WORD.finditer(text):
        if match[0] not in names or text[match.start() - 1 : match.start()] == ".":
            continue
        steps: list[str | int] = []
        position = match.end()
        while member := _MEMBER.match(text, position):
            name, index, quoted = member.groups()
            steps.append(int(index) if index else name or quoted[1:-1])
            position = member.end()
        try:
            if get_value(names[match[0]], tuple(steps), start=match[0]) is None:
                return True
        except MissingValue:
            return True
    return False
