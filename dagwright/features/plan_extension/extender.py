"""Plan extenders (`PlanExtender`): strategies that add nodes to a running plan, as an agent does after each model
response.

An extender is pure: its next step depends only on the plan and the records of the run, so continue-as-new, replay and
history readers need no additional state. The scheduler calls the extender whenever no node can change any more, so the
workflow and the readers of its history extend the plan at the same event.

Replay: the nodes that an extender adds, and their order, determine which activities the workflow starts, and in which
order. A changed order breaks the replay of open runs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dagwright.core.model.states import NodeError

if TYPE_CHECKING:
    from dagwright.core.model.tools import ToolDeclaration
    from dagwright.core.scheduler.extension import Extension
    from dagwright.core.scheduler.run_state import RunState


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

    def next_extension(self, state: "RunState") -> "Extension | None":
        """Return the next extension of the plan; `None` if the current state needs none.

        Raises:
            GoalUnreachable: the goal cannot be reached.
        """
        ...

    def goal_error(self, state: "RunState") -> NodeError | None:
        """Return why a run that has ended has not reached its goal, or `None`."""
        ...

    def is_reserved(self, node_id: str) -> bool:
        """Return whether only nodes that the extender generates may have this id."""
        ...

    def rejection_of_result(self, node_id: str, result: Any) -> str | None:
        """Return why a person may not set this result of a node, or `None`."""
        ...


@runtime_checkable
class StreamingExtender(PlanExtender, Protocol):
    """Extender that starts a plan while a model is still writing it."""

    def early_tools(self) -> "Mapping[str, ToolDeclaration] | None":
        """Return the tools that nodes may use while the model is writing the plan; `None` if streaming is off."""
        ...

    def early_start_rejection(
        self, state: "RunState", extension: "Extension", *, tools: "Mapping[str, ToolDeclaration]"
    ) -> str | None:
        """Return why nodes may not run before their plan is complete, or `None`.

        Args:
            tools: the result of `early_tools`.
        """
        ...
