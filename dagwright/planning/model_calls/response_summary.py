"""Summary of a model response in a run: a large response is reduced to the parts that control the run.

The full response is in the payload store. Its text and its output can be passed by reference, like large results of
tools.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dagwright.core.boundary.usage_reports import Usage, usage_from_json
from dagwright.core.expressions.stored_values import Projection, StoredValue

SUMMARY_PROJECTIONS: tuple[Projection, ...] = (
    (("finish_reason",), "value"),
    (("model",), "value"),
    (("usage",), "value"),
    (("conversation",), "value"),
    (("message", "content"), "value"),
    (("output",), "value"),
    (("message", "tool_calls"), "whole"),
)
"""Projections of a large response for the run: tool calls must be complete, the other parts are included if they are
small."""
ANSWER_FIELD = "answer"
"""Field that contains the text of the answer to a goal, if the model writes this answer as JSON."""
ANSWER_PROJECTIONS: tuple[Projection, ...] = ((("output", ANSWER_FIELD), "value"), (("output", "missing"), "whole"))
"""Projections of an answer to a goal: the text, and the missing information that the answer reports."""
ACCEPTED_NODES_PROJECTION: Projection = (("accepted_nodes",), "value")
"""Projection of a streamed plan: the nodes that were sent to the run while the model wrote the plan."""
PARSED_ROUND_PROJECTION: Projection = (("parsed_round",), "whole")
"""Projection of a response of the rounds planner: the answer as the activity has parsed it."""
MARKER_PROJECTION: Projection = (("marker",), "value")
"""Projection of a large response: the marker of a request to a person (`planning.agent_loop.feedback_markers`)."""
TOOL_CALLS_BYTES = 128 * 1024
"""Limit for the JSON of all tool calls in one response; less than the limit for one result in a run."""


class ToolCall(BaseModel):
    """Tool call requested by a model.

    `arguments` is the text that the model wrote. The code that makes the call parses the text, and reports invalid JSON
    to the model.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ResponseSummary:
    """Model response as a workflow receives it.

    Args:
        text: text of the response, or a reference to it.
        output: value for the requested schema, or a reference to it.
        tool_calls: complete tool calls.
        conversation: reference for `ModelRequest.previous_conversation` of the next call.
        marker: request to a person, if the text is in the store and contains a request.
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
    """Decode the summary from the result of a model call.

    Args:
        value: result of the node. Parts of it may be in the payload store.

    Raises:
        ValueError: the result is not a model response.
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
        problem = error.errors(include_url=False)[0]
        location = ".".join(map(str, (error.title, *problem["loc"])))
        raise ValueError(f"{location}: {problem['msg']}, got {problem['input']!r:.80}") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def has_text_in_output(value: Any) -> bool:
    """Check whether an answer to a goal is JSON in the response format, not plain text."""
    return isinstance(_at(value, *ANSWER_PROJECTIONS[0][0]), str | StoredValue)


def missing_information(value: Any) -> Sequence[str]:
    """Return the missing information that an answer to a goal reports."""
    missing_texts = _at(value, *ANSWER_PROJECTIONS[1][0])
    return (
        [text.strip() for text in missing_texts if isinstance(text, str) and text.strip()]
        if isinstance(missing_texts, list)
        else ()
    )


def parsed_round_of(value: Any) -> Any:
    """Return the parsed answer in a planner's response; `None` if it is missing."""
    return _at(value, *PARSED_ROUND_PROJECTION[0])


def usage_of_response(value: Any) -> Usage:
    """Return the usage of a model call from its result, without decoding the rest of the result."""
    return usage_from_json(_at(value, "usage"))


def _at(value: Any, *path: str) -> Any:
    """Return the value at a path of a response, inline or in the store; `None` if the path does not exist."""
    if isinstance(value, StoredValue):
        stored_part, remaining_path = value.part_at(path)
        if isinstance(stored_part, StoredValue):
            part = stored_part.root_part
            return part.value if part is not None and part.state == "whole" else stored_part
        return None if stored_part.state == "missing" else _walk(stored_part.value, remaining_path)
    return _walk(value, path)


def _walk(value: Any, path: Any) -> Any:
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
