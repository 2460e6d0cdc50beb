"""Model calls at the activity boundary, and as nodes of a plan.

`ModelRequest` is the input and `ModelResponse` the output of the activity `call_model`. A model call is an ordinary
node, so states, retries, cancellation and continue-as-new work as for other nodes. Replay: the plan contains
the definition of each node, so the constants here may change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dagwright.core.boundary import wire
from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.model.compiled import Binding, CompiledNode, RetryRule
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.planning.model_calls.response_summary import SUMMARY_PROJECTIONS, ToolCall
from dagwright.planning.plan_and_execute.replan_context import REPLAN_CONTEXTS, ReplanContext
from dagwright.planning.rounds.sub_goals import ROUND_CONTEXTS, RoundContext

Json = dict[str, Any]
MODEL_NAME_CHARACTERS = 200
"""Maximum length of a model name; actual names are much shorter."""


class ModelConfig(BaseModel):
    """Model and sampling options of a request. Agent cards do not set them. Unset fields are not sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str | None = Field(default=None, min_length=1, max_length=MODEL_NAME_CHARACTERS)
    """`None` selects the model of the worker's settings."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    def to_json(self) -> Json:
        """Return the fields that are set."""
        return self.model_dump(exclude_none=True)

    def with_defaults(self, defaults: "ModelConfig") -> "ModelConfig":
        """Return this config with unset fields filled from `defaults`."""
        return ModelConfig(**(defaults.to_json() | self.to_json()))


DEFAULT_CONFIG = ModelConfig()
"""Uses the worker's settings for all fields."""


def model_config_from_json(encoded: Any) -> ModelConfig:
    """Decode a config from its JSON form.

    Raises:
        ValueError: the JSON is invalid; the message lists all invalid fields.
    """
    try:
        return ModelConfig.model_validate(encoded)
    except ValidationError as error:
        raise ValueError("; ".join(_problem_text(detail) for detail in error.errors(include_url=False))) from None


