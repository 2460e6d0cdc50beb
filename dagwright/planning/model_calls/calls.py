"""Model calls as they cross the boundary: what the activity `call_model` takes and returns, and how it fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dagwright.core.boundary.usage import Usage
from dagwright.core.expressions.references import suggestion
from dagwright.planning.plan_and_execute.replan_context import REPLAN_CONTEXTS, ReplanContext
from dagwright.planning.rounds.sub_goals import ROUND_CONTEXTS, RoundContext

Json = dict[str, Any]
MODEL_NAME_CHARACTERS = 200
"""Characters of a model name; the names of services are far shorter."""


class Action(StrEnum):
    """What to do about a model call that failed."""

    RETRY = "retry"
    """The same call may work later."""
    FIX = "fix"
    """What the model wrote is of no use: ask again, with what was wrong."""
    ASK_PERSON = "ask_person"
    """Somebody has to do something, such as pay; then the same call may be made again."""
    GIVE_UP = "give_up"
    """The same call never works; the advice says what would."""


class ModelError(StrEnum):
    """Why a model call failed: codes of nodes and `ApplicationError.type` of the activity."""

    BUSY = "model_busy"
    UNAVAILABLE = "model_unavailable"
    ANSWER_BROKEN = "model_answer_broken"
    OUTPUT_INVALID = "model_output_invalid"
    QUOTA_SPENT = "model_quota_spent"
    KEY_MISSING = "model_key_missing"
    KEY_REFUSED = "model_key_refused"
    FORBIDDEN = "model_forbidden"
    MODEL_MISSING = "model_missing"
    MODEL_UNKNOWN = "model_unknown"
    ADDRESS_WRONG = "model_address_wrong"
    CONTEXT_EXCEEDED = "model_context_exceeded"
    REFUSED = "model_refused"
    FILTERED = "model_filtered"
    CUT_OFF = "model_cut_off"
    REQUEST_INVALID = "model_request_invalid"


class ModelConfig(BaseModel):
    """Which model is asked, and how; it belongs to the request and never to an agent. What is not set is not sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str | None = Field(default=None, min_length=1, max_length=MODEL_NAME_CHARACTERS)
    """`None` is the model of the worker's settings."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    def to_json(self) -> Json:
        """Returns what is set."""
        return self.model_dump(exclude_none=True)

    def over(self, other: "ModelConfig") -> "ModelConfig":
        """Returns `other` with what is set here in its place."""
        return ModelConfig(**(other.to_json() | self.to_json()))


NOTHING_SET = ModelConfig()
"""Leaves everything to the worker's settings."""


def model_config_from_json(encoded: Any) -> ModelConfig:
    """Returns the config of its JSON form.

    Raises:
        ValueError: it is none; the text tells every wrong field.
    """
    try:
        return ModelConfig.model_validate(encoded)
    except ValidationError as error:
        raise ValueError("; ".join(_problem(each) for each in error.errors(include_url=False))) from None


def _problem(error: Any) -> str:
    name = ".".join(map(str, error["loc"])) or "model config"
    if error["type"] == "extra_forbidden":
        hint = suggestion(name, list(ModelConfig.model_fields))
        return f"{name}: there is no such field{f'; {hint}' if hint else ''}"
    words = str(error["msg"]).replace("Input should be", "must be")
    return f"{name}: {words}, got {error['input']!r:.80}"


