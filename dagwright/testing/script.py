"""A script of responses: the response for each call, and the deviations from the script.

Each call uses the first matching step that is not used up. Steps without a condition are therefore used in order. Steps
with a condition can be used in any order, so concurrent calls can be scripted without a race.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.text import cut_characters, one_line
from dagwright.testing.scripted_answers import Answer, summary_of, to_answer

ANY_NUMBER = None
"""`times` of a step that may be used any number of times, including zero."""

_SHOWN_CHARACTERS = 160


class ScriptNotFollowed(AssertionError):
    """Calls did not match the script, or responses were unused; the text lists them."""


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A received request.

    Args:
        body: the JSON of the body; `None` if the body is not JSON.
        headers: header names in lower case -> values.
        step_index: index of the step that gave the response; `None` if no step matched.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    step_index: int | None = None

    @property
    def _fields(self) -> Mapping[str, Any]:
        return self.body if isinstance(self.body, dict) else {}

    @property
    def model(self) -> str:
        """Return the requested model."""
        return str(self._fields.get("model", ""))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the metadata of the request."""
        value = self._fields.get("metadata")
        return value if isinstance(value, dict) else {}

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages of the request."""
        value = self._fields.get("messages")
        return [message for message in value if isinstance(message, dict)] if isinstance(value, list) else []

    @property
    def text(self) -> str:
        """Return the texts of all messages, one per line."""
        return "\n".join(_text_of(message.get("content")) for message in self.messages)

    @property
    def is_streamed(self) -> bool:
        """Return whether the request asks for a stream."""
        return self._fields.get("stream") is True

    @property
    def response_format(self) -> str:
        """Return the requested response format: `text`, `json_object` or `json_schema`."""
        value = self._fields.get("response_format")
        return str(value.get("type", "text")) if isinstance(value, dict) else "text"

    @property
    def tools(self) -> Sequence[str]:
        """Return the names of the offered tools."""
        value = self._fields.get("tools")
        return [str(tool["function"]["name"]) for tool in value] if isinstance(value, list) else []

    @property
    def api_key(self) -> str:
        """Return the API key, without `Bearer`."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def summary(self) -> str:
        """Return a one-line summary of the call."""
        last_text = _text_of(self.messages[-1].get("content")) if self.messages else ""
        metadata_text = f" metadata={json.dumps(self.metadata, ensure_ascii=False)}" if self.metadata else ""
        return f"{self.method} {self.path} model={self.model!r}{metadata_text} last message: {_short_text(last_text)}"


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _short_text(text: str) -> str:
    return repr(cut_characters(one_line(text), _SHOWN_CHARACTERS))


AnswerFunction = Callable[[ReceivedCall], Answer | str]
"""Builds a response from the call; a text becomes a text response."""


@dataclass(frozen=True, slots=True)
class When:
    """Condition of a step on the received request: all fields that are set must match.

    Args:
        model: model that the request must name.
        metadata: metadata that the request must contain; the request may contain more.
        text: text that the messages of the request must contain.
        last: text that the last message of the request must contain.
        tool: name of a tool that the request must offer.
        response_format: format that the request must name: `text`, `json_object` or `json_schema`.
        is_streamed: whether the request must ask for a stream.
        condition: predicate for the call.
    """

    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    last: str | None = None
    tool: str | None = None
    response_format: str | None = None
    is_streamed: bool | None = None
    condition: Callable[[ReceivedCall], bool] | None = None

    def matches(self, call: ReceivedCall) -> bool:
        """Return whether a call matches."""
        return not self.mismatches(call)

    def mismatches(self, call: ReceivedCall) -> Sequence[str]:
        """Return the names of the fields that a call does not match."""
        last_text = _text_of(call.messages[-1].get("content")) if call.messages else ""
        matches_by_field = {
            "model": self.model is None or call.model == self.model,
            "metadata": all(call.metadata.get(name) == value for name, value in self.metadata.items()),
            "text": self.text is None or self.text in call.text,
            "last": self.last is None or self.last in last_text,
            "tool": self.tool is None or self.tool in call.tools,
            "response_format": self.response_format is None or call.response_format == self.response_format,
            "is_streamed": self.is_streamed is None or call.is_streamed == self.is_streamed,
            "condition": self.condition is None or self.condition(call),
        }
        return [name for name, is_match in matches_by_field.items() if not is_match]

    def summary(self) -> str:
        """Return the condition in words; empty for no condition."""
        names = ("model", "metadata", "text", "last", "tool", "response_format", "is_streamed")
        parts = [f"{name}={value!r}" for name in names if (value := getattr(self, name)) not in (None, {})]
        return ", ".join([*parts, *(["condition=…"] if self.condition is not None else [])])


