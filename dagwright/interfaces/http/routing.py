"""Routing: whether the model or a run answers a request.

Requests to plans, agents and profiles are always answered by a run. With `auto`, the model answers requests that
declare functions or have results of functions, since a run cannot call functions of the client. For any other request,
the model is called once and chooses.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.model.tools import ToolDeclaration
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import RoutingMode
from dagwright.interfaces.http.targets import Target
from dagwright.llm import ModelClient, ModelError
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.planning.model_calls.model_requests import CallLabels, ModelCall, ModelConfig, OutputSchema, system, user

MAX_TOOLS = 40
MAX_REQUEST_CHARACTERS = 4_000
"""Maximum length of the request in the prompt. A longer request is cut, because its start shows the subject."""
PURPOSE = "route"
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"route": {"enum": ["direct", "orchestration"]}},
    "required": ["route"],
    "additionalProperties": False,
}
_PROMPT = """\
You decide how a request is answered.
Choose "direct" if a language model can answer it well by itself, from its own knowledge and the request.
Choose "orchestration" if the answer takes steps: looking something up, calculating exactly, changing something, or
several tasks that depend on each other. The steps can use these tools:
{tools}"""


def route_by_rules(
    mode: RoutingMode | None, target: Target, conversation: Conversation, *, has_functions: bool
) -> RoutingMode:
    """Return the route of a request; `auto` if the model has to choose.

    Args:
        mode: the requested mode; `None` for the default of the target.
        has_functions: whether the request declares functions.

    Raises:
        ApiError: the mode does not fit the target, or the request answers a question that no run asked.
    """
    if conversation.has_other_results and (
        conversation.answers or target.needs_run or mode is RoutingMode.ORCHESTRATION
    ):
        raise unknown_call_error()
    if conversation.answers:
        return RoutingMode.ORCHESTRATION
    if target.needs_run:
        if mode is RoutingMode.DIRECT:
            message = (
                f"{target.id!r:.120} is always answered by a run: omit routing_mode, or use a model of the service"
            )
            raise ApiError(ErrorCode.ROUTING_MODE_UNFIT, message, param="routing_mode")
        return RoutingMode.ORCHESTRATION
    if mode is RoutingMode.ORCHESTRATION:
        return mode
    if mode is RoutingMode.AUTO and not (has_functions or conversation.has_other_results):
        return mode
    return RoutingMode.DIRECT


def unknown_call_error() -> ApiError:
    """Return the error for an answer to a question that no run asked."""
    message = "a result in the last messages does not belong to a call of answer_feedback in the messages before it"
    return ApiError(ErrorCode.UNKNOWN_TOOL_CALL, message, param="messages")


async def route_by_model(
    client: ModelClient, config: ModelConfig, conversation: Conversation, *, tools: Sequence[ToolDeclaration]
) -> RoutingMode:
    """Let the model choose the route of a request; `direct` if the model returns no valid choice.

    Raises:
        ModelFailure: the call failed. A direct answer of the model would fail, too.
    """
    tool_lines = "\n".join(f"- {tool.name}: {_first_line(tool)}" for tool in tools[:MAX_TOOLS])
    call = ModelCall(
        (system(_PROMPT.format(tools=tool_lines or "(none)")), user(conversation.text[:MAX_REQUEST_CHARACTERS])),
        config=ModelConfig(model=config.model),
        output=OutputSchema(PURPOSE, _SCHEMA),
        labels=CallLabels(purpose=PURPOSE),
    )
    try:
        answer = await client.complete(call)
    except ModelFailure as failure:
        if failure.error in (ModelError.OUTPUT_INVALID, ModelError.REFUSED, ModelError.FILTERED, ModelError.TRUNCATED):
            return RoutingMode.DIRECT
        raise
    return RoutingMode(answer.output["route"])


def _first_line(tool: ToolDeclaration) -> str:
    return (tool.description or "").strip().partition("\n")[0][:200]