class ToolCall(BaseModel):
    """One tool that a model wants called.

    The arguments are the text that the model wrote: whoever calls the tool reads it, and tells the model if it is no
    JSON.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str
    arguments: str


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant, what it wants called; each needs a `tool` message right after."""
    tool_call_id: str | None = None
    """Of a `tool` message, the call that it answers."""

    @model_validator(mode="after")
    def _fitting(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of {self.role!r} cannot call tools")
        if (self.tool_call_id is None) == (self.role == "tool"):
            raise ValueError("a tool message, and no other, has the tool_call_id that it answers")
        return self

    def to_json(self) -> Json:
        """Returns the message in OpenAI's form, with the names of tools as they are here."""
        encoded: Json = {"role": self.role, "content": self.content}
        if self.tool_calls:
            encoded["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.tool_call_id is not None:
            encoded["tool_call_id"] = self.tool_call_id
        return encoded


def system(words: str) -> Message:
    """Returns a message that says what the model is to be."""
    return Message(role="system", content=words)


def user(words: str) -> Message:
    """Returns a message of whoever asks."""
    return Message(role="user", content=words)


def tool_result(call: ToolCall, words: str) -> Message:
    """Returns the answer to a tool call."""
    return Message(role="tool", content=words, tool_call_id=call.id)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model may call.

    Args:
        name: as plans have it; the client finds a name that the protocol takes.
        parameters: JSON Schema of the arguments, an object.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def to_json(self) -> Json:
        """Returns the tool as it travels."""
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What the answer must be: JSON of a schema.

    Args:
        name: up to 64 letters, digits, `_` and `-`.
        schema: any JSON Schema; the client makes it strict where a server asks for that.
        is_binding: whether an answer that does not fit fails the call. If not, it has the text and no output: whoever
            asks reads more than the schema says.
    """

    name: str
    schema: Mapping[str, Any]
    is_binding: bool = True

    def to_json(self) -> Json:
        """Returns the schema as it travels."""
        encoded = {"name": self.name, "schema": dict(self.schema)}
        return encoded if self.is_binding else {**encoded, "is_binding": False}


@dataclass(frozen=True, slots=True)
class CallLabels:
    """What tells a call from others, sent as `metadata`."""

    run_id: str = ""
    node_id: str = ""
    purpose: str = ""

    def to_json(self) -> dict[str, str]:
        """Returns the labels that are set, each as long as the protocol takes."""
        given = {"run_id": self.run_id, "node_id": self.node_id, "purpose": self.purpose}
        return {name: value[:LABEL_CHARACTERS] for name, value in given.items() if value}


LABEL_CHARACTERS = 512
"""Of one value of `metadata`, as OpenAI takes it."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One question to a model.

    Args:
        messages: the conversation, at least one message.
        tools: what the model may call.
        tool_choice: `auto`, `none`, `required`, or the name of the tool that it must call; empty leaves it out.
        output: what the answer must be; `None` for text.
    """

    messages: tuple[Message, ...]
    config: ModelConfig = field(default_factory=ModelConfig)
    tools: tuple[OfferedTool, ...] = ()
    tool_choice: str = ""
    output: OutputSchema | None = None
    labels: CallLabels = CallLabels()


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """What a model answered.

    Args:
        message: an assistant's; append it to the conversation to go on.
        output: the value that `ModelCall.output` asks for; null if the model called tools instead.
        finish_reason: as the server tells it: `stop` or `tool_calls`.
        model: the model that answered, as the server tells it.
        usage: of this call alone.
        conversation: reference of all that was said, this answer with it, if the request `is_continued`.
        accepted: nodes of this plan and of those before it that were sent to the run, if the request is for `planning`.
        read: what the answer means, if the request says what it is to be read against.
    """

    message: Message
    output: Any = None
    finish_reason: str = "stop"
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    conversation: str | None = None
    accepted: Sequence[Mapping[str, Any]] | None = None
    read: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """Returns what the model said; empty if it only called tools."""
        return self.message.content or ""


@dataclass(frozen=True, slots=True)
class NamedEndpoint:
    """A model service that is not the one of the worker's settings.

    Args:
        base_url: its address.
        secret: its key is `DAGWRIGHT_SECRET_<secret>` of the worker; empty if it takes none. No service ever gets the
            key of another.
    """

    base_url: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Planning:
    """Says of a call that its answer is a plan, whose nodes are sent to the run while the model writes.

    Args:
        tools: what the plan may use, as `planning.plan_and_execute.goals` tells it.
        accepted: nodes of earlier answers that stand already, as they were written.
        replan_context: what the run has come to, of a plan that is made again.
    """

    tools: Sequence[Mapping[str, Any]]
    accepted: Sequence[Mapping[str, Any]] = ()
    replan_context: ReplanContext | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the activity `call_model` takes.

    Args:
        call: what is said from `before` on.
        before: `ModelResponse.conversation` of an earlier call, which `call.messages` continue: so a long conversation
            stands in history once, and not again in each call.
        is_continued: whether another call will go on from here: then the answer has its `conversation`.
        endpoint: `None` for the service of the worker's settings.
        cuts: place of a message of `call` -> characters at which it is cut, with a mark, once all of it is there.
        planning: `None` for an answer that is taken when it is whole.
        round: of a planner of rounds, what its answer is read against; `None` for any other answer.
        tells: what of the answer is for people, who are told it while it is written: `""` is its text, anything else
            the field of its JSON that holds the text. `None` for what no person waits for.
    """

    call: ModelCall
    before: str | None = None
    is_continued: bool = False
    endpoint: NamedEndpoint | None = None
    cuts: Mapping[int, int] = field(default_factory=dict)
    planning: Planning | None = None
    round: RoundContext | None = None
    tells: str | None = None


def messages_to_json(messages: Sequence[Message]) -> Any:
    """Returns a conversation as it is kept."""
    return [message.to_json() for message in messages]


def messages_from_json(record: Any) -> tuple[Message, ...]:
    """Returns a conversation of how it is kept.

    Raises:
        ValueError: it is none.
    """
    return tuple(Message.model_validate(message) for message in record)


def request_to_json(request: ModelRequest) -> Json:
    """Returns a request as the activity takes it; content of messages may still be filled in by bindings."""
    call = request.call
    encoded: Json = {"config": call.config.to_json(), "labels": call.labels.to_json()}
    if call.tools:
        encoded["tools"] = [tool.to_json() for tool in call.tools]
    if call.tool_choice:
        encoded["tool_choice"] = call.tool_choice
    if call.output is not None:
        encoded["output"] = call.output.to_json()
    if request.before is not None:
        encoded["before"] = request.before
    if request.is_continued:
        encoded["is_continued"] = True
    if request.endpoint is not None:
        encoded["endpoint"] = {"base_url": request.endpoint.base_url, "secret": request.endpoint.secret}
    if request.cuts:
        encoded["cuts"] = [[place, characters] for place, characters in request.cuts.items()]
    if request.planning is not None:
        encoded["planning"] = {
            "tools": [dict(tool) for tool in request.planning.tools],
            "accepted": [dict(node) for node in request.planning.accepted],
        }
        if request.planning.replan_context is not None:
            encoded["planning"]["replan_context"] = REPLAN_CONTEXTS.encode(request.planning.replan_context)
    if request.round is not None:
        encoded["round"] = ROUND_CONTEXTS.encode(request.round)
    if request.tells is not None:
        encoded["tells"] = request.tells
    return {**encoded, "messages": messages_to_json(call.messages)}


def request_from_json(encoded: Any) -> ModelRequest:
    """Returns the request of its JSON form.

    Raises:
        ValueError: it is none; the text says what is wrong.
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
            before=encoded.get("before"),
            is_continued=encoded.get("is_continued", False),
            endpoint=None if endpoint is None else NamedEndpoint(**endpoint),
            cuts={int(place): int(characters) for place, characters in encoded.get("cuts", ())},
            planning=_planning_from_json(encoded.get("planning")),
            round=ROUND_CONTEXTS.decode(encoded["round"]) if "round" in encoded else None,
            tells=_tells_from_json(encoded.get("tells")),
        )
    except ValidationError as error:
        raise ValueError("; ".join(_problem(each) for each in error.errors(include_url=False))) from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no request to a model: {type(error).__name__}: {error}") from None


def _output_from_json(encoded: Any) -> OutputSchema:
    return OutputSchema(encoded["name"], encoded["schema"], is_binding=encoded.get("is_binding") is not False)


def _tells_from_json(encoded: Any) -> str | None:
    if encoded is not None and not isinstance(encoded, str):
        raise ValueError(f"what an answer tells people is named by a field, not {encoded!r:.40}")
    return encoded


def _planning_from_json(encoded: Any) -> Planning | None:
    if encoded is None:
        return None
    accepted = encoded["accepted"]
    if not isinstance(accepted, list) or not all(isinstance(node, Mapping) for node in accepted):
        raise ValueError("the nodes that stand already must be a list of nodes")
    return Planning(tuple(encoded["tools"]), tuple(accepted), REPLAN_CONTEXTS.decode(encoded.get("replan_context")))


def response_to_json(answer: ModelResponse) -> Json:
    """Returns an answer as the activity returns it."""
    encoded: Json = {
        "message": answer.message.to_json(),
        "output": answer.output,
        "finish_reason": answer.finish_reason,
        "model": answer.model,
        "usage": answer.usage.to_json(),
    }
    if answer.conversation is not None:
        encoded["conversation"] = answer.conversation
    if answer.accepted is not None:
        encoded["accepted"] = [dict(node) for node in answer.accepted]
    if answer.read is not None:
        encoded["read"] = dict(answer.read)
    return encoded
