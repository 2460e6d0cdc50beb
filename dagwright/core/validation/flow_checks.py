"""Checks of a valid plan that only apply before its run: heartbeats, inputs of conditions, types of arguments.

They only report definite errors. They reject a plan before its run, but do not apply to nodes that are added to a
running plan.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from dagwright.core.expressions.condition_parser import Read
from dagwright.core.expressions.conditions import read_condition
from dagwright.core.expressions.references import NameHints, Placeholder, ResultOf, Template, listed
from dagwright.core.expressions.stored_values import Path
from dagwright.core.model.errors import Note, Problem, pointer
from dagwright.core.model.json_types import JsonTypes, schema_at, types_accepted, types_made
from dagwright.core.model.plan import Node
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.checked_plan import Checked

LEAST_HEARTBEAT = timedelta(seconds=1)
"""Each call sends three heartbeats in that time. The event loop of a worker with 100 busy calls may be blocked for
longer, and the server would time out running attempts and retry all of them."""
_OF_FOR_EACH: JsonTypes = frozenset({"array", "null"})
"""A `for_each` over null is skipped."""

_KEYWORDS = (
    "type",
    "enum",
    "const",
    "title",
    "description",
    "default",
    "prompt",
    "examples",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "items",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "definitions",
    "dependencies",
    "$ref",
    "$defs",
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$vocabulary",
    "$dynamicRef",
    "$dynamicAnchor",
)
"""Keywords of JSON Schema 2020-12, older keywords that validators still support, and keywords of Dagwright."""


def flow_problems(checked: Checked, hints: NameHints) -> Iterator[Problem]:
    """Yield the problems of a plan and its sub-plans; parts with other problems are skipped.

    Args:
        hints: name hints, with the budget of the check.

    Complexity: linear in the references of the plan.
    """
    yield from _short_heartbeats(checked)
    yield from _unknown_inputs(checked, hints)
    yield from _mismatches(checked)
    for sub_plan in checked.sub_plans.values():
        yield from flow_problems(sub_plan, hints)


# Heartbeats.


def _short_heartbeats(checked: Checked) -> Iterator[Problem]:
    for index, node in enumerate(checked.nodes):
        if node.heartbeat is not None and node.heartbeat < LEAST_HEARTBEAT:
            message = "heartbeat: must be at least 1s: a busy worker cannot send heartbeats more often than that"
            hint = "leave it out: the default depends on the effects of the tool"
            yield Problem("invalid_field", message, _written_pointer(checked, index, "heartbeat"), node.id, hint)


# Inputs of conditions.


def _unknown_inputs(checked: Checked, hints: NameHints) -> Iterator[Problem]:
    """Yield a problem for each undeclared input that a condition reads, if the plan declares inputs.

    A plan without declared inputs accepts all inputs that its conditions read; `has(inputs.x)` makes `x` optional.
    """
    declared = _declared(checked)
    if not declared:
        return
    known = {**dict.fromkeys(declared), **checked.inputs}
    ids = {node.id for node in checked.nodes}
    for index, node in enumerate(checked.nodes):
        reads = _inputs_read(node.when, ids) if node.when is not None else ()
        optional = {read.steps[0] for read in reads if read.steps and read.aspect == "presence"}
        named = dict.fromkeys(str(read.steps[0]) for read in reads if read.steps and read.steps[0] not in optional)
        for name in named:
            if name not in known:
                hint = hints.near(name, known) or f"declare it under 'inputs', or write has(inputs.{name})"
                message = (
                    f"when: there is no input {name!r}; the plan declares {listed(declared, near=name, hints=hints)}"
                )
                yield Problem("invalid_field", message, _written_pointer(checked, index, "when"), node.id, hint)


def _declared(checked: Checked) -> Collection[str]:
    """Return the distinct names of the inputs that a plan declares, including invalid declarations."""
    written = checked.written.get("inputs")
    return dict.fromkeys((*checked.plan.inputs, *(written if isinstance(written, Mapping) else ())))


def _inputs_read(condition: str, ids: Collection[str]) -> list[Read]:
    try:
        reading = read_condition(condition, ids.__contains__).reading
    except ValueError:
        return []
    return [read for read in reading.reads if read.source == "inputs"]


def undeclared_inputs(checked: Checked, hints: NameHints) -> Iterator[Note]:
    """Yield a note for each undeclared placeholder with a name similar to a declared input.

    Args:
        hints: name hints, with the budget of the check.
    """
    declared = _declared(checked)
    for name in checked.inputs if declared else ():
        near = hints.near(name, declared) if name not in declared else None
        if near is not None:
            node, path = _first_use(checked, name)
            message = f"PLACEHOLDER_{name} adds the input {name!r}, which the plan does not declare; {near}"
            yield Note("undeclared_input", message, node, path)
    for sub_plan in checked.sub_plans.values():
        yield from undeclared_inputs(sub_plan, hints)


def misspelt_keywords(checked: Checked, hints: NameHints) -> Iterator[Note]:
    """Yield a note for each key of an input that is similar to a keyword of JSON Schema; other keys are allowed.

    Args:
        hints: name hints, with the budget of the check.
    """
    for name, schema in checked.inputs.items():
        for key in schema:
            near = hints.near(key, _KEYWORDS) if key not in _KEYWORDS else None
            if near is not None:
                message = f"inputs.{name}.{key}: {key!r} is not a keyword of JSON Schema and has no effect; {near}"
                yield Note("unknown_keyword", message, None, pointer("inputs", name, key))
    for sub_plan in checked.sub_plans.values():
        yield from misspelt_keywords(sub_plan, hints)


def _first_use(checked: Checked, name: str) -> tuple[str | None, str]:
    """Return the ID and the pointer of the first node that reads an input."""
    for index, (node, references) in enumerate(zip(checked.nodes, checked.references, strict=True)):
        if name in references.placeholders:
            at = next((path for path, template in references.argument_bindings if Placeholder(name) in template), None)
            return node.id, _written_pointer(checked, index, *(("arguments", *at) if at is not None else ()))
    return None, ""


def _written_pointer(checked: Checked, index: int, *path: str | int) -> str:
    return checked.document.written_pointer(pointer(*checked.base, "nodes", index, *path))


# Types.


def _mismatches(checked: Checked) -> Iterator[Problem]:
    """Yield a problem for each argument that refers to a value of a type that it definitely does not accept."""
    made = _Made(checked)
    for index, (node, references) in enumerate(zip(checked.nodes, checked.references, strict=True)):
        tool = checked.tools.get(node.tool or "")
        # With another join, a node may run although a node that it reads was skipped, with null as its result.
        bindings = references.argument_bindings if tool is not None and node.join == "all" else ()
        for path, template in bindings:
            accepted = accepted_types(tool, path) if tool is not None and made.is_known(template) else None
            if accepted is not None and (misfit := made.misfit(template, accepted)) is not None:
                message = f"{misfit.message}, and {path[0]!r} of {node.tool!r} takes {_listed(accepted)}"
                at = _written_pointer(checked, index, "arguments", *path)
                yield Problem("invalid_arguments", message, at, node.id, misfit.hint)
        if references.for_each is not None and (misfit := made.misfit(references.for_each, _OF_FOR_EACH)) is not None:
            message = f"{misfit.message}, and for_each takes a list"
            yield Problem("invalid_field", message, _written_pointer(checked, index, "for_each"), node.id, misfit.hint)


class _Misfit(NamedTuple):
    """Message about a value of a type that is not accepted, naming its declaration, and a hint."""

    message: str
    hint: str


class _Made:
    """Declared types of the results and inputs of a plan."""

    def __init__(self, checked: Checked) -> None:
        # The result of a node with for_each is a list, whatever its tool declares.
        self._tools = {node.id: node.tool for node in checked.nodes if node.tool and node.for_each is None}
        counts = Counter(node.id for node in checked.nodes)
        self._schemas = {
            node.id: schema
            for node in checked.nodes
            if counts[node.id] == 1 and (schema := _schema_of_result(node, checked.tools)) is not None
        }
        self._inputs = {name: checked.inputs[name] for name in checked.plan.inputs if checked.inputs.get(name)}

    def is_known(self, template: Template) -> bool:
        """Return whether a value is an input, a result or a part of a result with a known type."""
        part = template[0]
        if len(template) != 1:
            return False
        return (isinstance(part, ResultOf) and part.node in self._schemas) or (
            isinstance(part, Placeholder) and part.name in self._inputs
        )

    def misfit(self, template: Template, accepted: JsonTypes) -> _Misfit | None:
        """Describe a value whose type is certainly not accepted; `None` if its type may be accepted."""
        part = template[0] if len(template) == 1 else None
        if isinstance(part, Placeholder) and part.name in self._inputs:
            types = types_made(self._inputs[part.name])
            hint = f"declare the input with another type, or do not use {part.name!r} here"
            text = f"{{{{{part}}}}} is declared as {_listed(types)}"
            return None if types & accepted else _Misfit(text, hint)
        if not isinstance(part, ResultOf) or part.field != "result":
            return None
        schema = self._schemas.get(part.node)
        if schema is None or isinstance(part.path, str):
            return None
        types = types_made(_part(schema, part.path))
        if types & accepted:
            return None
        text = f"{{{{{part}}}}} is {_listed(types)}"
        hint = "name a part of the result of that type, or convert it with a tool in between"
        if part.node in self._tools:
            tool = self._tools[part.node]
            text += f", as the tool {tool!r} declares its result"
            hint += f"; if {tool!r} returns another type, correct its return annotation"
        return _Misfit(text, hint)


def _part(schema: Mapping[str, Any], path: Path) -> Any:
    return schema if isinstance(path, str) else schema_at(schema, schema, path)


def _schema_of_result(node: Node, tools: Mapping[str, ToolDeclaration]) -> Mapping[str, Any] | None:
    """Return the schema of a node's result; `None` if it is unknown or if another value may replace the result."""
    tool = tools.get(node.tool or "")
    if tool is None or tool.output_schema is None or tool.worker is not None or tool.agent is not None:
        return None
    if node.on_error not in (None, "block"):
        return None
    if node.for_each is None:
        return tool.output_schema
    return {"type": "array"}


def accepted_types(tool: ToolDeclaration, path: tuple[str | int, ...]) -> JsonTypes | None:
    """Return the types that a place in the arguments of a tool takes; `None` if a converter may take others."""
    if tool.input_schema is None or path[0] not in tool.plain_parameters:
        return None
    return types_accepted(schema_at(tool.input_schema, tool.input_schema, path))


def _listed(types: JsonTypes) -> str:
    return " or ".join(sorted(types))
