"""Typed events of a run, and the cursor from which a client resumes the stream.

    run.started run.waiting run.running run.paused run.resumed run.completed run.failed run.cancelled
    node.started node.waiting node.resumed node.completed node.failed node.skipped node.blocked node.cancelled
    node.superseded
    feedback.requested feedback.answered feedback.expired feedback.closed
    text.delta

A state that starts and ends between two reads of the run is omitted, such as a failure before a retry.
The start of a node and all requests for feedback are always reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Literal, Self, cast
from urllib.parse import quote, unquote

from dagwright.client.feedback.feedback_request import FeedbackRequest
from dagwright.core.errors import DagwrightError, Problem
from dagwright.core.model.states import NodeError, NodeStatus, RunStatus
from dagwright.history.executions import START
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.text_stream import NO_TEXT, TextMark


class CursorInvalid(DagwrightError, ValueError):
    """The text is not a cursor of this stream or list; pass the `cursor` of an entry, or `None` for the start."""


_START_CURSOR = SubscriptionCursor(START)


@dataclass(frozen=True, slots=True)
class EventCursor:
    """A position in the events of a run.

    The text `1-145` is the position after history event 145 of the first execution. Any process can resume from a
    cursor, because the cursor refers to the history. A moment is a position in the history at which the run was read.
    If a client has received only some events of a moment, the text has three parts: `1-40.1-145.3` is the position
    after the third event of the moment 1-145, and 1-40 is the previous moment.

    Args:
        complete_position: history position up to which all events have been reported.
        partial_position: position of the moment whose events have been reported in part; `None` between two moments.
        partial_count: number of reported events of that moment.
        text: position up to which the model's response has been reported.
    """

    complete_position: SubscriptionCursor = _START_CURSOR
    partial_position: SubscriptionCursor | None = None
    partial_count: int = 0
    text: TextMark = NO_TEXT

    def __str__(self) -> str:
        position = str(self.complete_position)
        if self.partial_position is not None:
            position = f"{position}.{self.partial_position}.{self.partial_count}"
        if not self.text.length:
            return position
        return f"{position}~{self.text.length}.{self.text.checksum:x}.{quote(self.text.call_id, safe='')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the cursor of an event.

        Raises:
            CursorInvalid: the text is not a cursor.
        """
        position, _, mark_text = text.partition("~")
        try:
            mark = _mark_of(mark_text) if mark_text else NO_TEXT
            match position.split("."):
                case [complete_text]:
                    return cls(SubscriptionCursor.parse(complete_text), text=mark)
                case [complete_text, partial_text, count_text]:
                    complete_position = SubscriptionCursor.parse(complete_text)
                    partial_position = SubscriptionCursor.parse(partial_text)
                    count = int(count_text)
                    if complete_position.cursor < partial_position.cursor and count > 0:
                        return cls(complete_position, partial_position, count, mark)
        except ValueError:
            pass
        raise CursorInvalid(f"{text!r:.120} is not a cursor; pass the `cursor` of an event, such as 1-145")


def _mark_of(text: str) -> TextMark:
    length, checksum, node = text.split(".", 2)
    return TextMark(unquote(node), int(length), int(checksum, 16))


RunEventType = Literal[
    "run.started",
    "run.waiting",
    "run.running",
    "run.paused",
    "run.resumed",
    "run.completed",
    "run.failed",
    "run.cancelled",
]
NodeEventType = Literal[
    "node.started",
    "node.waiting",
    "node.resumed",
    "node.completed",
    "node.failed",
    "node.skipped",
    "node.blocked",
    "node.cancelled",
    "node.superseded",
]
ClosingType = Literal["feedback.answered", "feedback.expired", "feedback.closed"]


def run_event_type(status: str) -> RunEventType:
    """Return the type of the event for a run status; `run.completed` is also the type for `completed_with_failures`."""
    event_status = RunStatus.COMPLETED if status == RunStatus.COMPLETED_WITH_FAILURES else status
    return cast("RunEventType", f"run.{event_status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """An event of a run.

    Args:
        type: type of the event, such as `node.completed`.
        cursor: where to resume after this event, also in another process: `run.events(after=event.cursor)`.
        at: time of the event, if it is known.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset()
    """Fields that `to_json` omits."""

    type: str
    run_id: str
    cursor: str = ""
    at: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON, for streams of events and logs."""
        names = [field.name for field in fields(self) if field.name not in self.HIDDEN]
        return {name: _json_of(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatusEvent(RunEvent):
    """The state of the run changed.

    Args:
        error: cause of `run.failed`.
        reason: why the run is waiting or paused.
        by: user who paused the run, for `run.paused`.
    """

    type: RunEventType
    status: RunStatus
    title: str | None = None
    error: Problem | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent(RunEvent):
    """The state of a node or of a map item changed.

    Args:
        node_id: `load[north]` for an item.
        attempts: number of calls of the node's tool, including failed calls.
        reason: why the node is waiting or was cancelled.
    """

    type: NodeEventType
    node_id: str
    status: NodeStatus
    attempts: int = 0
    title: str | None = None
    tool: str | None = None
    reason: str | None = None
    error: NodeError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRequested(RunEvent):
    """A node or the run requests feedback; answer with `await event.request.answer(...)`.

    Args:
        is_open: whether the request was open when the event was read. A client that reads old events also receives
            requests that have been answered in the meantime.
    """

    type: Literal["feedback.requested"]
    node_id: str | None
    request: FeedbackRequest
    is_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackClosed(RunEvent):
    """A request is no longer open.

    Args:
        type: `feedback.answered`. `feedback.expired`: the deadline passed. `feedback.closed`: the node ended before an
            answer, or the request of a sub-plan is no longer open.
        answer: one word, such as `approved`.
        by: person who answered.
    """

    type: ClosingType
    node_id: str | None
    request_id: str
    answer: str | None = None
    by: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(RunEvent):
    """A piece of a model's response.

    Args:
        node_id: node of the model call; `None` for a piece that was read from the output after the end of the run.
        offset: offset of the piece in the response, in characters.
        starts_over: discard earlier pieces; the response starts with this piece.
    """

    type: Literal["text.delta"]
    text: str
    node_id: str | None = None
    offset: int = 0
    starts_over: bool = False


AnyRunEvent = RunStatusEvent | NodeEvent | FeedbackRequested | FeedbackClosed | TextDelta


def _json_of(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, NodeError | Problem):
        return value.to_json()
    if isinstance(value, FeedbackRequest):
        return {field.name: _json_of(getattr(value, field.name)) for field in fields(value) if field.name != "run"}
    if isinstance(value, Mapping):
        return dict(value)
    return value
