"""Request bodies: the fields of OpenAI's API that the gateway reads, and the gateway's own fields.

Unknown fields are forwarded to the model service; a run ignores them. Clients send the gateway's own fields in the
body, in `extra_body`, in `metadata` (some clients cannot add other fields) or in a header. A header takes precedence.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema

from dagwright.core.model.times import parse_duration
from dagwright.dialects.json_reader import MAX_DEPTH, depth_of
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.headers import header_text
from dagwright.planning.model_calls.model_requests import MODEL_NAME_CHARACTERS
from dagwright.planning.rounds.rounds_spec import SYNTHESES, Synthesis, checked_max_rounds, checked_synthesis
from dagwright.protocol.run_labels import METADATA, TAGS, TagsInvalid, validate_run_tags

JsonObject = dict[str, Any]
JsonObjects = Annotated[list[JsonObject], Field(fail_fast=True)]
"""With `fail_fast`, pydantic reports only the first invalid object. Reporting 100,000 errors would take seconds."""


class RoutingMode(StrEnum):
    """How a request is answered."""

    DIRECT = "direct"
    """The model answers, and no run is started."""
    ORCHESTRATION = "orchestration"
    """A durable run answers."""
    AUTO = "auto"
    """The model decides whether a run answers."""


class StreamProgress(StrEnum):
    """Content of a stream in addition to the answer."""

    CONTENT = "content"
    """Only the answer, without progress."""
    PROGRESS = "progress"
    """Progress of the nodes of the run."""
    FULL = "full"
    """Progress of the nodes, with their results."""


_FIELD_HEADERS: Mapping[str, str] = {
    "routing_mode": "x-routing-mode",
    "session_id": "x-session-id",
    "stream_progress": "x-stream-progress",
    "cancel_on_disconnect": "x-cancel-on-disconnect",
}
GATEWAY_FIELDS = (*_FIELD_HEADERS, "inputs", "run_model", "deadline", "max_rounds", "worker_timeout", "synthesis")
"""The gateway's own fields, which are not sent to the model service."""
_MAX_DIGITS = 10
"""Maximum number of digits of a number sent as a string: Python cannot parse numbers with thousands of digits."""
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")

RoundsField = Annotated[JsonValue, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "null"}]})]
"""Any JSON value: `gateway_options` rejects values that are not integers, such as true and 2.0."""

SynthesisField = Annotated[
    str | None, WithJsonSchema({"anyOf": [{"type": "string", "enum": [*SYNTHESES]}, {"type": "null"}]})
]
RoutingModeField = Annotated[
    str | None, WithJsonSchema({"anyOf": [{"type": "string", "enum": [*RoutingMode]}, {"type": "null"}]})
]
StreamProgressField = Annotated[
    str | None, WithJsonSchema({"anyOf": [{"type": "string", "enum": [*StreamProgress]}, {"type": "null"}]})
]
"""These three types accept any string: `gateway_options` rejects unknown values and lists the allowed values."""


class ChatMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | JsonObjects | None = None
    tool_calls: JsonObjects | None = None
    tool_call_id: str | None = None


class StreamOptions(BaseModel):
    """How an answer is streamed."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class ChatBody(BaseModel):
    """The body of a chat completion."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"model": "profile/plan", "messages": [{"role": "user", "content": "Double the sum of 1 and 2."}]},
                {"model": "plan/report", "messages": [{"role": "user", "content": '{"region": "north"}'}]},
            ]
        },
    )

    model: str | None = Field(
        default=None,
        max_length=MODEL_NAME_CHARACTERS,
        description="A model of the service, `plan/NAME`, `agent/NAME` or `profile/NAME`. Default: DAGWRIGHT_MODEL.",
    )
    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: JsonObjects | None = Field(
        default=None, description="Declare `answer_feedback` to receive questions as calls of this function."
    )
    tool_choice: str | JsonObject | None = None
    response_format: JsonObject | None = Field(
        default=None, description="`json_schema` or `json_object`: the answer of a run must have this format."
    )
    functions: JsonObjects | None = Field(default=None, description="Deprecated form of `tools`.")
    function_call: str | JsonObject | None = Field(default=None, description="Deprecated form of `tool_choice`.")
    metadata: JsonObject | None = None
    user: str | None = Field(default=None, description="User name that is recorded with answers to questions of a run.")
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    routing_mode: RoutingModeField = Field(
        default=None,
        description="Whether a run or the model answers. Default: a run for plans, agents and profiles, else the "
        "model.",
    )
    session_id: str | None = Field(default=None, description="Session of which this request is a turn.")
    stream_progress: StreamProgressField = Field(
        default=None, description="Content of a stream in addition to the answer."
    )
    cancel_on_disconnect: bool | None = Field(
        default=None, description="Whether the run is cancelled if the client disconnects before the run ends."
    )
    inputs: JsonObject | None = Field(
        default=None, description="Inputs of a plan, instead of the inputs in the message."
    )
    run_model: str | None = Field(default=None, description="Model that a plan, an agent or a profile uses.")
    deadline: str | None = Field(default=None, description="Maximum duration of the run, such as `20m`.")
    max_rounds: RoundsField = Field(default=None, description="`profile/rounds` only: maximum number of rounds.")
    worker_timeout: str | None = Field(
        default=None,
        description="`profile/rounds` only: timeout of worker tool calls without a timeout of their own, such as `2m`.",
    )
    synthesis: SynthesisField = Field(
        default=None,
        description="`profile/rounds` only: `assemble` joins the findings of the worker tools; with `model`, a model "
        "writes the answer.",
    )


