"""A script of answers: which call gets which, and what did not go as it says.

Each call takes the first step that fits it and is not used up. Steps without a condition are so taken in order; steps
with one can be taken in any order, which is how calls that run at the same time are scripted without a race.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.boundary.text import cut_characters, one_line
from dagwright.testing.answers import Answer, answers_of, summary_of

ANY_NUMBER = None
"""`times` of a step that may be taken as often as it fits, and never at all."""

_SHOWN_CHARACTERS = 160


class ScriptNotFollowed(AssertionError):
    """Calls came that the script does not have, or answers were left over; the text says which."""


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A request that came, whether it was answered or not.

    Args:
        body: its JSON, `None` if it had none.
        headers: names in lower case.
        step: place of the step that answered it, from 0; `None` if none did.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    step: int | None = None

    @property
    def _fields(self) -> Mapping[str, Any]:
        return self.body if isinstance(self.body, dict) else {}

    @property
    def model(self) -> str:
        """Returns the model that is asked."""
        return str(self._fields.get("model", ""))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Returns the labels of the request."""
        found = self._fields.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """Returns the messages as they came."""
        found = self._fields.get("messages")
        return [message for message in found if isinstance(message, dict)] if isinstance(found, list) else []

    @property
    def text(self) -> str:
        """Returns the texts of all messages, a line each."""
        return "\n".join(_text_of(message.get("content")) for message in self.messages)

    @property
    def is_streamed(self) -> bool:
        """Tells whether the answer is wanted as a stream."""
        return self._fields.get("stream") is True

    @property
    def response_format(self) -> str:
        """Returns the type of the answer that is asked for: `text`, `json_object` or `json_schema`."""
        found = self._fields.get("response_format")
        return str(found.get("type", "text")) if isinstance(found, dict) else "text"

    @property
    def tools(self) -> Sequence[str]:
        """Returns the names of the tools that the model may call."""
        found = self._fields.get("tools")
        return [str(tool["function"]["name"]) for tool in found] if isinstance(found, list) else []

    @property
    def api_key(self) -> str:
        """Returns the key that came, without `Bearer`."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def summary(self) -> str:
        """Returns one line that tells the call from others."""
        last = _text_of(self.messages[-1].get("content")) if self.messages else ""
        labels = f" metadata={json.dumps(self.metadata, ensure_ascii=False)}" if self.metadata else ""
        return f"{self.method} {self.path} model={self.model!r}{labels} last message: {_shown(last)}"


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _shown(words: str) -> str:
    return repr(cut_characters(one_line(words), _SHOWN_CHARACTERS))


Reply = Callable[[ReceivedCall], Answer | str]
"""Makes an answer of the call; a text stands for an answer of that text."""


@dataclass(frozen=True, slots=True)
class When:
    """Which calls a step answers: those for which everything that is given here holds.

    Args:
        model: the model that is asked.
        metadata: labels that the request has, beside others.
        text: part of the texts of its messages.
        last: part of the text of its last message.
        tool: a tool that the model may call.
        response_format: `text`, `json_object` or `json_schema`.
        is_streamed: whether a stream is wanted.
        holds: anything else.
    """

    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    last: str | None = None
    tool: str | None = None
    response_format: str | None = None
    is_streamed: bool | None = None
    holds: Callable[[ReceivedCall], bool] | None = None

    def fits(self, call: ReceivedCall) -> bool:
        """Tells whether a call is one of those."""
        last = _text_of(call.messages[-1].get("content")) if call.messages else ""
        return (
            (self.model is None or call.model == self.model)
            and all(call.metadata.get(name) == value for name, value in self.metadata.items())
            and (self.text is None or self.text in call.text)
            and (self.last is None or self.last in last)
            and (self.tool is None or self.tool in call.tools)
            and (self.response_format is None or call.response_format == self.response_format)
            and (self.is_streamed is None or call.is_streamed == self.is_streamed)
            and (self.holds is None or self.holds(call))
        )

    def summary(self) -> str:
        """Returns the condition in words; empty if it is none."""
        names = ("model", "metadata", "text", "last", "tool", "response_format", "is_streamed")
        told = [f"{name}={value!r}" for name in names if (value := getattr(self, name)) not in (None, {})]
        return ", ".join([*told, *(["holds=…"] if self.holds is not None else [])])


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of a script.

    Args:
        answer: what is sent; or a function that makes it of the call, such as one that repeats what stands in it.
        when: which calls it answers; without it, any.
        times: how many calls it answers, all of which must come; `ANY_NUMBER` sets no number.
        released: the answer is held back until this is set.
    """

    answer: Answer | Reply
    when: When = When()
    times: int | None = 1
    released: asyncio.Event | None = None

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is {self.times}; a step answers at least one call, or ANY_NUMBER")

    def answer_to(self, call: ReceivedCall) -> Answer:
        """Returns what is sent to a call."""
        return answers_of(self.answer(call)) if callable(self.answer) else self.answer

    def summary(self) -> str:
        """Returns one line that tells the answer from others."""
        return "what a function makes of the call" if callable(self.answer) else summary_of(self.answer)


def step(
    answer: Answer | str | Reply, /, *, times: int | None = 1, released: asyncio.Event | None = None, **when: Any
) -> Step:
    """Returns one answer of a script; `when` are fields of `When`, and a text stands for an answer of that text."""
    given = answer if callable(answer) else answers_of(answer)
    return Step(given, When(**when), times=times, released=released)


class Script:
    """The answers that are left, and what has gone wrong so far."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._taken = [0] * len(steps)
        self._unexpected: list[str] = []
        self._violations: list[str] = []

    def take(self, call: ReceivedCall) -> int | None:
        """Returns the place of the step that answers a call, which is used then; `None` if no step does."""
        for place, each in enumerate(self._steps):
            if (each.times is None or self._taken[place] < each.times) and each.when.fits(call):
                self._taken[place] += 1
                return place
        self._unexpected.append(call.summary())
        return None

    def violated(self, call: ReceivedCall, words: str) -> None:
        """Takes note of a request that is against the protocol."""
        self._violations.append(f"{call.summary()}: {words}")

    def unexpected(self, call: ReceivedCall, why: str = "") -> None:
        """Takes note of a request that gets no answer: the server lacks its address, or `explain`."""
        self._unexpected.append(f"{call.summary()}: {why}" if why else call.summary())

    def _left(self) -> list[str]:
        left = []
        for place, (each, taken) in enumerate(zip(self._steps, self._taken, strict=True)):
            if each.times is not None and taken < each.times:
                when = each.when.summary()
                times = f" ({taken} of {each.times} used)" if each.times > 1 else ""
                left.append(f"step {place + 1}{times}{f' when {when}' if when else ''}: {each.summary()}")
        return left

    def report(self) -> str:
        """Returns everything that did not go as the script says, for a person to read; empty if all did."""
        parts = (
            ("calls that no step answers", self._unexpected),
            ("requests that are against the protocol", self._violations),
            ("answers that nobody asked for", self._left()),
        )
        lines = [f"{title}:\n" + "\n".join(f"  - {line}" for line in told) for title, told in parts if told]
        return "\n".join(["the script of the model server was not followed", *lines]) if lines else ""
