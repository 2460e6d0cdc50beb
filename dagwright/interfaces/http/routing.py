"""Who answers a request: the model itself, or a run.

What `auto` does: a plan, an agent and a profile are always answered by a run. A request that brings functions of its
own, or results of such, is answered by the model, for a run could not call them. Of any other the model is asked once,
and says which of the two it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.model.tools import ToolDeclaration
from dagwright.interfaces.http.bodies import RoutingMode
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.targets import Target
from dagwright.llm import ModelClient, ModelError
from dagwright.planning.model_calls.calls import CallLabels, ModelCall, ModelConfig, OutputSchema, system, user
from dagwright.planning.model_calls.failures import ModelFailure

TOOLS_TOLD = 40
REQUEST_CHARACTERS = 4_000
"""Of a request as the model is told it: how it begins says what it is about."""
PURPOSE = "route"
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"route": {"enum": ["direct", "orchestration"]}},
    "required": ["route"],
    "additionalProperties": False,
}
_PROMPT = """\
You decide who answers a request.
Say "direct" if a language model can answer it well by itself, from what it knows and what is said.
Say "orchestration" if it takes steps: looking something up, calculating exactly, changing something, or several tasks
that build on each other. The steps can use these tools:
{tools}"""


def decided(mode: RoutingMode | None, target: Target, said: Conversation, *, has_functions: bool) -> RoutingMode:
    """Returns who answers; `auto` if that is for the model to say.

    Args:
        mode: as it was asked for; `None` leaves it to the target.
        has_functions: whether the request brings functions of its own.

    Raises:
        ApiError: the mode does not go with the model, or no run asked what is answered.
    """
    if said.other_tools and (said.answers or target.is_ours or mode is RoutingMode.ORCHESTRATION):
        raise unknown_call()
    if said.answers:
        return RoutingMode.ORCHESTRATION
    if target.is_ours:
        if mode is RoutingMode.DIRECT:
            words = (
                f"{target.id!r:.120} is answered by a run alone: leave routing_mode out, or name a model of the service"
            )
            raise ApiError(400, words, param="routing_mode", code="routing_mode_unfit")
        return RoutingMode.ORCHESTRATION
    if mode is RoutingMode.ORCHESTRATION:
        return mode
    if mode is RoutingMode.AUTO and not (has_functions or said.other_tools):
        return mode
    return RoutingMode.DIRECT


def unknown_call() -> ApiError:
    """Returns what a client is told that answers what no run has asked."""
    words = "a result among the last messages is of no call of answer_feedback that stands before it; no run asked it"
    return ApiError(400, words, param="messages", code="unknown_tool_call")


async def route_by_model(
    client: ModelClient, config: ModelConfig, said: Conversation, *, tools: Sequence[ToolDeclaration]
) -> RoutingMode:
    """Returns who answers a request, as a model sees fit; the model itself if it does not say.

    Raises:
        ModelFailure: it cannot be asked, so it could not answer either.
    """
    named = "\n".join(f"- {tool.name}: {_first_line(tool)}" for tool in tools[:TOOLS_TOLD])
    call = ModelCall(
        (system(_PROMPT.format(tools=named or "(none)")), user(said.text[:REQUEST_CHARACTERS])),
        config=ModelConfig(model=config.model),
        output=OutputSchema(PURPOSE, _SCHEMA),
        labels=CallLabels(purpose=PURPOSE),
    )
    try:
        answer = await client.complete(call)
    except ModelFailure as failure:
        if failure.error in (ModelError.OUTPUT_INVALID, ModelError.REFUSED, ModelError.FILTERED, ModelError.CUT_OFF):
            return RoutingMode.DIRECT
        raise
    return RoutingMode(answer.output["route"])


def _first_line(tool: ToolDeclaration) -> str:
    return (tool.description or "").strip().partition("\n")[0][:200]
