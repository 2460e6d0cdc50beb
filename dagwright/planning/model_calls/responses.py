"""What a run is told of a model's answer: of a large one only the parts it decides by.

The whole of such an answer lies in the payload store; its text and its output can be handed on by reference, as large
results of tools are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dagwright.core.boundary.usage import Usage, usage_from_json
from dagwright.core.expressions.stored_values import Projection, StoredValue
from dagwright.planning.model_calls.calls import ToolCall

SUMMARY_PROJECTIONS: tuple[Projection, ...] = (
    (("finish_reason",), "value"),
    (("model",), "value"),
    (("usage",), "value"),
    (("conversation",), "value"),
    (("message", "content"), "value"),
    (("output",), "value"),
    (("message", "tool_calls"), "whole"),
)
"""The parts of a large answer that a run is told; tool calls it must see whole, the others as far as they are small."""
ANSWER_FIELD = "answer"
"""Of the JSON of an answer to a request: its text."""
ANSWER_PROJECTIONS: tuple[Projection, ...] = ((("output", ANSWER_FIELD), "value"), (("output", "missing"), "whole"))
"""Of an answer to a request: its text, and what is missing in it."""
ACCEPTED_PROJECTION: Projection = (("accepted",), "value")
"""Of a plan whose nodes were sent to the run while the model wrote it: which."""
READ_PROJECTION: Projection = (("read",), "whole")
"""Of a planner's answer that the worker reads which asked for it: what was read."""
MARKER_PROJECTION: Projection = (("marker",), "value")
"""Of a large answer in which the model asks a person: the words in which it does (`planning.agent_loop.asking`)."""
TOOL_CALLS_BYTES = 128 * 1024
"""JSON of all tool calls of one answer; below what a run may be told of one result."""


@dataclass(frozen=True, slots=True)
class ResponseSummary:
    """An answer as a workflow has it.

    Args:
        text: what the model said, or where that lies.
        output: the value that was asked for, or where that lies.
        tool_calls: what the model wants called, whole.
        conversation: reference for `ModelRequest.before` of the next call.
        marker: of a text that lies elsewhere, the words in which it asks a person, if it does.
    """

    text: str | StoredValue
    output: Any
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    model: str
    usage: Usage
    conversation: str | None = None
    marker: str | None = None


def summarize_response(value: Any) -> ResponseSummary:
    """Returns the answer that the result of a model call holds.

    Args:
        value: as a run has it, so it may lie in the payload store.

    Raises:
        ValueError: it holds none.
    """
    try:
        calls = _at(value, "message", "tool_calls") or ()
        text = _at(value, "message", "content")
        marker = _at(value, "marker")
        return ResponseSummary(
            text=text if text is not None else "",
            output=_at(value, "output"),
            tool_calls=tuple(ToolCall.model_validate(call) for call in calls),
            finish_reason=_at(value, "finish_reason"),
            model=_at(value, "model"),
            usage=usage_from_json(_at(value, "usage")),
            conversation=_at(value, "conversation"),
            marker=marker if isinstance(marker, str) else None,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (error.title, *first["loc"])))
        raise ValueError(f"{place}: {first['msg']}, got {first['input']!r:.80}") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def has_text_in_output(value: Any) -> bool:
    """Tells whether an answer to a request was given in its response format, and not as mere text."""
    return isinstance(_at(value, *ANSWER_PROJECTIONS[0][0]), str | StoredValue)


def missing_information(value: Any) -> Sequence[str]:
    """Returns what an answer to a request says that is missing in it."""
    missing = _at(value, *ANSWER_PROJECTIONS[1][0])
    return [gap.strip() for gap in missing if isinstance(gap, str) and gap.strip()] if isinstance(missing, list) else ()


def read_round_of(value: Any) -> Any:
    """Returns what was read of the answer of a planner; `None` if nothing was."""
    return _at(value, *READ_PROJECTION[0])


def usage_of_response(value: Any) -> Usage:
    """Returns what the answer that the result of a model call holds has used; the rest of it is not read."""
    return usage_from_json(_at(value, "usage"))


def _at(value: Any, *path: str) -> Any:
    """Returns what stands at a path of an answer, in the run or in the store; `None` if nothing does."""
    if isinstance(value, StoredValue):
        found, left = value.at(path)
        if isinstance(found, StoredValue):
            part = found.own_part
            return part.value if part is not None and part.state == "whole" else found
        return None if found.state == "missing" else _walk(found.value, left)
    return _walk(value, path)


def _walk(value: Any, path: Any) -> Any:
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
