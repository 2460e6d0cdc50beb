"""What the requests hold: OpenAI's fields as far as the gateway reads them, and those that are its own.

What it does not know is passed on to the service, or has no meaning for a run. Its own fields may stand in the body, in
`extra_body` or in `metadata` there (some clients send nothing else), or in a header; the header counts first.
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
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.headers import header_text
from dagwright.planning.model_calls.calls import MODEL_NAME_CHARACTERS
from dagwright.planning.rounds.rounds import SYNTHESES, Synthesis, checked_max_rounds, checked_synthesis
from dagwright.protocol.run_labels import METADATA, TagsInvalid, checked_tags

JsonObject = dict[str, Any]
JsonObjects = Annotated[list[JsonObject], Field(fail_fast=True)]
"""Objects of which the first invalid one is reported: an error for each of 100,000 takes seconds."""


class RoutingMode(StrEnum):
    """Who answers a request."""

    DIRECT = "direct"
    """The model itself; no run is started."""
    ORCHESTRATION = "orchestration"
    """A durable run."""
    AUTO = "auto"
    """One of the two, as the model sees fit."""


class Shown(StrEnum):
    """What a stream tells beside the answer."""

    CONTENT = "content"
    """Nothing."""
    PROGRESS = "progress"
    """What happens to the nodes of the run."""
    FULL = "full"
    """The same, with the results of the nodes."""


_HEADERS: Mapping[str, str] = {
    "routing_mode": "x-routing-mode",
    "session_id": "x-session-id",
    "stream_progress": "x-stream-progress",
    "cancel_on_disconnect": "x-cancel-on-disconnect",
}
OWN_FIELDS = (*_HEADERS, "inputs", "run_model", "deadline", "max_rounds", "worker_timeout", "synthesis")
"""Fields of a body that no model service knows."""
_MOST_DIGITS = 10
"""Of a number that is written as a text; Python reads no number of thousands."""
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")

RoundsField = Annotated[JsonValue, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "null"}]})]
"""`max_rounds` as it was written: `wishes_of` refuses what is no whole number, such as true and 2.0."""

SynthesisField = Annotated[
    str | None, WithJsonSchema({"anyOf": [{"type": "string", "enum": [*SYNTHESES]}, {"type": "null"}]})
]
RoutingModeField = Annotated[
    str | None, WithJsonSchema({"anyOf": [{"type": "string", "enum": [*RoutingMode]}, {"type": "null"}]})
]
ShownField = Annotated[str | None, WithJsonSchema({"anyOf": [{"type": "string", "enum": [*Shown]}, {"type": "null"}]})]
"""The same of texts: `wishes_of` tells in its own words what there is."""


class ChatMessage(BaseModel):
    """One message of a conversation."""

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
        description="A model of the service, `plan/NAME`, `agent/NAME` or `profile/NAME`; that of DAGWRIGHT_MODEL if "
        "left out.",
    )
    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: JsonObjects | None = Field(
        default=None, description="Declare `answer_feedback` to receive questions as calls of it."
    )
    tool_choice: str | JsonObject | None = None
    response_format: JsonObject | None = Field(
        default=None, description="`json_schema` or `json_object`: the answer of a run is checked against it."
    )
    functions: JsonObjects | None = Field(default=None, description="Deprecated form of `tools`.")
    function_call: str | JsonObject | None = Field(default=None, description="Deprecated form of `tool_choice`.")
    metadata: JsonObject | None = None
    user: str | None = Field(default=None, description="Who asks; answers to a run's questions are theirs.")
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    routing_mode: RoutingModeField = Field(
        default=None,
        description="Who answers; if left out, a run for plans, agents and profiles, and else the model itself.",
    )
    session_id: str | None = Field(default=None, description="Name of the session whose turn this is.")
    stream_progress: ShownField = Field(default=None, description="What a stream tells beside the answer.")
    cancel_on_disconnect: bool | None = Field(
        default=None, description="Whether a run is cancelled when the client leaves before its end."
    )
    inputs: JsonObject | None = Field(default=None, description="Inputs of a plan, in place of those in the message.")
    run_model: str | None = Field(default=None, description="The model that a plan, an agent or a profile asks.")
    deadline: str | None = Field(default=None, description="How long the run may take, such as `20m`.")
    max_rounds: RoundsField = Field(default=None, description="Of `profile/rounds`: how many rounds there may be.")
    worker_timeout: str | None = Field(
        default=None, description="The same: how long a call of a worker may take that names no time, such as `2m`."
    )
    synthesis: SynthesisField = Field(
        default=None,
        description="Of `profile/rounds`: `assemble` joins what workers found, `model` has a model write the answer.",
    )


def _own(
    routing_mode: Annotated[RoutingModeField, Header(alias="X-Routing-Mode", description="Who answers.")] = None,
    session_id: Annotated[
        str | None, Header(alias="X-Session-Id", description="Name of the session whose turn this is.")
    ] = None,
    stream_progress: Annotated[
        ShownField, Header(alias="X-Stream-Progress", description="What a stream tells beside the answer.")
    ] = None,
    cancel_on_disconnect: Annotated[
        str | None,
        Header(alias="X-Cancel-On-Disconnect", description="`true`: the run is cancelled when the client leaves."),
    ] = None,
    idempotency_key: Annotated[
        str | None, Header(alias="Idempotency-Key", description="Sent twice, it is one run.")
    ] = None,
) -> None:
    """Reads nothing: `wishes_of` does, with what the body says beside."""


OWN_HEADERS = Depends(_own)
"""What routes depend on that take the fields of `wishes_of`."""


def _shown(
    request: Request,
    stream_progress: Annotated[ShownField, Query(description="What a stream tells beside the answer.")] = None,
    _: Annotated[
        ShownField, Header(alias="X-Stream-Progress", description="The same; it counts before the parameter.")
    ] = None,
) -> Shown:
    return wishes_of({"stream_progress": stream_progress}, request.headers).shown


TheShown = Annotated[Shown, Depends(_shown)]
"""What is shown of a run that is asked for without a body; `ApiError` of a word that there is not."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request says in the gateway's own fields.

    Args:
        mode: `None` if it says none.
        session: name of the session; `None` for a run of its own.
        inputs: of a plan; `None` if they stand in the message.
        run_model: the model that is asked in the run; `None` for that of the settings.
        deadline_s: seconds that the run may take; `None` for the default, here and in the next three.
        max_rounds, worker_timeout_s, synthesis: of a question that is answered in rounds.
        key: of its `Idempotency-Key`.
        metadata: of the run, as it was given.
    """

    mode: RoutingMode | None = None
    session: str | None = None
    shown: Shown = Shown.CONTENT
    cancels: bool = False
    inputs: Mapping[str, Any] | None = None
    run_model: str | None = None
    deadline_s: float | None = None
    max_rounds: int | None = None
    worker_timeout_s: float | None = None
    synthesis: Synthesis | None = None
    key: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def wishes_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> Wishes:
    """Returns what a request wishes.

    Args:
        body: its JSON.
        headers: names in lower case.

    Raises:
        ApiError: one of the fields holds what it cannot.
    """
    places = [body, *(body[name] for name in ("extra_body", "metadata") if isinstance(body.get(name), Mapping))]
    said: dict[str, Any] = {}
    for name in OWN_FIELDS:
        header = header_text(headers.get(_HEADERS.get(name, ""), ""))
        values = [header, *(place.get(name) for place in places)]
        said[name] = next((value for value in values if value is not None and value != ""), None)
    return Wishes(
        mode=_choice(RoutingMode, "routing_mode", said["routing_mode"]),
        session=_text("session_id", said["session_id"]),
        shown=_choice(Shown, "stream_progress", said["stream_progress"]) or Shown.CONTENT,
        cancels=_flag("cancel_on_disconnect", said["cancel_on_disconnect"]),
        inputs=_object("inputs", said["inputs"]),
        run_model=_text("run_model", said["run_model"]),
        deadline_s=seconds_of("deadline", said["deadline"]),
        max_rounds=_rounds(said["max_rounds"]),
        worker_timeout_s=seconds_of("worker_timeout", said["worker_timeout"]),
        synthesis=_synthesis(said["synthesis"]),
        key=headers.get("idempotency-key") or None,
        metadata=_own_metadata(body.get("metadata")),
    )


def _own_metadata(given: Any) -> dict[str, Any]:
    """Return the metadata of a request without the fields of the gateway, which some clients put there."""
    return {name: value for name, value in given.items() if name not in OWN_FIELDS} if isinstance(given, dict) else {}


def passed_on(body: Mapping[str, Any]) -> JsonObject:
    """Returns a body without what no model service knows."""
    found = {name: value for name, value in body.items() if name not in (*OWN_FIELDS, "extra_body")}
    if isinstance(metadata := found.get("metadata"), Mapping):
        found["metadata"] = {name: value for name, value in metadata.items() if name not in OWN_FIELDS}
        if not found["metadata"]:
            del found["metadata"]
    return found


def json_of(text: str) -> Any:
    """Returns the JSON of a text that stands in a body.

    Raises:
        ValueError: it is none, or nests more than a body may.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(text[:1]) from None
    if depth_of(value) > MAX_DEPTH:
        raise ValueError(text[:1])
    return value


