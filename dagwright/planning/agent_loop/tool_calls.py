"""Convert the tool calls of a model into nodes of the agent's plan, or into an error message for the model.

A model may call an unknown tool, or write arguments that are invalid JSON or do not match the schema of the tool. None
of these errors fails the run: the model receives the error and can correct the call in its next turn.
"""

from collections.abc import Mapping
from typing import Any

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.model.argument_checks import problem_of_call
from dagwright.core.model.compiled import CompiledNode, default_retry
from dagwright.core.model.tools import Effects, ToolDeclaration, effects_of_call
from dagwright.core.name_hints import suggestion
from dagwright.features.feedback.questions import BadQuestion, validate_question_fields
from dagwright.planning.agent_loop.spec import AgentSpec, ask_person_tool
from dagwright.planning.model_calls.response_summary import ToolCall

_NAME_CHARACTERS = 80
"""Limit for the name of an unknown tool in an error message."""


class ToolCallInvalid(Exception):
    """A tool call is invalid. The message is for the model."""


class UnknownTool(ToolCallInvalid):
    """The model called a tool that it does not have."""


def node_of_call(call: ToolCall, spec: AgentSpec, *, node_id: str, turn_node_number: int) -> CompiledNode:
    """Build the node for a tool call.

    Args:
        node_id: ID of the new node.
        turn_node_number: number of the node that represents the turn with the call.

    Raises:
        ToolCallInvalid: the call is invalid.
    """
    if spec.is_ask_person_tool(call.name):
        ask_tool = ask_person_tool(spec.request_types)
        ask_declaration = ToolDeclaration(ask_tool.name, Effects.READ, input_schema=ask_tool.parameters)
        return _node_of_ask_call(_arguments_of(call, ask_declaration), node_id, turn_node_number)
    tool = spec.tools.get(call.name)
    if tool is None:
        raise UnknownTool(f"Unknown tool {call.name[:_NAME_CHARACTERS]!r}.")
    arguments = _arguments_of(call, tool)
    effects = effects_of_call(tool, arguments)
    return CompiledNode(
        id=node_id,
        tool=tool.name,
        arguments=arguments,
        dependencies=(turn_node_number,),
        retry=default_retry(effects, tool.max_attempts),
        timeout_s=tool.timeout_s,
        is_worker=tool.worker is not None,
        effects=None if effects is tool.effects else effects.value,
    )


def unknown_tool_message(name: str, spec: AgentSpec) -> str:
    """Return the message for the first call of an unknown tool in a turn, with the names of all available tools.

    The messages for further unknown tools of the turn do not repeat the list of names.

    Complexity: linear in the number of tools, about 10 µs per tool.
    """
    tool_names = [tool.name for tool in spec.offered_tools]
    name = name[:_NAME_CHARACTERS]
    if not tool_names:
        return f"Unknown tool {name!r}: no tools are available. Answer without tools."
    hint = suggestion(name, tool_names)
    return f"Unknown tool {name!r}{f'; {hint}' if hint else '.'} Available tools: {', '.join(tool_names)}."


def _arguments_of(call: ToolCall, tool: ToolDeclaration) -> Mapping[str, Any]:
    try:
        # Models may leave the arguments of a call empty.
        arguments = json_from_bytes(call.arguments.encode(errors="replace") or b"{}")
    except ValueError as error:
        raise ToolCallInvalid(
            f"Invalid JSON in the arguments of {tool.name}: {error}. Write one JSON object."
        ) from None
    if not isinstance(arguments, dict):
        raise ToolCallInvalid(f"The arguments of {tool.name} must be one JSON object, not {call.arguments:.80}")
    if (problem := problem_of_call(tool, arguments)) is not None:
        raise ToolCallInvalid(f"Invalid arguments of {tool.name}: {problem}")
    return arguments


def _node_of_ask_call(fields: Mapping[str, Any], node_id: str, turn_node_number: int) -> CompiledNode:
    # Only a SELECTION has options, and only an INFORMATION has a schema.
    implied_type = "SELECTION" if fields.get("options") else "INFORMATION" if "schema" in fields else "CLARIFICATION"
    default_type = {} if "type" in fields else {"type": implied_type}
    try:
        return human_node(validate_question_fields({**fields, **default_type}), node_id, turn_node_number)
    except BadQuestion as error:
        raise ToolCallInvalid(f"No request was sent: {error}") from None


def human_node(request: Mapping[str, Any], node_id: str, turn_node_number: int) -> CompiledNode:
    """Build the node that sends a request to a person.

    Args:
        request: fields of the request, from `validate_question_fields`.
        turn_node_number: number of the node that represents the turn with the request.
    """
    return CompiledNode(id=node_id, kind="human", arguments=request, dependencies=(turn_node_number,))