def _problem_text(error: Any) -> str:
    name = ".".join(map(str, error["loc"])) or "model config"
    if error["type"] == "extra_forbidden":
        hint = suggestion(name, list(ModelConfig.model_fields))
        return f"{name}: there is no such field{f'; {hint}' if hint else ''}"
    text = str(error["msg"]).replace("Input should be", "must be")
    return f"{name}: {text}, got {error['input']!r:.80}"


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls of an assistant message; a `tool` message must follow for each of them."""
    tool_call_id: str | None = None
    """For a `tool` message: ID of the call that it answers."""

    @model_validator(mode="after")
    def _check_role(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of {self.role!r} cannot call tools")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("a message of the role tool must have a tool_call_id, and no other message may have one")
        return self

    def to_json(self) -> Json:
        """Return the message in OpenAI's form, with the internal names of tools."""
        encoded: Json = {"role": self.role, "content": self.content}
        if self.tool_calls:
            encoded["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.tool_call_id is not None:
            encoded["tool_call_id"] = self.tool_call_id
        return encoded


def system(text: str) -> Message:
    """Create a system message."""
    return Message(role="system", content=text)


def user(text: str) -> Message:
    """Create a user message."""
    return Message(role="user", content=text)


def tool_result(call: ToolCall, text: str) -> Message:
    """Create the message with the result of a tool call."""
    return Message(role="tool", content=text, tool_call_id=call.id)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call.

    Args:
        name: name in plans; the client maps it to a name that the protocol allows.
        parameters: JSON Schema of the arguments, an object.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def to_json(self) -> Json:
        """Return the tool in its JSON form."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """JSON Schema of the answer.

    Args:
        name: up to 64 letters, digits, `_` and `-`.
        schema: any JSON Schema; the client makes it strict for servers that require this.
        is_enforced: whether the call fails if its answer does not match the schema. Otherwise the response has the text
            and no output, because the caller can use the text.
    """

    name: str
    schema: Mapping[str, Any]
    is_enforced: bool = True

    def to_json(self) -> Json:
        """Return the schema in its JSON form."""
        encoded = {"name": self.name, "schema": dict(self.schema)}
        return encoded if self.is_enforced else {**encoded, "is_enforced": False}


@dataclass(frozen=True, slots=True)
class CallLabels:
    """Labels that identify a call, sent as `metadata`."""

    run_id: str = ""
    node_id: str = ""
    purpose: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the labels that are set, truncated to the limit of the protocol."""
        labels = {"run_id": self.run_id, "node_id": self.node_id, "purpose": self.purpose}
        return {name: value[:LABEL_CHARACTERS] for name, value in labels.items() if value}


LABEL_CHARACTERS = 512
"""OpenAI's limit for one value of `metadata`."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model.

    Args:
        messages: the conversation, at least one message.
        tools: tools that the model may call.
        tool_choice: `auto`, `none`, `required`, or the name of the tool that the model must call; empty omits the
            field.
        output: schema of the answer; `None` for text.
    """

    messages: tuple[Message, ...]
    config: ModelConfig = field(default_factory=ModelConfig)
    tools: tuple[OfferedTool, ...] = ()
    tool_choice: str = ""
    output: OutputSchema | None = None
    labels: CallLabels = CallLabels()


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """Response of a model.

    Args:
        message: assistant message; append it to the conversation to continue.
        output: value that matches the schema `ModelCall.output`; null if the model called tools instead.
        finish_reason: `tool_calls` if the model called tools, otherwise `stop`.
        model: model that answered, as reported by the server.
        usage: usage of this call only.
        conversation: reference to the conversation including this response, if the request has `stores_conversation`.
        accepted_nodes: nodes of this and earlier plans that were sent to the run, if the request has `planning`.
        parsed_round: the parsed answer of a planner of rounds, if the request has a `round_context`.
    """

    message: Message
    output: Any = None
    finish_reason: str = "stop"
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    conversation: str | None = None
    accepted_nodes: Sequence[Mapping[str, Any]] | None = None
    parsed_round: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """Text of the response; empty if the model only called tools."""
        return self.message.content or ""


@dataclass(frozen=True, slots=True)
class NamedEndpoint:
    """A model server other than the server of the worker's settings.

    Args:
        base_url: URL of the server.
        secret: name of the key. The worker reads the key from `DAGWRIGHT_SECRET_<secret>`, and sends it to no other
            server. Empty if the server needs no key.
    """

    base_url: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class PlanStreamOptions:
    """Options of a call that streams a plan: the nodes are sent to the run while the model is writing the plan.

    Args:
        tools: tools that the plan may use, in the encoding of `dagwright.planner.plan_parser`.
        accepted_nodes: accepted nodes of earlier answers, as written.
        replan_context: state of the run at a replan.
    """

    tools: Sequence[Mapping[str, Any]]
    accepted_nodes: Sequence[Mapping[str, Any]] = ()
    replan_context: ReplanContext | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Input of the activity `call_model`.

    Args:
        call: the messages after `previous_conversation`, with the options of the call.
        previous_conversation: `ModelResponse.conversation` of an earlier call that `call.messages` continue, so that
            history contains a long conversation only once.
        stores_conversation: whether the worker stores the conversation, so that another call can continue the
            conversation. If so, the response has a `conversation`.
        endpoint: `None` for the server of the worker's settings.
        cuts: index of a message in `call` -> number of characters after which the message is truncated, with a mark.
        planning: options of a streamed plan; `None` for any other answer.
        round_context: context for parsing the answer of a planner of rounds; `None` for any other answer.
        streamed_field: part of the answer to stream: `""` for its text, otherwise the field of its JSON that contains
            the text. `None` disables streaming.
    """

    call: ModelCall
    previous_conversation: str | None = None
    stores_conversation: bool = False
    endpoint: NamedEndpoint | None = None
    cuts: Mapping[int, int] = field(default_factory=dict)
    planning: PlanStreamOptions | None = None
    round_context: RoundContext | None = None
    streamed_field: str | None = None


def messages_to_json(messages: Sequence[Message]) -> Any:
    """Return a conversation in its stored form."""
    return [message.to_json() for message in messages]


def messages_from_json(encoded: Any) -> tuple[Message, ...]:
    """Decode a conversation from its stored form.

    Raises:
        ValueError: the value is not a list of messages.
    """
    return tuple(Message.model_validate(message) for message in encoded)


def request_to_json(request: ModelRequest) -> Json:
    """Return a request in the JSON form of the activity; bindings may still fill the content of messages."""
    call = request.call
    encoded: Json = {"config": call.config.to_json(), "labels": call.labels.to_json()}
    if call.tools:
        encoded["tools"] = [tool.to_json() for tool in call.tools]
    if call.tool_choice:
        encoded["tool_choice"] = call.tool_choice
    if call.output is not None:
        encoded["output"] = call.output.to_json()
    if request.previous_conversation is not None:
        encoded["previous_conversation"] = request.previous_conversation
    if request.stores_conversation:
        encoded["stores_conversation"] = True
    if request.endpoint is not None:
        encoded["endpoint"] = {"base_url": request.endpoint.base_url, "secret": request.endpoint.secret}
    if request.cuts:
        encoded["cuts"] = [[index, characters] for index, characters in request.cuts.items()]
    if request.planning is not None:
        encoded["planning"] = {
            "tools": [dict(tool) for tool in request.planning.tools],
            "accepted_nodes": [dict(node) for node in request.planning.accepted_nodes],
        }
        if request.planning.replan_context is not None:
            encoded["planning"]["replan_context"] = REPLAN_CONTEXTS.encode(request.planning.replan_context)
    if request.round_context is not None:
        encoded["round_context"] = ROUND_CONTEXTS.encode(request.round_context)
    if request.streamed_field is not None:
        encoded["streamed_field"] = request.streamed_field
    return {**encoded, "messages": messages_to_json(call.messages)}


def request_from_json(encoded: Any) -> ModelRequest:
    """Decode a request from its JSON form.

    Raises:
        ValueError: the JSON is invalid; the message names the problem.
    """
    try:
        output, endpoint = encoded.get("output"), encoded.get("endpoint")
        call = ModelCall(
            messages=messages_from_json(encoded["messages"]),
            config=model_config_from_json(encoded.get("config", {})),
            tools=tuple(
                OfferedTool(tool["name"], tool.get("description", ""), tool["parameters"])
                for tool in encoded.get("tools", ())
            ),
            tool_choice=encoded.get("tool_choice", ""),
            output=None if output is None else _output_from_json(output),
            labels=CallLabels(**encoded.get("labels", {})),
        )
        return ModelRequest(
            call,
            previous_conversation=encoded.get("previous_conversation"),
            stores_conversation=encoded.get("stores_conversation", False),
            endpoint=None if endpoint is None else NamedEndpoint(**endpoint),
            cuts={int(index): int(characters) for index, characters in encoded.get("cuts", ())},
            planning=_planning_from_json(encoded.get("planning")),
            round_context=ROUND_CONTEXTS.decode(encoded["round_context"]) if "round_context" in encoded else None,
            streamed_field=_streamed_field_from_json(encoded.get("streamed_field")),
        )
    except ValidationError as error:
        raise ValueError("; ".join(_problem_text(detail) for detail in error.errors(include_url=False))) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid request to a model: {type(error).__name__}: {error}") from None


def _output_from_json(encoded: Any) -> OutputSchema:
    return OutputSchema(encoded["name"], encoded["schema"], is_enforced=encoded.get("is_enforced") is not False)


def _streamed_field_from_json(encoded: Any) -> str | None:
    if encoded is not None and not isinstance(encoded, str):
        raise ValueError(f"streamed_field must be a field name, not {encoded!r:.40}")
    return encoded


def _planning_from_json(encoded: Any) -> PlanStreamOptions | None:
    if encoded is None:
        return None
    accepted_nodes = encoded["accepted_nodes"]
    if not isinstance(accepted_nodes, list) or not all(isinstance(node, Mapping) for node in accepted_nodes):
        raise ValueError("the accepted nodes must be a list of nodes")
    return PlanStreamOptions(
        tuple(encoded["tools"]), tuple(accepted_nodes), REPLAN_CONTEXTS.decode(encoded.get("replan_context"))
    )


def response_to_json(response: ModelResponse) -> Json:
    """Return a response in the JSON form of the activity."""
    encoded: Json = {
        "message": response.message.to_json(),
        "output": response.output,
        "finish_reason": response.finish_reason,
        "model": response.model,
        "usage": response.usage.to_json(),
    }
    if response.conversation is not None:
        encoded["conversation"] = response.conversation
    if response.accepted_nodes is not None:
        encoded["accepted_nodes"] = [dict(node) for node in response.accepted_nodes]
    if response.parsed_round is not None:
        encoded["parsed_round"] = dict(response.parsed_round)
    return encoded


MODEL_TIMEOUT_S = 1_200.0
"""Timeout of one attempt: a server may be silent for ten minutes while its model thinks, and then stream for several
more minutes. A dead worker is detected much earlier by its missing heartbeats."""
MODEL_HEARTBEAT_S = 30.0
"""Heartbeat timeout, as for `write` calls: a model call costs money, and must not be repeated after an outage of a few
seconds."""
MODEL_RETRY = RetryRule(max_attempts=8, first_delay_s=1.0, factor=2.0, max_delay_s=60.0)
"""Covers an outage of two minutes; a `Retry-After` header of the server takes precedence."""

CALL_MODEL = ToolDeclaration(wire.ACTIVITY_CALL_MODEL, Effects.READ, timeout_s=MODEL_TIMEOUT_S)
"""Declaration of the activity: it has no side effects, and its results are never cached."""


def model_node(
    node_id: str,
    request: ModelRequest,
    *,
    title: str | None = None,
    dependencies: Sequence[int] = (),
    bindings: Sequence[Binding] = (),
) -> CompiledNode:
    """Build the node of a model call. `planning.model_calls.response_summary` decodes the result of the node.

    Args:
        bindings: bindings of the arguments, for example at `("messages", 1, "content")`. Large results are passed by
            reference.
    """
    labels = replace(request.call.labels, node_id=node_id)
    return CompiledNode(
        id=node_id,
        kind="tool",
        title=title,
        tool=CALL_MODEL.name,
        arguments=request_to_json(replace(request, call=replace(request.call, labels=labels))),
        bindings=tuple(bindings),
        dependencies=tuple(dependencies),
        retry=MODEL_RETRY,
        timeout_s=MODEL_TIMEOUT_S,
        heartbeat_s=MODEL_HEARTBEAT_S,
        cache_s=0.0,
        # No approval is needed: users who may run the plan may call the model. A policy can still deny the call.
        approval="never",
        projections=SUMMARY_PROJECTIONS,
    )
