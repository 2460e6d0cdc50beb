"""The signal `planned`: nodes of a plan that a model is still writing, reported by the worker of the model call.

A message is `{"call", "attempt", "from", "nodes"}`. `call` is the ID of the planner's activity, `attempt` the number of
the attempt, and `from` the number of nodes that this attempt has reported before. `nodes` are the next nodes as
written. A repeated message has no effect. The first message of an attempt has no nodes; after this message, messages of
earlier attempts have no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.model.answers import size_problem
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.features.commands.steering import (
    MAX_COMMAND_BYTES,
    CommandMessage,
    RunCommand,
    UnparsedCommand,
    rejection_of_node_commands,
)
from dagwright.features.plan_edits.node_additions import add_nodes_of_unfinished_plan
from dagwright.features.plan_extension.extender import StreamingExtender
from dagwright.planning.plan_and_execute.goal_spec import PLAN, role_of
from dagwright.protocol.messages import MessageInvalid

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_MAX_CALL_ID_BYTES = 2_000


def planned_message(call: str, attempt: int, *, offset: int, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the message that reports nodes. `offset` nodes of the attempt were reported before."""
    return {"call": call, "attempt": attempt, "from": offset, "nodes": [dict(node) for node in nodes]}


def planned_from_json(message: Any) -> CommandMessage:
    """Decode the message.

    Raises:
        MessageInvalid: the message is invalid.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid(f"{wire.SIGNAL_PLANNED} must be an object")
    if (problem := size_problem(dict(message), MAX_COMMAND_BYTES, value_name="the message")) is not None:
        raise MessageInvalid(problem)
    call, attempt, offset, nodes = (message.get(name) for name in ("call", "attempt", "from", "nodes"))
    if not isinstance(call, str) or not 0 < len(call.encode()) <= _MAX_CALL_ID_BYTES:
        raise MessageInvalid("'call' must be the id of the call that writes the plan")
    if type(attempt) is not int or type(offset) is not int or attempt < 1 or offset < 0:
        raise MessageInvalid("'attempt' must be an integer of at least 1, and 'from' an integer of at least 0")
    if not isinstance(nodes, list):
        raise MessageInvalid("'nodes' must be a list of nodes as in a plan")
    return CommandMessage(message, None, UnparsedPlannedNodes(call, attempt, offset, nodes), "the nodes were added")


@dataclass(frozen=True, slots=True)
class AddPlannedNodes:
    """Record the progress of an attempt and add its nodes to the plan.

    Args:
        reported_count: number of nodes that the attempt has reported, including these.
        extension: nodes to add; `None` if the message has no nodes.
    """

    call: str
    attempt: int
    reported_count: int
    extension: Extension | None

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return `None`: `UnparsedPlannedNodes.parse_within` has checked the command."""
        return None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command.

        Raises:
            ComputeBudgetExceeded: the compute budget of the activation is used up; nothing has changed.
        """
        if self.extension is not None:
            add_nodes_of_unfinished_plan(scheduler, self.extension, at=at)
        scheduler.features.extension.stream_progress[self.call] = (self.attempt, self.reported_count)


@dataclass(frozen=True, slots=True)
class _NoChange:
    """Command without effect, for a message of an earlier attempt and for a repeated message."""

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return `None`."""
        return None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Change nothing."""


@dataclass(frozen=True, slots=True)
class UnparsedPlannedNodes(UnparsedCommand):
    """Add nodes of a plan that a model is still writing.

    Args:
        call: id of the model call.
        attempt: attempt of the call, from 1.
        offset: number of nodes that this attempt has reported before.
        nodes: nodes as in a plan.
    """

    call: str
    attempt: int
    offset: int
    nodes: Sequence[Any]

    def parse_within(self, budget: ComputeBudget, scheduler: "RunScheduler", *, at: float) -> RunCommand | str:
        """Return the parsed command, or why it is rejected; the cost is charged to the budget."""
        known_attempt, known_count = scheduler.features.extension.stream_progress.get(self.call, (1, 0))
        if self.attempt < known_attempt or (self.attempt == known_attempt and self.offset < known_count):
            return _NoChange()
        if (rejection := rejection_of_node_commands(scheduler) or self._rejection_of_call(scheduler)) is not None:
            return rejection
        reported_count = self.offset + len(self.nodes)
        if not self.nodes:
            return AddPlannedNodes(self.call, self.attempt, reported_count, None)
        budget.start(at)
        try:
            extension = self._extension(scheduler, budget)
        except ComputeBudgetExceeded:
            return TOO_MUCH_AT_ONCE
        if isinstance(extension, str):
            return extension
        return AddPlannedNodes(self.call, self.attempt, reported_count, extension)

    def _rejection_of_call(self, scheduler: "RunScheduler") -> str | None:
        """Return why the call may not add nodes, or `None`. Only a running planner call may add nodes."""
        task_id = task_of_call(scheduler.state, self.call)
        record = scheduler.record_of(task_id) if task_id is not None else None
        if record is None or role_of(self.call) != PLAN:
            return f"{self.call[:200]!r} does not write a plan of this run"
        return None if record.status is NodeStatus.RUNNING else f"the plan of {self.call!r} is complete already"

    def _extension(self, scheduler: "RunScheduler", budget: ComputeBudget) -> Extension | str:
        extender = scheduler.features.extension.extender
        tools = extender.early_tools() if isinstance(extender, StreamingExtender) else None
        if not isinstance(extender, StreamingExtender) or tools is None:
            return "nodes of this run start only after its plan is complete"
        extension = scheduler.features.extension.check_nodes(self.nodes, tools=tools, budget=budget)
        if isinstance(extension, str):
            return extension
        return extender.early_start_rejection(scheduler.state, extension, tools=tools) or extension
