"""Catalogue of the tools and agents that a plan may use, formatted for a model in a fixed order and a limited size.

Each entry is one line of JSON, so a name or description cannot add lines with instructions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.model.agents import AgentCard
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.text import cut_for_model, join_first, one_line
from dagwright.planning.model_calls.message_preparation import json_line

CATALOGUE_CHARACTERS = 96 * 1024
"""Limit for all lines together: about 25,000 tokens, a quarter of the context window of models that plan well."""
DESCRIPTION_CHARACTERS = 1_000
SCHEMA_CHARACTERS = 6_000
"""Limit for the JSON Schema of the arguments of one tool; longer schemas are reduced to names and types."""
_MAX_NAMED_OMISSIONS = 20


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Tools and agents that a plan may use, and their text for a model.

    Args:
        tools: entries of the text, agents first, each kind sorted by name.
        text: one line per entry.
        omitted_names: names that did not fit.
    """

    tools: Mapping[str, ToolDeclaration]
    text: str
    omitted_names: Sequence[str] = ()

    def note(self) -> str | None:
        """Return a sentence that names the omitted entries; `None` if all entries fit."""
        if not self.omitted_names:
            return None
        names = join_first([*map(repr, self.omitted_names)], _MAX_NAMED_OMISSIONS)
        return f"the catalogue of the planner omits {names}: it has a limit of {CATALOGUE_CHARACTERS:,} characters"


def build_catalogue(tools: Mapping[str, ToolDeclaration]) -> Catalogue:
    """Format tools and agents for a model.

    Entries that do not fit into `CATALOGUE_CHARACTERS` are omitted, and the catalogue names them.
    """
    sorted_tools = sorted(tools.items(), key=lambda item: (item[1].agent is None, item[0]))
    entries, omitted_names = fit_lines(
        {
            name: json_line(_tool_entry(tool) if tool.agent is None else _agent_entry(tool.agent))
            for name, tool in sorted_tools
        }
    )
    parts = [
        (title, [line for name, line in entries.items() if (tools[name].agent is not None) is are_agents])
        for title, are_agents in (("Agents:", True), ("Tools:", False))
    ]
    text = "\n\n".join("\n".join([title, *lines]) for title, lines in parts if lines)
    names = [card.name if (card := tools[name].agent) is not None else name for name in omitted_names]
    return Catalogue({name: tools[name] for name in entries}, text, names)


def fit_lines(lines: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the lines that fit into the catalogue, by name, and the names of the omitted lines."""
    fitting_lines: dict[str, str] = {}
    omitted_names: list[str] = []
    remaining_characters = CATALOGUE_CHARACTERS
    for name, line in lines.items():
        if len(line) < remaining_characters:
            fitting_lines[name] = line
            remaining_characters -= len(line) + 1
        else:
            omitted_names.append(name)
    return fitting_lines, omitted_names


def _agent_entry(agent: AgentCard) -> dict[str, Any]:
    document = {
        "agent": agent.name,
        "description": cut_for_model(one_line(agent.description), DESCRIPTION_CHARACTERS),
    }
    return {**document, "objective": cut_for_model(agent.objective_template, DESCRIPTION_CHARACTERS)}


def _tool_entry(tool: ToolDeclaration) -> dict[str, Any]:
    document = {"tool": tool.name, **describe_tool(tool), "arguments": arguments_schema(tool)}
    return document if tool.worker is None else {**document, "result": [*tool.worker.outputs]}


def describe_tool(tool: ToolDeclaration) -> dict[str, Any]:
    """Return the effects and the description of a tool."""
    document: dict[str, Any] = {"effects": tool.effects.value}
    if tool.description:
        document["description"] = cut_for_model(one_line(tool.description), DESCRIPTION_CHARACTERS)
    return document


def arguments_schema(tool: ToolDeclaration) -> Any:
    """Return the JSON Schema of the arguments of a tool; a long schema is reduced to an outline."""
    if tool.input_schema is None:
        return "any"
    schema = {name: part for name, part in tool.input_schema.items() if name not in ("$schema", "title")}
    return schema if len(json_line(schema)) <= SCHEMA_CHARACTERS else _outline(schema)


def _outline(schema: Mapping[str, Any]) -> Any:
    """Reduce a long schema to the names of the arguments, their types, and the names of required arguments."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return "the schema is omitted because it is too long"
    types = {
        str(name): part.get("type", "any") if isinstance(part, Mapping) else "any" for name, part in properties.items()
    }
    outline = {
        "types": types,
        "required": schema.get("required", []),
        "note": "shortened: only names, types and required arguments",
    }
    return outline if len(json_line(outline)) <= SCHEMA_CHARACTERS else "the schema is omitted because it is too long"
