"""Checks of one node when a Python program adds it to a plan: its call against the tool's declaration, and its handles.

`Plan.check` finds the problems that need the whole plan: unknown nodes in texts, cycles, tools.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dagwright.core.expressions.references import contains_reference, listed, nearest, suggestion, walk_texts
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.compiled import Binding
from dagwright.core.model.errors import Problem, pointer
from dagwright.core.model.json_types import ALL
from dagwright.core.model.plan import Node
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.flow_checks import accepted_types
from dagwright.core.validation.inputs import schema_of
from dagwright.plans.handles import HandleUse
from dagwright.plans.node_options import NodeOptions
from dagwright.plans.node_values import ValuePath

Uses = Mapping[ValuePath, HandleUse]
"""Path in a node -> handle at this path."""
_OPTION_NAMES = frozenset(NodeOptions.__annotations__)
_NO_NEEDS = ()
"""Default of `needs`; Python has a single empty tuple."""
_LIST_OR_NULL = frozenset({"array", "null"})


def problems_of_handles(node: Node, uses: Uses, *, owner: object) -> Iterator[Problem]:
    """Yield the problems of handles that belong to another plan, or to items outside of a map."""
    for path, use in uses.items():
        at = pointer(*path)
        if use.owner is not owner:
            message = f"{use.handle!r} belongs to another plan"
            hint = "add that plan as a node, and give its values as arguments"
            yield Problem("invalid_reference", message, at, node.id, hint)
        elif use.is_of_item and path[0] != "for_each" and node.for_each is None:
            hint = "give the list to for_each=" + (f", which is {use.source!r}" if use.source is not None else "")
            yield Problem("invalid_reference", f"{use.handle!r} is used in a node without for_each", at, node.id, hint)
        elif use.is_of_item and use.source is not None and str(use.source) != node.for_each:
            message = f"{use.handle!r} is an item of {use.source!r}, and for_each is {node.for_each!s:.80}"
            yield Problem("invalid_reference", message, at, node.id, "use .item of the list that is given to for_each=")
    use_of_list = uses.get(("for_each",))
    if use_of_list is not None and use_of_list.schema is not None and not use_of_list.schema.types & _LIST_OR_NULL:
        types = " or ".join(sorted(use_of_list.schema.types))
        message = f"{use_of_list.handle!r} is {types}, and for_each takes a list"
        yield Problem("invalid_field", message, pointer("for_each"), node.id)


def problems_of_call(tool: ToolDeclaration, node: Node, uses: Uses) -> Iterator[Problem]:
    """Yield the problems of the arguments of a call that can be found before the run."""
    if tool.input_schema is None:
        return
    schema = SchemaOfTool(tool.input_schema)
    for path, message, near in schema.problems_of(node.arguments, _bindings(node.arguments)):
        at = pointer("arguments", *path)
        hint = near or _hint_of_option(tool, path)
        yield Problem("invalid_arguments", f"{tool.name}: {message}", at, node.id, hint)
    for path, use in uses.items():
        if path[0] == "arguments" and len(path) > 1:
            yield from _type_problem(tool, node, path[1:], use)


def _type_problem(tool: ToolDeclaration, node: Node, path: ValuePath, use: HandleUse) -> Iterator[Problem]:
    types = use.schema.types if use.schema is not None else ALL
    # With another join a node may run although a node that it reads was skipped; the value is null then.
    if types == ALL or node.join != "all" or not contains_reference(str(_part(node.arguments, path))):
        return
    accepted = accepted_types(tool, path)
    if accepted is not None and not types & accepted:
        message = f"{use.handle!r} is {_words(types)}, and {path[0]!r} of {tool.name!r} takes {_words(accepted)}"
        hint = "give a part of the value of that type, or convert it with a tool in between"
        yield Problem("invalid_arguments", message, pointer("arguments", *path), node.id, hint)


def _part(arguments: Any, path: ValuePath) -> object:
    """Return the value at a path; an empty string if the handle is a part of a longer string."""
    for step in path:
        try:
            arguments = arguments[step]
        except (LookupError, TypeError):
            return ""
        if isinstance(arguments, str):
            return arguments if path[-1] == step else ""
    return arguments


def _hint_of_option(tool: ToolDeclaration, path: ValuePath) -> str | None:
    """Return the hint for an unknown argument of the tool whose name is similar to an option of `Plan.add`."""
    name = path[0] if len(path) == 1 else None
    known: Mapping[str, Any] = (tool.input_schema or {}).get("properties", {})
    return suggestion(name, _OPTION_NAMES) if isinstance(name, str) and name not in known else None


def shared_name(tool: ToolDeclaration | None, options: Mapping[str, object], arguments: Collection[str]) -> str | None:
    """Return the name of a given option of `Plan.add` that may be meant for the tool, because it is also its parameter.

    Args:
        arguments: names in the `arguments` option, which are unambiguous.
    """
    known: Mapping[str, Any] = {} if tool is None else (tool.input_schema or {}).get("properties", {})
    given = [name for name, value in options.items() if value is not None and value is not _NO_NEEDS]
    return next((name for name in given if name in known and name not in arguments), None)


def problems_of_inputs(declared: Mapping[str, Any], node: Node, *, is_read: Mapping[str, bool]) -> Iterator[Problem]:
    """Yield the problems of the arguments of a sub-plan.

    Args:
        declared: declared inputs of the sub-plan.
        is_read: names of undeclared arguments -> whether the sub-plan reads them.
    """
    known = {name: {"type": "string", **schema} for name, schema in declared.items() if isinstance(schema, Mapping)}
    misspelt: set[str] = set()
    for name in (name for name, read in is_read.items() if not read):
        near = suggestion(name, known) or (f"it has {listed(known)}" if known else "it has none")
        misspelt.update(nearest(name, known, most=1))
        at = pointer("arguments", name)
        yield Problem("invalid_arguments", f"the sub-plan has no input {name!r}", at, node.id, near)
    for name, schema in known.items():
        if name not in node.arguments and "default" not in schema and name not in misspelt:
            yield Problem("missing_input", f"the sub-plan needs the input {name!r}", "/arguments", node.id)
    given = {name: value for name, value in node.arguments.items() if name in known}
    for path, message, hint in schema_of(known).problems_of(given, _bindings(given)):
        at = pointer("arguments", *path)
        yield Problem("invalid_arguments", f"the sub-plan's input {message}", at, node.id, hint)


def _bindings(arguments: Mapping[str, Any]) -> list[Binding]:
    return [(path, ()) for path, text in walk_texts(arguments) if contains_reference(text)]


def _words(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))