def metadata_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of a run, which its tags hold.

    Raises:
        ApiError: it cannot be that.
    """
    try:
        return checked_tags(given, words=METADATA)
    except TagsInvalid as error:
        raise _wrong("metadata", str(error)) from None


def _choice(kind: type[StrEnum], name: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        raise _wrong(name, f"must be {', '.join(kind)}, not {value!r:.60}") from None


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _wrong(name, f"must be a text, not {value!r:.60}")
    return value


def _flag(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise _wrong(name, f"must be true or false, not {value!r:.60}")


def _object(name: str, value: Any) -> Mapping[str, Any] | None:
    # `metadata` holds texts alone.
    if isinstance(value, str):
        try:
            value = json_of(value)
        except ValueError:
            raise _wrong(name, "must be a JSON object") from None
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(name, "must be a JSON object")
    return value


def seconds_of(name: str, value: Any) -> float | None:
    """Returns the seconds of a field that is a duration; `None` if it was not given.

    Raises:
        ApiError: it is none.
    """
    text = _text(name, value)
    try:
        return None if text is None else parse_duration(text).total_seconds()
    except ValueError as error:
        raise _wrong(name, str(error)) from None


def _rounds(value: Any) -> int | None:
    # `metadata` holds texts alone.
    is_number = isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS
    number = int(value) if is_number else value
    try:
        return None if number is None else checked_max_rounds(number)
    except ValueError as error:
        raise _wrong("max_rounds", str(error)) from None


def _synthesis(value: Any) -> Synthesis | None:
    try:
        return None if value is None else checked_synthesis(value)
    except ValueError as error:
        raise _wrong("synthesis", str(error)) from None


def _wrong(name: str, words: str) -> ApiError:
    return ApiError(400, f"{name}: {words}", param=name, code="invalid_value")
