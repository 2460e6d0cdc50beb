"""Validation of requests in words, before any model is called."""

from typing import Any

from dagwright.core.errors import DagwrightError
from dagwright.planner.tool_catalogue import Catalogue

GOAL_LIMIT_BYTES = 64 * 1024
"""Limit for a request in UTF-8, about 16,000 tokens. Longer text belongs in a file that a tool of the plan reads."""


class GoalRejected(DagwrightError, ValueError):
    """A request is rejected before a model is called. The message states the reason and a hint."""

    def __init__(self, code: str, message: str, *, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.code = code
        self.message = message
        self.hint = hint


def validate_goal(goal: Any, catalogue: Catalogue) -> str:
    """Return the request without leading and trailing whitespace.

    Args:
        goal: the request, of any type.
        catalogue: tools and agents that a plan may use.

    Raises:
        GoalRejected: the request is empty, too long or not valid text, or there are no tools and agents.
    """
    if not isinstance(goal, str):
        raise GoalRejected(
            "invalid_field", f"the request must be a string, not {type(goal).__name__}", hint="write it as text"
        )
    if any("\ud800" <= character <= "\udfff" for character in goal):
        raise GoalRejected("invalid_field", "the request contains a lone surrogate", hint="encode it as UTF-8")
    text = goal.strip()
    if not text:
        raise GoalRejected("empty_request", "the request is empty", hint="describe the task in text")
    if (size := len(text.encode())) > GOAL_LIMIT_BYTES:
        message = f"the request has {size:,} bytes; at most {GOAL_LIMIT_BYTES:,} are allowed"
        raise GoalRejected(
            "too_large", message, hint="move long text into a file, and describe the file in the request"
        )
    if not catalogue.tools:
        message = "there is no tool and no agent that a plan could use"
        raise GoalRejected("no_tools", message, hint="name some in `tools` or `agents`")
    return text