@dataclass(frozen=True, slots=True)
class Step:
    """One response of a script.

    Args:
        answer: the response, or a function that builds it from the call.
        when: condition; by default, any call matches.
        times: number of calls that must use the step; `ANY_NUMBER` for any number.
        release_event: event that is set to release the response; `None` to send the response at once.
    """

    answer: Answer | AnswerFunction
    when: When = When()
    times: int | None = 1
    release_event: asyncio.Event | None = None

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is {self.times}, expected at least 1, or ANY_NUMBER")

    def answer_to(self, call: ReceivedCall) -> Answer:
        """Return the response to a call."""
        return to_answer(self.answer(call)) if callable(self.answer) else self.answer

    def summary(self) -> str:
        """Return a one-line summary of the response."""
        return "built from the call by a function" if callable(self.answer) else summary_of(self.answer)


def step(
    answer: Answer | str | AnswerFunction,
    /,
    *,
    when: When | None = None,
    times: int | None = 1,
    release_event: asyncio.Event | None = None,
) -> Step:
    """Return a step of a script. A text becomes a text response."""
    scripted_answer = answer if callable(answer) else to_answer(answer)
    return Step(scripted_answer, when or When(), times=times, release_event=release_event)


class Script:
    """State of a script: how often each step was used, and the deviations so far."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._used_counts = [0] * len(steps)
        self._unexpected_calls: list[str] = []
        self._violations: list[str] = []

    def use_step(self, call: ReceivedCall) -> int | None:
        """Use the step that matches a call, and return its index; `None` if no step matches."""
        for index, scripted_step in enumerate(self._steps):
            if (
                scripted_step.times is None or self._used_counts[index] < scripted_step.times
            ) and scripted_step.when.matches(call):
                self._used_counts[index] += 1
                return index
        self._unexpected_calls.append(call.summary())
        return None

    def explain_mismatch(self, call: ReceivedCall) -> str:
        """Return why no step matches a call: the most similar step, and the fields that do not match."""
        if not self._steps:
            return "the script has no steps"
        mismatches = [scripted_step.when.mismatches(call) for scripted_step in self._steps]
        # A step without mismatches is used up: otherwise the call would have used the step.
        index = min(range(len(mismatches)), key=lambda index: (len(mismatches[index]), -index))
        when = self._steps[index].when.summary()
        position = f"step {index + 1}{f' (when {when})' if when else ''}"
        if not mismatches[index]:
            return (
                f"{position} would match, but it is used up ({self._used_counts[index]} of {self._steps[index].times})"
            )
        return f"the most similar step is {position}; the call does not match its {', '.join(mismatches[index])}"

    def record_violation(self, call: ReceivedCall, text: str) -> None:
        """Record a request that violates the protocol."""
        self._violations.append(f"{call.summary()}: {text}")

    def record_unexpected_call(self, call: ReceivedCall, reason: str = "") -> None:
        """Record a request that no step answers.

        Args:
            reason: why no step answers; empty if the server does not have the path of the request.
        """
        self._unexpected_calls.append(f"{call.summary()}: {reason}" if reason else call.summary())

    def _unused_steps(self) -> list[str]:
        unused_steps = []
        for index, (scripted_step, used_count) in enumerate(zip(self._steps, self._used_counts, strict=True)):
            if scripted_step.times is not None and used_count < scripted_step.times:
                when = scripted_step.when.summary()
                times = f" ({used_count} of {scripted_step.times} used)" if scripted_step.times > 1 else ""
                unused_steps.append(
                    f"step {index + 1}{times}{f' when {when}' if when else ''}: {scripted_step.summary()}"
                )
        return unused_steps

    def report(self) -> str:
        """Return a readable report of all deviations from the script; empty if there are none."""
        parts = (
            ("calls without a matching step", self._unexpected_calls),
            ("requests that violate the protocol", self._violations),
            ("unused steps", self._unused_steps()),
        )
        sections = [f"{title}:\n" + "\n".join(f"  - {line}" for line in lines) for title, lines in parts if lines]
        return "\n".join(["the script of the model server was not followed", *sections]) if sections else ""
