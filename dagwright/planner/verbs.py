"""Verbs that intents may use, formatted for a model. Arguments that are entities are listed under `entities`."""

from collections.abc import Mapping
from typing import Any

from dagwright.core.model.argument_checks import accepted_kinds, kind_conditions
from dagwright.core.model.json_schemas import TEXT_FORMAT
from dagwright.core.model.resolvers import callable_tools
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.planner.tool_catalogue import Catalogue, arguments_schema, describe_tool, fit_lines
from dagwright.planning.model_calls.message_preparation import json_line
from dagwright.tools.registry import BUILTIN_TOOL_NAMES


def intent_verbs(tools: Mapping[str, ToolDeclaration]) -> Mapping[str, ToolDeclaration]:
    """Return the tools that are verbs: all tools except agents, pure tools, compensating tools and built-in tools.

    A user's tool with the name of a built-in tool is a verb.
    """
    compensating_tools = {tool.undo for tool in tools.values()}
    return {
        name: tool
        for name, tool in callable_tools(tools).items()
        if tool.effects is not Effects.PURE
        and tool.agent is None
        and name not in compensating_tools
        and not (name in BUILTIN_TOOL_NAMES and tool.task_queue is None)
    }


def verb_catalogue(verbs: Mapping[str, ToolDeclaration]) -> Catalogue:
    """Format verbs for a model, one line each, sorted by name; verbs that do not fit are omitted."""
    entries, omitted_names = fit_lines({name: json_line(_describe_verb(verbs[name])) for name in sorted(verbs)})
    return Catalogue({name: verbs[name] for name in entries}, "\n".join(["Verbs:", *entries.values()]), omitted_names)


def _describe_verb(verb: ToolDeclaration) -> dict[str, Any]:
    document = {"verb": verb.name, **describe_tool(verb), **_arguments(verb)}
    return document if verb.returns is None else {**document, "makes": verb.returns}


def _arguments(verb: ToolDeclaration) -> dict[str, Any]:
    """Return the arguments of a verb, grouped into values and entities if the kinds of all arguments are known."""
    arguments = arguments_schema(verb)
    properties = arguments.get("properties") if isinstance(arguments, Mapping) else None
    kinds = {name: accepted_kinds(verb, name) for name in properties or ()}
    if properties is None or None in kinds.values():
        return {"arguments": arguments}
    groups: dict[str, Any] = {
        "params": {name: _without_null(properties[name]) for name, entity_kinds in kinds.items() if not entity_kinds},
        "entities": {
            name: _describe_entity(verb, name, entity_kinds) for name, entity_kinds in kinds.items() if entity_kinds
        },
        "required": arguments.get("required", []),
    }
    return {name: group for name, group in groups.items() if group}


def _without_null(schema: Any) -> Any:
    """Return the schema of an argument without its null type, and with its text format under the key `format`."""
    if not isinstance(schema, Mapping):
        return schema
    simplified_schema = {
        keyword: part for keyword, part in schema.items() if not (keyword == "default" and part is None)
    }
    choices = simplified_schema.get("anyOf")
    non_null_choices = [choice for choice in choices if choice != {"type": "null"}] if isinstance(choices, list) else []
    if len(non_null_choices) == 1 and isinstance(non_null_choices[0], Mapping):
        del simplified_schema["anyOf"]
        simplified_schema = {**non_null_choices[0], **simplified_schema}
    return {"format" if keyword == TEXT_FORMAT else keyword: part for keyword, part in simplified_schema.items()}


def _describe_entity(verb: ToolDeclaration, name: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Format an argument that takes an entity."""
    schema = (verb.input_schema or {})["properties"][name]
    description = schema.get("description") if isinstance(schema, Mapping) else None
    conditions = kind_conditions(verb, name)
    document = {"kinds": [*kinds], **({"description": description} if description else {})}
    return {**document, "only": dict(conditions)} if conditions else document
