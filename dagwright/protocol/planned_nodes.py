"""Nodes of a plan that a model still writes: the signal `planned`, by which its worker tells them to the run.

A message is `{"call", "attempt", "from", "nodes"}`: the id of the planner's activity, which attempt of it speaks, how
many nodes that attempt has told before, and those that follow, as they were written. One of an attempt that another
one has followed, or that came before, has no effect. The first message of a later attempt has no nodes: what comes of
earlier ones behind it does not count, so all that stands is in history before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, TooMuchWork, WorkBudget
from dagwright.core.model.answers import size_problem
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.task_creation import task_of_call
from dagwright.features.commands.steering import Act, Written, refusal_of_run
from dagwright.features.plan_edits.edit_checks import growth_of
from dagwright.features.plan_edits.node_additions import add_early_nodes
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.plan_and_execute.goals import PLAN, own_id
from dagwright.planning.plan_and_execute.loop import GoalPursuit
from dagwright.protocol.command_messages import MESSAGE_BYTES, Steered
from dagwright.protocol.messages import MessageInvalid

_ID_BYTES = 2_000


def planned_message(call: str, attempt: int, *, offset: int, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the message of some nodes."""
    return {"call": call, "attempt": attempt, "from": offset, "nodes": [dict(node) for node in nodes]}


def planned_from_json(message: Any) -> Steered:
    """Returns what a message asks for.

    Raises:
        MessageInvalid: it is none of these.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid(f"{wire.SIGNAL_PLANNED} takes an object")
    if (problem := size_problem(dict(message), MESSAGE_BYTES, what="the message")) is not None:
        raise MessageInvalid(problem)
    call, attempt, offset, nodes = (message.get(name) for name in ("call", "attempt", "from", "nodes"))
    if not isinstance(call, str) or not 0 < len(call.encode()) <= _ID_BYTES:
        raise MessageInvalid("'call' must be the id of the call that writes the plan")
    if type(attempt) is not int or type(offset) is not int or attempt < 1 or offset < 0:
        raise MessageInvalid("'attempt' must be a number from 1, and 'from' one from 0")
    if not isinstance(nodes, list):
        raise MessageInvalid("'nodes' must be a list of nodes as in a plan")
    return Steered(message, None, Planned(call, attempt, offset, nodes), "the nodes were taken")


@dataclass(frozen=True, slots=True)
class TakePlanned:
    """Takes note of what an attempt has told, and adds its nodes to the plan.

    Args:
        count: nodes that the attempt has told with these.
        extension: `None` if there is nothing to add.
    """

    call: str
    attempt: int
    count: int
    extension: Extension | None

    def refusal_of(self, scheduler: RunScheduler, *, at: float) -> str | None:  # noqa: ARG002 - an act
        """Returns nothing: whoever read it has looked."""
        return None

    def do(self, scheduler: RunScheduler, *, at: float) -> None:
        """Does it.

        Raises:
            TooMuchWork: nothing was changed.
        """
        if self.extension is not None:
            add_early_nodes(scheduler, self.extension, at=at)
        scheduler.features.extension.streamed[self.call] = (self.attempt, self.count)


@dataclass(frozen=True, slots=True)
class _Known:
    """Changes nothing: another attempt speaks now, or the same was said before."""

    def refusal_of(self, scheduler: RunScheduler, *, at: float) -> str | None:  # noqa: ARG002 - an act
        """Returns nothing."""
        return None

    def do(self, scheduler: RunScheduler, *, at: float) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class Planned(Written):
    """Adds nodes that a model has written, while it writes the rest.

    Args:
        call: id of its call.
        attempt: of that call, from 1.
        offset: nodes that this attempt has told before.
        nodes: as in a plan.
    """

    call: str
    attempt: int
    offset: int
    nodes: Sequence[Any]

    def refusal_of(self, scheduler: RunScheduler, *, at: float) -> str | None:
        """Returns why it cannot be done now."""
        act = self._read(scheduler, at, budget=scheduler.features.feedback.requests.precheck_budget)
        return act if isinstance(act, str) else None

    def read(self, scheduler: RunScheduler, *, at: float) -> Act | str:
        """Returns the act that it is, or why it is refused."""
        return self._read(scheduler, at, budget=scheduler.features.feedback.requests.check_budget)

    def _read(self, scheduler: RunScheduler, at: float, *, budget: WorkBudget) -> Act | str:
        attempt, count = scheduler.features.extension.streamed.get(self.call, (1, 0))
        if self.attempt < attempt or (self.attempt == attempt and self.offset < count):
            return _Known()
        if (refusal := refusal_of_run(scheduler) or self._refusal_of_call(scheduler)) is not None:
            return refusal
        told = self.offset + len(self.nodes)
        if not self.nodes:
            return TakePlanned(self.call, self.attempt, told, None)
        budget.start(at)
        try:
            extension = self._extension(scheduler, budget)
        except TooMuchWork:
            return TOO_MUCH_AT_ONCE
        return extension if isinstance(extension, str) else TakePlanned(self.call, self.attempt, told, extension)

    def _refusal_of_call(self, scheduler: RunScheduler) -> str | None:
        """Returns why no nodes may come from a call: only from one that plans, and only while it runs."""
        task_id = task_of_call(scheduler.state, self.call)
        record = scheduler.record_of(task_id) if task_id is not None else None
        if record is None or own_id(self.call) != PLAN:
            return f"{self.call[:200]!r} writes no plan of this run"
        return None if record.status is NodeStatus.RUNNING else f"the plan of {self.call!r} is whole already"

    def _extension(self, scheduler: RunScheduler, budget: WorkBudget) -> Extension | str:
        pursuit = scheduler.features.extension.extender
        tools = pursuit.early_tools() if isinstance(pursuit, GoalPursuit) else None
        if not isinstance(pursuit, GoalPursuit) or tools is None:
            return "nothing of this run starts before its plan is whole"
        extension = growth_of(self.nodes, scheduler.state, tools=tools, budget=budget)
        if isinstance(extension, str):
            return extension
        return pursuit.refusal_of_early(scheduler.state, extension, tools=tools) or extension
