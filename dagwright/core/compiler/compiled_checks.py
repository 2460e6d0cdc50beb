"""Checks of invariants that the scheduler assumes about the nodes of a compiled plan.

`protocol.plan_limits.graph_problem` checks the edges.

Compiled plans come from the compiler, but any client can send a compiled plan. An invalid plan is rejected when
the run starts, because a later failure would look like a bug of the engine.
"""

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from types import NoneType
from typing import Any, get_args

from dagwright.core.expressions.paths import parse_query
from dagwright.core.expressions.references import Field, Index, Item, Placeholder, ResultOf, Template
from dagwright.core.expressions.stored_values import Secret
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan, Join
from dagwright.core.model.lookups import is_find_node
from dagwright.core.model.tools import Effects, problem_of_effects_rule

_FIELD_TYPES: Mapping[str, Any] = {
    "id": str,
    "tool": str,
    "arguments": dict,
    "join": tuple,
    "when": (str, NoneType),
    "for_each": (list, tuple, NoneType),
    "key": (tuple, NoneType),
    "max_parallel": (int, NoneType),
    "priority": int,
    "approval": (str, dict),
    "on_error": str,
    "sub_plan": (CompiledPlan, NoneType),
}
"""Field of a node -> types of its values."""
_get_checked_fields = attrgetter(*_FIELD_TYPES)
_JOINS = get_args(get_args(Join)[0])
_DEFAULT_JOIN = CompiledNode("").join
"""The object that all nodes with the default join share."""
_REFERENCE_FIELDS = get_args(Field)
_PATH_STEP_TYPES = frozenset({str, int})


def compiled_plan_problem(plan: CompiledPlan) -> str | None:
    """Return a sentence about the first problem of a node, a tool or the output of a plan, or `None`.

    Complexity: O(V + bindings), a few microseconds per node.
    """
    inputs: Any = plan.inputs
    if not isinstance(inputs, Mapping) or not all(isinstance(value, Mapping) for value in inputs.values()):
        return "'inputs' must be an object of objects"
    ids = {node.id for node in plan.nodes}
    checked_types: set[tuple[type, ...]] = set()
    for node in plan.nodes:
        # The fields of most nodes have the same types; checking each combination once takes a third of the time.
        field_types = tuple(map(type, _get_checked_fields(node)))
        if field_types not in checked_types and (problem := _wrong_type(node)) is not None:
            return f"the node {node.id!r}: {problem}"
        checked_types.add(field_types)
        if (problem := _node_problem(node, ids) or _lookup_problem(node, plan)) is not None:
            return f"the node {node.id!r}: {problem}"
    for name, tool in plan.tools.items():
        if tool.effects_by is not None and (problem := problem_of_effects_rule(tool.effects_by)) is not None:
            return f"the tool {name!r}: effects_by: {problem}"
    if not _paths_exist(plan.output, plan.output_bindings):
        return "its output has no value at the location of a binding"
    if (problem := _template_problem((template for _, template in plan.output_bindings), ids)) is not None:
        return f"its output: {problem}"
    return None


def _wrong_type(node: CompiledNode) -> str | None:
    for name, expected_types in _FIELD_TYPES.items():
        if not isinstance(getattr(node, name), expected_types):
            return f"its {name!r} has the type {type(getattr(node, name)).__name__}"
    return None


def _node_problem(node: CompiledNode, ids: Collection[str]) -> str | None:
    if node.join is not _DEFAULT_JOIN:
        # A join is a kind and exactly one count.
        kind, *counts = node.join
        if kind not in _JOINS or [type(count) for count in counts] != [int]:
            return "its 'join' is invalid"
    if node.effects is not None and node.effects not in [*Effects]:
        return "its 'effects' must be pure, read, idempotent or write"
    if not _paths_exist(node.arguments, node.bindings):
        return "its arguments have no value at the location of a binding"
    if node.approval_bindings and not _paths_exist(node.approval, node.approval_bindings):
        return "its approval has no value at the location of a binding"
    if node.item_bindings and not _paths_exist(node.for_each, node.item_bindings):
        return "its items have no value at the location of a binding"
    templates = [template for _, template in (*node.bindings, *node.item_bindings, *node.approval_bindings)]
    templates += [template for template in (node.for_each, node.key) if isinstance(template, tuple)]
    return _template_problem(templates, ids)


def _lookup_problem(node: CompiledNode, plan: CompiledPlan) -> str | None:
    """Return the problem of a lookup node, or `None`. Lookup nodes may only call the tools of the resolver."""
    if node.kind != "lookup":
        return None
    tool = plan.tools.get(node.tool)
    required_effects = Effects.READ if is_find_node(node) else Effects.IDEMPOTENT
    if tool is None or tool.effects is not required_effects or node.for_each is not None:
        effects = required_effects.value
        return f"a node of the kind 'lookup' must call a resolver tool with the effects {effects!r}, without for_each"
    return None


def _paths_exist(value: Any, bindings: Iterable[Binding]) -> bool:
    """Return whether the path of each binding exists in a value."""
    for path, _ in bindings:
        container = value
        for step in path:
            has_step = (isinstance(container, dict) and isinstance(step, str) and step in container) or (
                isinstance(container, list) and type(step) is int and 0 <= step < len(container)
            )
            if not has_step:
                return False
            container = container[step]
    return True


def _template_problem(templates: Iterable[Template], ids: Collection[str]) -> str | None:
    for template in templates:
        for part in template:
            if not isinstance(part, str) and not _is_valid_reference(part, ids):
                return f"invalid reference {part!r}"
        if not template:
            return "a template without parts"
    return None


def _is_valid_reference(part: Any, ids: Collection[str]) -> bool:
    # An `if`, because a `case` takes three times as long, and most references are of this type.
    if isinstance(part, ResultOf):
        node_id: Any = part.node_id
        return isinstance(node_id, str) and node_id in ids and part.field in _REFERENCE_FIELDS and _is_path(part.path)
    match part:
        case Item(path):
            return _is_path(path)
        case Placeholder(name) | Secret(name):
            return isinstance(name, str)
        case Index():
            return True
    return False


def _is_path(path: Any) -> bool:
    if isinstance(path, str):
        try:
            parse_query(path)
        except ValueError:
            return False
        return True
    return isinstance(path, tuple) and _PATH_STEP_TYPES.issuperset(map(type, path))
