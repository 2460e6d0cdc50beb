"""Columnar encoding of nodes, used in the pages of a large plan.

A node has some thirty fields, and the nodes of a large plan differ in three or four of them. In columns, a field with
its default value is omitted, and a value that all nodes share is encoded once. This takes two thirds of the time that
encoding each node as an object takes.
"""

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

from dagwright.core.model.compiled import (
    CONVERTED_FIELDS,
    NODE_DEFAULTS,
    NODE_KINDS,
    CompiledNode,
    field_from_json,
    field_to_json,
)

_NUMBER_FIELDS = frozenset({"dependencies", "members", "reads"})
"""Fields with numbers only, which need no conversion to JSON."""


def nodes_to_columns(nodes: Sequence[CompiledNode], replaced: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """Encode nodes as JSON: `{"same": {field: value}, "each": {field: [value of each node]}}`.

    Fields in which every node has the default value are omitted.

    Args:
        replaced: field -> values that replace those of the nodes.
    """
    same: dict[str, Any] = {}
    each: dict[str, Any] = {}
    for name, default in NODE_DEFAULTS.items():
        column = (replaced or {}).get(name) or list(map(attrgetter(name), nodes))
        # Compared by identity, because `True == 1`.
        first = column[0] if column else None
        if name == "id":
            each[name] = column
        elif column.count(default) == len(column):
            continue
        elif all(value is first for value in column):
            same[name] = _to_json(name, first)
        else:
            each[name] = [_to_json(name, value) for value in column] if name in CONVERTED_FIELDS else column
    return {"same": same, "each": each}


def nodes_from_columns(encoded: Any) -> list[CompiledNode]:
    """Decode the result of `nodes_to_columns`.

    Raises:
        ValueError: `encoded` has another form.
    """
    try:
        same, each = encoded["same"], encoded["each"]
        count = len(each["id"])
        columns: dict[str, Any] = {name: repeat(default, count) for name, default in NODE_DEFAULTS.items()}
        columns |= {name: repeat(_from_json(name, same[name]), count) for name in NODE_DEFAULTS if name in same}
        for name in filter(each.__contains__, NODE_DEFAULTS):
            column = each[name]
            if type(column) is not list or len(column) != count:
                raise ValueError(f"not part of a compiled plan: {name!r} must have one value per node")
            columns[name] = [_from_json(name, value) for value in column] if name in CONVERTED_FIELDS else column
        kinds = {*each.get("kind", ()), same.get("kind", "tool")}
        if not all(type(name) is str for name in each["id"]) or not kinds <= {*NODE_KINDS}:
            raise ValueError("not part of a compiled plan: a node has no id or an unknown kind")
        return list(map(CompiledNode, *columns.values()))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not part of a compiled plan: {error!r}") from None


def _to_json(name: str, value: Any) -> Any:
    is_json = value is None or name in _NUMBER_FIELDS or name not in CONVERTED_FIELDS
    return value if is_json else field_to_json(name, value)


def _from_json(name: str, value: Any) -> Any:
    if name in _NUMBER_FIELDS:
        return tuple(value)
    if value is None:
        return None
    return field_from_json(name, value) if name in CONVERTED_FIELDS else value
