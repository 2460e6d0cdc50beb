"""What somebody asks for in words, refused with advice before any model is asked if nothing can come of it."""

from typing import Any

from dagwright.core.errors import DagwrightError
from dagwright.planner.catalogue import Catalogue

GOAL_LIMIT_BYTES = 64 * 1024
"""UTF-8 of a request, some 16,000 tokens. What is longer is material for the plan's tools, and no request."""


class GoalRefused(DagwrightError, ValueError):
    """Nothing can be planned for a request; the text says why, and what to do."""

    def __init__(self, code: str, message: str, *, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.code = code
        self.message = message
        self.hint = hint


def validate_goal(goal: Any, catalogue: Catalogue) -> str:
    """Returns a request without the blanks around it.

    Args:
        goal: as it was given.
        catalogue: what a plan for it may use.

    Raises:
        GoalRefused: it is empty, too long or no text, or there is nothing that a plan could use.
    """
    if not isinstance(goal, str):
        raise GoalRefused("invalid_field", f"a request is a text, not {type(goal).__name__}", hint="say it in words")
    if any("\ud800" <= character <= "\udfff" for character in goal):
        raise GoalRefused("invalid_field", "the request holds half a character", hint="write it in UTF-8")
    words = goal.strip()
    if not words:
        raise GoalRefused("empty_goal", "the request is empty", hint="say in words what should be done")
    if (size := len(words.encode())) > GOAL_LIMIT_BYTES:
        message = f"the request has {size:,} bytes; at most {GOAL_LIMIT_BYTES:,} are planned for"
        raise GoalRefused("too_large", message, hint="put what is long into a file, and say in the request what it is")
    if not catalogue.tools:
        message = "there is no tool and no agent that a plan could use"
        raise GoalRefused("no_tools", message, hint="name some with --tools or --agents")
    return words
