"""Plan extenders (`PlanExtender`): strategies that add nodes to a running plan, as an agent does after each model
response.

An extender is pure: its next step depends only on the plan and the records of the run, so continue-as-new, replay and
history readers need no additional state. The scheduler calls it whenever no node can change any more, so the workflow
and the readers of its history extend the plan at the same event.

Replay: the nodes that an extender adds, and their order, are part of the order of commands in history.
"""

from typing import TYPE_CHECKING, Any, Protocol

from dagwright.core.errors import NodeError
from dagwright.core.scheduler.extension import Extension
from dagwright.features.plan_edits.extension_checks import refusal_of_extension

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

MAX_EXTENSIONS = 100
"""Most extensions without an event between them; normally each extension needs an event before the next one."""
_BUG = "Bug"


class GoalUnreachable(Exception):
    """The extender cannot reach its goal; the run fails.

    Args:
        error: error of the run.
    """

    def __init__(self, error: NodeError) -> None:
        super().__init__(error.message)
        self.error = error


class PlanExtender(Protocol):
    """Strategy that extends a plan while it runs."""

    def next_extension(self, state: "RunState") -> Extension | None:
        """Return the next extension of the plan, or `None` until something has changed.

        Raises:
            GoalUnreachable: the goal cannot be reached.
        """
        ...

    def goal_error(self, state: "RunState") -> NodeError | None:
        """Return why a run that has ended has not reached its goal; `None` if it has."""
        ...

    def is_own(self, node_id: str) -> bool:
        """Return whether an id has the form of the ids of generated nodes, by which the extender finds its nodes."""
        ...

    def refusal_of_result(self, node_id: str, result: Any) -> str | None:
        """Return why a person may not set this result of a node, or `None`."""
        ...


def next_extension_or_error(extender: PlanExtender, state: "RunState") -> Extension | NodeError | None:
    """Return the next extension of the plan, the error that ends the run, or `None` if nothing changes."""
    try:
        extension = extender.next_extension(state)
        refusal = None if extension is None else refusal_of_extension(state, extension)
    except GoalUnreachable as unreachable:
        return unreachable.error
    # A defect of an extender ends the run with an error, in the workflow and in history readers alike.
    except Exception as error:
        return NodeError(_BUG, f"the plan could not be extended: {type(error).__name__}: {error}")
    return extension if refusal is None else NodeError("too_large", f"the plan cannot be extended: {refusal}")
