"""Columnar encoding of nodes, used in the input of a run and in the pages of a large plan.

A node has about thirty fields, and the nodes of a large plan differ in three or four of them. In columns, a field with
its default value is omitted, and a value that all nodes share is encoded once. This takes two thirds of the time of
encoding each node as an object. Arguments that consist of bindings alone are omitted
(`compiled.has_only_bound_arguments`). A binding to the result of an encoded node has the number of that node instead of
its ID.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, repeat
from operator import attrgetter
from typing import Any

from dagwright.core.model.compiled import (
    BINDINGS_KEY,
    CONVERTED_FIELDS,
    NODE_DEFAULTS,
    NODE_KINDS,
    Binding,
    CompiledNode,
    CompiledPlan,
    field_from_json,
    field_to_json,
    has_only_bound_arguments,
    plan_from_json,
    plan_to_json,
    restore_arguments,
)

_NUMBER_FIELDS = frozenset({"dependencies", "members", "reads"})
"""Fields with numbers only, which need no conversion to JSON."""

_MAX_NUMBER_DIGITS = 9


def nodes_to_columns(nodes: Sequence[CompiledNode], replacements: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """Encode nodes as JSON: `{"same": {field: value}, "from": {field: {number: value}}, "each": {field: [value, …]}}`.

    A field with the same value in all nodes is in `same`. A field whose value changes rarely from one node to the next
    is in `from`, with the number of the first node that has the value; nodes before the first number have the default.
    Fields in which every node has the default are omitted. If all bindings belong to the same argument, `each` has
    them as `{argument: [template or null, …]}`.

    Args:
        replacements: field -> values that replace those of the nodes.
    """
    same: dict[str, Any] = {}
    spans: dict[str, Any] = {}
    each: dict[str, Any] = {}
    for name, default in NODE_DEFAULTS.items():
        column = (replacements or {}).get(name) or _column(name, nodes)
        # Compared by identity, because `True == 1`.
        first_value = column[0] if column else None
        if name == "id":
            each[name] = column
        elif column.count(default) == len(column):
            continue
        elif all(value is first_value for value in column):
            same[name] = _to_json(name, first_value)
        elif len(starts := _span_starts(name, column)) < len(column) / 2:
            spans[name] = {str(number): _to_json(name, column[number]) for number in starts}
        elif name == BINDINGS_KEY:
            each[name] = _bindings_to_column(column, each["id"])
        else:
            each[name] = [_to_json(name, value) for value in column] if name in CONVERTED_FIELDS else column
    return {"same": same, **({"from": spans} if spans else {}), "each": each}


def nodes_from_columns(encoded: Any) -> list[CompiledNode]:
    """Decode the result of `nodes_to_columns`.

    Raises:
        ValueError: `encoded` has another form.
    """
    try:
        same, spans, each = encoded["same"], encoded.get("from", {}), encoded["each"]
        count = len(each["id"])
        columns: dict[str, Any] = {name: repeat(default, count) for name, default in NODE_DEFAULTS.items()}
        columns |= {name: repeat(_from_json(name, same[name]), count) for name in NODE_DEFAULTS if name in same}
        for name in filter(spans.__contains__, NODE_DEFAULTS):
            values = {number: _from_json(name, value) for number, value in spans[name].items()}
            columns[name] = _column_of_spans(values, count, default=NODE_DEFAULTS[name])
        for name in filter(each.__contains__, NODE_DEFAULTS):
            column = each[name]
            if name == BINDINGS_KEY:
                column = _bindings_from_column(column, each["id"])
            if type(column) is not list or len(column) != count:
                raise ValueError(f"not part of a compiled plan: {name!r} must have one value per node")
            columns[name] = [_from_json(name, value) for value in column] if name in CONVERTED_FIELDS else column
        kinds = {*each.get("kind", ()), *spans.get("kind", {}).values(), same.get("kind", "tool")}
        if not all(type(name) is str for name in each["id"]) or not kinds <= {*NODE_KINDS}:
            raise ValueError("not part of a compiled plan: a node has no id or an unknown kind")
        nodes = list(map(CompiledNode, *columns.values()))
        for node in nodes:
            restore_arguments(node)
        return nodes
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not part of a compiled plan: {error!r}") from None


def _bindings_to_column(bindings: Sequence[Sequence[Binding]], ids: Sequence[str]) -> list[Any] | dict[str, Any]:
    numbers = {node_id: number for number, node_id in enumerate(ids)}
    column: list[Any] = [
        {key: _id_to_number(template, numbers) for key, template in encoded.items()}
        if isinstance(encoded, dict)
        else [[path, _id_to_number(template, numbers)] for path, template in encoded]
        for encoded in (field_to_json(BINDINGS_KEY, node_bindings) for node_bindings in bindings)
    ]
    argument = _only_argument(column)
    if argument is None:
        return column
    return {argument: [encoded.get(argument) for encoded in column if isinstance(encoded, dict)]}


def _only_argument(column: Sequence[Any]) -> str | None:
    """Return the argument to which all bindings belong; `None` if they belong to several arguments."""
    if not all(isinstance(encoded, dict) for encoded in column):
        return None
    arguments = {argument for encoded in column for argument in encoded}
    return arguments.pop() if len(arguments) == 1 else None


def _id_to_number(template: Any, numbers: Mapping[str, int]) -> Any:
    return numbers.get(template, template) if isinstance(template, str) else template


def _bindings_from_column(column: Any, ids: Sequence[str]) -> list[Any]:
    """Return the JSON form of the bindings of each node.

    Raises:
        ValueError: a number is not the number of a node, or there is not exactly one argument.
    """
    if isinstance(column, Mapping):
        if len(column) != 1:
            raise ValueError(f"not part of a compiled plan: the bindings are of {len(column)} arguments, not of 1")
        [(argument, templates)] = column.items()
        column = [{} if template is None else {argument: template} for template in templates]
    return [
        {key: _number_to_id(template, ids) for key, template in encoded.items()}
        if isinstance(encoded, Mapping)
        else [[path, _number_to_id(template, ids)] for path, template in encoded]
        for encoded in column
    ]


def _number_to_id(template: Any, ids: Sequence[str]) -> Any:
    if type(template) is not int:
        return template
    if not 0 <= template < len(ids):
        raise ValueError(f"not part of a compiled plan: a binding refers to the node {template} of {len(ids)}")
    return ids[template]


def _column(name: str, nodes: Sequence[CompiledNode]) -> list[Any]:
    if name == "arguments":
        return [NODE_DEFAULTS[name] if has_only_bound_arguments(node) else node.arguments for node in nodes]
    return list(map(attrgetter(name), nodes))


def _span_starts(name: str, column: Sequence[Any]) -> list[int]:
    """Return the numbers of the nodes whose value differs from the value of the previous node."""
    default = NODE_DEFAULTS[name]
    values = [default if value == default else value for value in column]
    pairs = pairwise([default, *values])
    if name in _NUMBER_FIELDS:
        return [number for number, (previous_value, value) in enumerate(pairs) if value != previous_value]
    return [number for number, (previous_value, value) in enumerate(pairs) if value is not previous_value]


def _column_of_spans(values: Mapping[str, Any], count: int, *, default: Any) -> list[Any]:
    """Return the value of each node.

    Args:
        values: number of the first node that has the value -> value, in ascending order.

    Raises:
        ValueError: a number is invalid.
    """
    column: list[Any] = []
    current_value = default
    for number, value in values.items():
        is_number = number.isascii() and number.isdecimal() and len(number) <= _MAX_NUMBER_DIGITS
        if not is_number or not len(column) <= int(number) < count:
            raise ValueError(f"not part of a compiled plan: {number!r:.60} is not the number of a later node")
        column += [current_value] * (int(number) - len(column))
        current_value = value
    return column + [current_value] * (count - len(column))


def plan_to_columns(plan: CompiledPlan) -> dict[str, Any]:
    """Return the JSON form of a compiled plan with its nodes in columns; the nodes of sub-plans are objects."""
    return {**plan_to_json(replace(plan, nodes=())), "nodes": nodes_to_columns(plan.nodes)}


def plan_from_columns(encoded: Any) -> CompiledPlan:
    """Parse the result of `plan_to_columns`, or of `plan_to_json`.

    Raises:
        ValueError: the form is invalid.
    """
    nodes = encoded.get("nodes") if isinstance(encoded, Mapping) else None
    if not isinstance(nodes, Mapping):
        return plan_from_json(encoded)
    return replace(plan_from_json({**encoded, "nodes": ()}), nodes=tuple(nodes_from_columns(nodes)))


def encoded_sub_plans(nodes: Any) -> tuple[int, Sequence[Any]]:
    """Return the number of encoded nodes of a plan, and their encoded sub-plans, without parsing them.

    Args:
        nodes: encoded nodes, in either form; they may be invalid.
    """
    if isinstance(nodes, list):
        return len(nodes), [node["sub_plan"] for node in nodes if isinstance(node, Mapping) and "sub_plan" in node]
    same, spans, each = (_object_field(nodes, name) for name in ("same", "from", "each"))
    ids, plans = each.get("id"), each.get("sub_plan")
    count = len(ids) if isinstance(ids, list) else 0
    sub_plans = [
        *(plans if isinstance(plans, list) else ()),
        *([same["sub_plan"]] * count if "sub_plan" in same else ()),
    ]
    with suppress(ValueError):
        sub_plans += _column_of_spans(_object_field(spans, "sub_plan"), count, default=None)
    return count, [plan for plan in sub_plans if plan is not None]


def _object_field(value: Any, name: str) -> Mapping[str, Any]:
    part = value.get(name) if isinstance(value, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _to_json(name: str, value: Any) -> Any:
    is_json = value is None or name in _NUMBER_FIELDS or name not in CONVERTED_FIELDS
    return value if is_json else field_to_json(name, value)


def _from_json(name: str, value: Any) -> Any:
    if name in _NUMBER_FIELDS:
        return tuple(value)
    if value is None:
        return None
    return field_from_json(name, value) if name in CONVERTED_FIELDS else value
