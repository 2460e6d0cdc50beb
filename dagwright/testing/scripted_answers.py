"""Responses of a scripted model server: completions, errors, and every kind of network failure."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from typing import Any

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class ScriptedToolCall:
    """A tool call in a response.

    Args:
        arguments: an object, or the raw text that the model writes, which may be invalid JSON.
        id: ID of the call; if empty, it is derived from the position in the response.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def arguments_text(self) -> str:
        """Return the arguments as sent over the wire."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token usage that a response reports."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the `usage` of a completion."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }


class Cut(StrEnum):
    """How a streamed response is cut off."""

    RESET = "reset"
    """The connection is reset (RST)."""
    CLOSE = "close"
    """The connection is closed in the middle of the body."""
    END = "end"
    """The body ends normally, but without a finish reason and without `[DONE]`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Timing of a response.

    Args:
        first_byte_delay_s: seconds until the first byte.
        chunk_delay_s: seconds before each text or argument chunk of a stream.
        chunk_characters: characters of text per chunk; 0 sends the text in one chunk.
        cut_after: number of text or argument chunks after which a stream is cut off; `None` for never.
        cut: how the stream is cut off.
        held_after_chunks: number of chunks after which a stream waits for `release_event`; `None` for never.
        release_event: event that lets the waiting stream continue.
    """

    first_byte_delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    chunk_characters: int = 8
    cut_after: int | None = None
    cut: Cut = Cut.CLOSE
    held_after_chunks: int | None = None
    release_event: asyncio.Event | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat completion, streamed if the request asks for a stream.

    Args:
        text: text of the message; `None` if the message only has tool calls.
        tool_calls: tool calls, in order.
        refusal: reason of a refusal.
        reasoning: reasoning text, sent in the field `reasoning_content` as several servers do.
        finish_reason: if empty, it is derived from the message.
        tokens: token usage; by default, the words of the messages and of the response are counted.
        has_usage: whether the response includes the usage.
        model: name of the model in the response; if empty, the requested model.
    """

    text: str | None = None
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    refusal: str | None = None
    reasoning: str | None = None
    finish_reason: str = ""
    tokens: Tokens | None = None
    has_usage: bool = True
    model: str = ""
    pace: Pace = Pace()

    @property
    def sent_finish_reason(self) -> str:
        """Return the finish reason as sent over the wire."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True, slots=True)
class HttpError:
    """An HTTP error with OpenAI's error body.

    Args:
        status: 400 to 599.
        retry_after: seconds, or the raw header value (see `http_date`).
        code: OpenAI's error code, such as `context_length_exceeded`; `None` sends null.
        param: the invalid field of the request.
        headers: additional headers.
        first_byte_delay_s: seconds until the first byte.
    """

    status: int
    message: str = "scripted error"
    code: str | None = None
    type: str = "invalid_request_error"
    param: str | None = None
    retry_after: float | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    first_byte_delay_s: float = 0.0

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


@dataclass(frozen=True, slots=True)
class Raw:
    """Arbitrary bytes: invalid JSON, an HTML page of a proxy, an error of another server."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before any response."""


@dataclass(frozen=True, slots=True)
class Silence:
    """No response is ever sent. The connection stays open until the client closes it or the server ends."""


Answer = Completion | HttpError | Raw | Reset | Silence


def text(message: str, **fields: Any) -> Completion:
    """Return a text response. `fields` contains fields of `Completion`."""
    return Completion(text=message, **fields)


def json_text(value: Any, **fields: Any) -> Completion:
    """Return a response whose text is JSON."""
    return Completion(text=json.dumps(value, ensure_ascii=False), **fields)


def tool_call(name: str, /, **arguments: Any) -> Completion:
    """Return a response with one tool call."""
    return Completion(tool_calls=(ScriptedToolCall(name, arguments),))


def tool_calls(*calls: tuple[str, Mapping[str, Any]]) -> Completion:
    """Return a response with several tool calls: names and arguments."""
    return Completion(tool_calls=tuple(ScriptedToolCall(name, arguments) for name, arguments in calls))


def slow(answer: Completion, **pace: Any) -> Completion:
    """Return a slow or interrupted response. `pace` contains fields of `Pace`."""
    return replace(answer, pace=Pace(**pace))


def busy(*, retry_after: float | str | None = None) -> HttpError:
    """Return a rate-limit error (429)."""
    return HttpError(429, "Rate limit reached", code="rate_limit_exceeded", type="requests", retry_after=retry_after)


def http_date(delay: timedelta) -> str:
    """Return the time `delay` from now in the format of `Retry-After`."""
    return format_datetime(datetime.now(UTC) + delay, usegmt=True)


def to_answer(value: Answer | str | Sequence[Any]) -> Answer:
    """Convert a text to a text response; return other responses unchanged."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Completion | HttpError | Raw | Reset | Silence):
        return value
    raise TypeError(f"{value!r:.80} is not a response; use a text, Completion, HttpError, Raw, Reset or Silence")


def summary_of(answer: Answer) -> str:
    """Return a one-line summary of a response."""
    match answer:
        case Completion():
            calls = ", ".join(f"{call.name}({call.arguments_text})" for call in answer.tool_calls)
            parts = [("text", answer.text), ("refusal", answer.refusal), ("calls", calls or None)]
            return ", ".join(
                f"{name} {summary[:_SHOWN_CHARACTERS]!r}" for name, summary in parts if summary is not None
            )
        case HttpError(status, message):
            return f"error {status} {message[:_SHOWN_CHARACTERS]!r}"
        case Raw(body, status):
            return f"raw {status} {body[:_SHOWN_CHARACTERS]!r}"
        case Reset() | Silence():
            return type(answer).__name__.lower()