def _describe_headers(
    routing_mode: Annotated[
        RoutingModeField, Header(alias="X-Routing-Mode", description="Whether a run or the model answers.")
    ] = None,
    session_id: Annotated[
        str | None, Header(alias="X-Session-Id", description="Session of which this request is a turn.")
    ] = None,
    stream_progress: Annotated[
        StreamProgressField,
        Header(alias="X-Stream-Progress", description="Content of a stream in addition to the answer."),
    ] = None,
    cancel_on_disconnect: Annotated[
        str | None,
        Header(alias="X-Cancel-On-Disconnect", description="`true`: cancel the run if the client disconnects."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        Header(alias="Idempotency-Key", description="Requests with the same key start one run."),
    ] = None,
) -> None:
    """Document the headers. `gateway_options` reads them, together with the body."""


GATEWAY_HEADERS = Depends(_describe_headers)
"""Dependency of routes that read the fields of `GatewayOptions`."""


def _stream_progress(
    request: Request,
    stream_progress: Annotated[
        StreamProgressField, Query(description="Content of a stream in addition to the answer.")
    ] = None,
    _: Annotated[
        StreamProgressField,
        Header(
            alias="X-Stream-Progress",
            description="Content of a stream in addition to the answer. It overrides the query parameter.",
        ),
    ] = None,
) -> StreamProgress:
    return gateway_options({"stream_progress": stream_progress}, request.headers).stream_progress


StreamProgressDep = Annotated[StreamProgress, Depends(_stream_progress)]
"""Dependency of GET routes: the detail of a stream. Raises `ApiError` for an unknown value."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The gateway's own fields of a request.

    Args:
        routing_mode: `None` if the request names no mode.
        session_id: `None` for a run outside sessions.
        inputs: inputs of a plan; `None` if the last message contains the inputs.
        run_model: model used by the run; `None` for the model of the settings.
        deadline_s: maximum seconds of the run; `None` for the default.
        max_rounds, worker_timeout_s, synthesis: options of a run in rounds; `None` for the default.
        idempotency_key: the `Idempotency-Key`.
        metadata: tags of the run, not validated.
    """

    routing_mode: RoutingMode | None = None
    session_id: str | None = None
    stream_progress: StreamProgress = StreamProgress.CONTENT
    cancel_on_disconnect: bool = False
    inputs: Mapping[str, Any] | None = None
    run_model: str | None = None
    deadline_s: float | None = None
    max_rounds: int | None = None
    worker_timeout_s: float | None = None
    synthesis: Synthesis | None = None
    idempotency_key: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def gateway_options(body: Mapping[str, Any], headers: Mapping[str, str]) -> GatewayOptions:
    """Return the gateway's own fields of a request.

    Args:
        body: the JSON body.
        headers: names in lower case.

    Raises:
        ApiError: a field has an invalid value.
    """
    sources = [body, *(body[name] for name in ("extra_body", "metadata") if isinstance(body.get(name), Mapping))]
    options: dict[str, Any] = {}
    for name in GATEWAY_FIELDS:
        header = header_text(headers.get(_FIELD_HEADERS.get(name, ""), ""))
        values = [header, *(source.get(name) for source in sources)]
        options[name] = next((value for value in values if value is not None and value != ""), None)
    return GatewayOptions(
        routing_mode=_parse_choice(RoutingMode, "routing_mode", options["routing_mode"]),
        session_id=_parse_text("session_id", options["session_id"]),
        stream_progress=_parse_choice(StreamProgress, "stream_progress", options["stream_progress"])
        or StreamProgress.CONTENT,
        cancel_on_disconnect=_parse_flag("cancel_on_disconnect", options["cancel_on_disconnect"]),
        inputs=_parse_object("inputs", options["inputs"]),
        run_model=_parse_text("run_model", options["run_model"]),
        deadline_s=duration_seconds("deadline", options["deadline"]),
        max_rounds=_parse_max_rounds(options["max_rounds"]),
        worker_timeout_s=duration_seconds("worker_timeout", options["worker_timeout"]),
        synthesis=_parse_synthesis(options["synthesis"]),
        idempotency_key=headers.get("idempotency-key") or None,
        metadata=_client_metadata(body.get("metadata")),
    )


def _client_metadata(metadata: Any) -> dict[str, Any]:
    """Return the metadata of a request without the gateway's own fields, which some clients send in `metadata`."""
    return (
        {name: value for name, value in metadata.items() if name not in GATEWAY_FIELDS}
        if isinstance(metadata, dict)
        else {}
    )


def service_body(body: Mapping[str, Any]) -> JsonObject:
    """Return a body for the model service, without the gateway's own fields."""
    fields = {name: value for name, value in body.items() if name not in (*GATEWAY_FIELDS, "extra_body")}
    if isinstance(metadata := fields.get("metadata"), Mapping):
        fields["metadata"] = {name: value for name, value in metadata.items() if name not in GATEWAY_FIELDS}
        if not fields["metadata"]:
            del fields["metadata"]
    return fields


def parse_json(text: str) -> Any:
    """Parse JSON text in a field of a body.

    Raises:
        ValueError: the text is not JSON, or is nested deeper than a body may be.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(text[:1]) from None
    if depth_of(value) > MAX_DEPTH:
        raise ValueError(text[:1])
    return value


def run_tags(tags: Mapping[str, Any], *, name: Literal["tags", "metadata"] = "tags") -> dict[str, str]:
    """Validate the tags of a run and return them.

    Args:
        name: field of the request; requests in OpenAI's form have the tags in `metadata`.

    Raises:
        ApiError: the tags are invalid.
    """
    try:
        return validate_run_tags(tags, labels=TAGS if name == "tags" else METADATA)
    except TagsInvalid as error:
        raise _invalid_field_error(name, str(error)) from None


def _parse_choice(choices: type[StrEnum], name: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return choices(value)
    except ValueError:
        raise _invalid_field_error(name, f"must be {', '.join(choices)}, not {value!r:.60}") from None


def _parse_text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _invalid_field_error(name, f"must be a string, not {value!r:.60}")
    return value


def _parse_flag(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise _invalid_field_error(name, f"must be true or false, not {value!r:.60}")


def _parse_object(name: str, value: Any) -> Mapping[str, Any] | None:
    # In `metadata`, clients can send only strings.
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            raise _invalid_field_error(name, "must be a JSON object") from None
    if value is not None and not isinstance(value, Mapping):
        raise _invalid_field_error(name, "must be a JSON object")
    return value


def duration_seconds(name: str, value: Any) -> float | None:
    """Return the seconds of a duration field; `None` if the field is absent.

    Raises:
        ApiError: the value is not a duration.
    """
    text = _parse_text(name, value)
    try:
        return None if text is None else parse_duration(text).total_seconds()
    except ValueError as error:
        raise _invalid_field_error(name, str(error)) from None


def _parse_max_rounds(value: Any) -> int | None:
    # In `metadata`, clients can send only strings.
    is_number = isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS
    number = int(value) if is_number else value
    try:
        return None if number is None else checked_max_rounds(number)
    except ValueError as error:
        raise _invalid_field_error("max_rounds", str(error)) from None


def _parse_synthesis(value: Any) -> Synthesis | None:
    try:
        return None if value is None else checked_synthesis(value)
    except ValueError as error:
        raise _invalid_field_error("synthesis", str(error)) from None


def _invalid_field_error(name: str, message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_VALUE, f"{name}: {message}", param=name)
