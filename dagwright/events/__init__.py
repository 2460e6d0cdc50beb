"""The events of `Run.events()`, and the states that they report."""

from dagwright.client.events import (
    AnyRunEvent,
    FeedbackClosed,
    FeedbackRequested,
    NodeEvent,
    RunEvent,
    RunStatusEvent,
    TextDelta,
)
from dagwright.core.model.states import NodeStatus, RunStatus

__all__ = [
    "AnyRunEvent",
    "FeedbackClosed",
    "FeedbackRequested",
    "NodeEvent",
    "NodeStatus",
    "RunEvent",
    "RunStatus",
    "RunStatusEvent",
    "TextDelta",
]
