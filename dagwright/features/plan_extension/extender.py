"""Pursuits: what makes a run add nodes to its plan by itself, as an agent does after each answer of its model.

A pursuit is pure. What it does next follows from the plan and the records of the run alone, so a run that goes on in a
new execution, a replay and the feed need nothing of it. The scheduler asks it whenever nothing moves any more, so the
workflow and whoever follows its history grow the plan at the same moment.

Replay: the nodes that a pursuit adds, and their order, are part of the order of commands in history.
"""

from typing import Any, Protocol

from dagwright.core.model.errors import NodeError
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.features.plan_edits.extension_checks import refusal_of_extension

MOST_STEPS = 100
"""Extensions that follow one another at one moment, of which each needs an event between two as a rule."""
_BUG = "Bug"


class GivenUp(Exception):
    """A pursuit cannot reach what it is for: the run ends as failed.

    Args:
        error: why, as the run tells it.
    """

    def __init__(self, error: NodeError) -> None:
        super().__init__(error.message)
        self.error = error


class Pursuit(Protocol):
    """What a run adds nodes for."""

    def follow(self, state: RunState) -> Extension | None:
        """Returns what the plan grows by now, or nothing; it is asked again as soon as something has changed.

        Raises:
            GivenUp: the run cannot reach what it is for.
        """
        ...

    def shortfall(self, state: RunState) -> NodeError | None:
        """Returns why a run that ends with something has not reached all that it is for; `None` if it has."""
        ...

    def is_own(self, node_id: str) -> bool:
        """Tells whether an id is one of those that the pursuit itself gives, by which it finds its way."""
        ...

    def refusal_of_result(self, node_id: str, result: Any) -> str | None:
        """Returns why a person may not give this result of a node."""
        ...


def next_step(pursuit: Pursuit, state: RunState) -> Extension | NodeError | None:
    """Returns what the plan grows by now, or why the run has to end; nothing if it goes on as it is."""
    try:
        extension = pursuit.follow(state)
        refusal = None if extension is None else refusal_of_extension(state, extension)
    except GivenUp as given_up:
        return given_up.error
    # The edge to code that nobody calls but the scheduler, in the middle of an event: a defect ends the run here with
    # its reason, in the feed as well as in the workflow.
    except Exception as error:
        return NodeError(_BUG, f"the run could not go on growing: {type(error).__name__}: {error}")
    return extension if refusal is None else NodeError("too_large", f"the run cannot grow any more: {refusal}")
