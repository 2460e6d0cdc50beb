"""What a scripted model server may answer: completions, errors, and everything that goes wrong on a wire."""

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
    """One tool that the model wants called.

    Args:
        arguments: an object, or the very text that the model writes, which may be broken.
        id: made from its place in the answer if it is empty.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def arguments_text(self) -> str:
        """Returns the arguments as they go over the wire."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an answer says it has used."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the `usage` of a completion."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }


class Cut(StrEnum):
    """How a streamed answer ends too early."""

    RESET = "reset"
    """The connection is reset (RST)."""
    CLOSE = "close"
    """The connection is closed in the middle of the body."""
    END = "end"
    """The body ends as if all were well, without a finish reason and without `[DONE]`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How slowly an answer comes.

    Args:
        first_s: seconds until its first byte.
        each_s: seconds before each further piece of a stream.
        characters: of a streamed text in one piece; 0 sends it in one.
        cut_after: pieces of text or arguments after which a stream breaks off; `None` never.
        cut: how it breaks off.
        held_after: pieces after which a stream waits for `released`; `None` never.
    """

    first_s: float = 0.0
    each_s: float = 0.0
    characters: int = 8
    cut_after: int | None = None
    cut: Cut = Cut.CLOSE
    held_after: int | None = None
    released: asyncio.Event | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat completion, streamed if the request asks for that.

    Args:
        text: what the model says; `None` if it only calls tools.
        tool_calls: what it wants called, in order.
        refusal: why it declines.
        reasoning: what it thought, as several servers send it (`reasoning_content`).
        finish_reason: empty for the one that fits.
        tokens: what it has used; `None` counts the words of the messages and of the answer.
        has_usage: whether the answer tells its usage at all.
        model: name of the model that answered; empty for the one that was asked for.
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
    def ending(self) -> str:
        """Returns the finish reason that goes over the wire."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True, slots=True)
class Refused:
    """An HTTP error with the body that OpenAI gives it.

    Args:
        status: 400 to 599.
        retry_after: seconds, or the text of the header as it goes out (`http_date` makes one).
        code: OpenAI's code, such as `context_length_exceeded`; `None` sends null.
        param: the field of the request that is wrong.
        headers: more headers.
    """

    status: int
    message: str = "scripted error"
    code: str | None = None
    type: str = "invalid_request_error"
    param: str | None = None
    retry_after: float | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    first_s: float = 0.0

    def body(self) -> dict[str, Any]:
        """Returns the JSON that goes out."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


@dataclass(frozen=True, slots=True)
class Raw:
    """Any bytes at all: JSON that is none, a page of HTML from a proxy, an error of another server."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before any answer."""


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer ever comes; the connection stays open until the client or the server goes."""


Answer = Completion | Refused | Raw | Reset | Silence


def text(words: str, **more: Any) -> Completion:
    """Returns an answer of text; `more` are fields of `Completion`."""
    return Completion(text=words, **more)


def json_text(value: Any, **more: Any) -> Completion:
    """Returns an answer whose text is JSON."""
    return Completion(text=json.dumps(value, ensure_ascii=False), **more)


def tool_call(name: str, /, **arguments: Any) -> Completion:
    """Returns an answer that calls one tool."""
    return Completion(tool_calls=(ScriptedToolCall(name, arguments),))


def tool_calls(*calls: tuple[str, Mapping[str, Any]]) -> Completion:
    """Returns an answer that calls several tools at once: names and arguments."""
    return Completion(tool_calls=tuple(ScriptedToolCall(name, arguments) for name, arguments in calls))


def slow(answer: Completion, **pace: Any) -> Completion:
    """Returns an answer that comes slowly, or breaks off; `pace` are fields of `Pace`."""
    return replace(answer, pace=Pace(**pace))


def busy(*, retry_after: float | str | None = None) -> Refused:
    """Returns the 429 of a model that is asked too often."""
    return Refused(429, "Rate limit reached", code="rate_limit_exceeded", type="requests", retry_after=retry_after)


def http_date(delay: timedelta) -> str:
    """Returns the time that is `delay` from now, as `Retry-After` may have it."""
    return format_datetime(datetime.now(UTC) + delay, usegmt=True)


def answers_of(given: Answer | str | Sequence[Any]) -> Answer:
    """Returns what is meant by an answer: a text stands for one of that text."""
    if isinstance(given, str):
        return text(given)
    if isinstance(given, Completion | Refused | Raw | Reset | Silence):
        return given
    raise TypeError(f"{given!r:.80} is no answer; give a text, or one of Completion, Refused, Raw, Reset, Silence")


def summary_of(answer: Answer) -> str:
    """Returns one line that tells an answer from others."""
    match answer:
        case Completion():
            calls = ", ".join(f"{call.name}({call.arguments_text})" for call in answer.tool_calls)
            told = [("text", answer.text), ("refusal", answer.refusal), ("calls", calls or None)]
            return ", ".join(f"{name} {words[:_SHOWN_CHARACTERS]!r}" for name, words in told if words is not None)
        case Refused(status, message):
            return f"error {status} {message[:_SHOWN_CHARACTERS]!r}"
        case Raw(body, status):
            return f"raw {status} {body[:_SHOWN_CHARACTERS]!r}"
        case Reset() | Silence():
            return type(answer).__name__.lower()
