"""Commands to a run: pause, resume, cancel, change its policy or its limits.

Each command is a dataclass with two methods, which the workflow, the history reader and the property tests share:
`rejection_of` returns why the command is rejected, without side effects, and `apply` applies an accepted command.
Commands to nodes are in `dagwright.features.commands.node_commands`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE, ComputeBudget, ComputeBudgetExceeded
from dagwright.core.model.actor import UNKNOWN_ACTOR, Actor
from dagwright.core.model.budget_limits import Limit, LimitKind
from dagwright.core.model.policy import Policy
from dagwright.core.model.states import NodeStatus, Phase, TaskRef
from dagwright.core.model.times import format_time
from dagwright.core.name_hints import suggestion
from dagwright.core.scheduler.run_state import ActivePause
from dagwright.features.budgets.budget import options_to_json
from dagwright.features.compensation.compensation import NOTE_COMPENSATED, compensation_summary
from dagwright.features.explain.reasons import missing_value_texts

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

STOPPED_REJECTION = "the run is being stopped"
_RUN_ENDED_REJECTION = "the run has ended"
COMPENSATING_REJECTION = "the run is compensating its calls, and accepts no other commands"
_NOT_STARTED_REJECTION = "the run has not started: answer {!r} first"
_MAX_COMPARED_IDS = 1_000
_MAX_CHECKED_SKIPPED_NODES = 200
"""Maximum number of skipped nodes whose conditions are evaluated again for notes: a run may have skipped 100,000."""
_MAX_MISSING_NOTES = 20
_MAX_MISSING_VALUES = 3


class RunCommand(Protocol):
    """A command of a person to a run."""

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:
        """Return why the command is rejected, or `None`. The method has no side effects."""

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command.

        Raises:
            ComputeBudgetExceeded: the compute budget of the current activation is used up; nothing has changed.
        """


class UnparsedCommand(ABC):
    """A command whose content is expensive to parse. `apply_command` parses it into a `RunCommand`, and `rejection_of`
    parses it with a separate compute budget."""

    @abstractmethod
    def parse_within(self, budget: ComputeBudget, scheduler: "RunScheduler", *, at: float) -> RunCommand | str:
        """Return the parsed command, or why it is rejected; the cost is charged to the budget."""

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:
        """Return why the command is rejected, or `None`. The method has no side effects."""
        command = self.parse_within(scheduler.features.feedback.requests.precheck_budget, scheduler, at=at)
        return command if isinstance(command, str) else None

    def parse(self, scheduler: "RunScheduler", *, at: float) -> RunCommand | str:
        """Return the parsed command, or why it is rejected."""
        return self.parse_within(scheduler.features.feedback.requests.check_budget, scheduler, at=at)


def apply_command(sent_command: RunCommand | UnparsedCommand, scheduler: "RunScheduler", *, at: float) -> str | None:
    """Apply a command, or return why it is rejected."""
    command = sent_command.parse(scheduler, at=at) if isinstance(sent_command, UnparsedCommand) else sent_command
    if isinstance(command, str):
        return command
    if (rejection := command.rejection_of(scheduler, at=at)) is not None:
        return rejection
    try:
        command.apply(scheduler, at=at)
    except ComputeBudgetExceeded:
        return TOO_MUCH_AT_ONCE
    return None


# Pause.


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the run: no task starts; running tasks finish."""

    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        if scheduler.is_stopped or scheduler.is_finished:
            return STOPPED_REJECTION if scheduler.is_stopped else _RUN_ENDED_REJECTION
        if scheduler.state.paused is None:
            return None
        paused = scheduler.state.paused
        by_text = f", {_pause_text(paused)}" if paused.by or paused.reason else ""
        return f"the run is paused already{by_text}"

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        scheduler.state.paused = ActivePause(at, self.actor.name, self.actor.reason)


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a paused run."""

    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        return "the run is not paused" if scheduler.state.paused is None else None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:  # noqa: ARG002 - a command
        """Apply the command."""
        scheduler.state.paused = None


# The whole run.


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the run: no task starts, and the workflow cancels the running tasks."""

    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        if scheduler.is_stopped:
            return f"{STOPPED_REJECTION} already"
        return _RUN_ENDED_REJECTION if scheduler.is_finished else None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        scheduler.cancel(at, reason=self.actor.reason)


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Change which calls need an approval. A task that waits for an approval starts if it no longer needs the
    approval."""

    policy: Policy
    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:  # noqa: ARG002 - a command
        """Return why the command is rejected, or `None`."""
        return STOPPED_REJECTION if scheduler.is_stopped else None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command."""
        scheduler.features.feedback.set_policy(self.policy, at, by=self.actor.name or "")


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Change the concurrency, the deadline or the budget of a run.

    Args:
        max_in_flight: maximum number of tasks in flight; `None` keeps the limit.
        deadline_s: seconds from the start of the run; infinite removes the deadline, `None` keeps the deadline.
        budget: limits that replace the current ones; null removes a limit.
    """

    max_in_flight: int | None = None
    deadline_s: float | None = None
    budget: Mapping[LimitKind, Limit | None] | None = None
    actor: Actor = UNKNOWN_ACTOR

    def rejection_of(self, scheduler: "RunScheduler", *, at: float) -> str | None:
        """Return why the command is rejected, or `None`."""
        if scheduler.is_stopped or scheduler.is_finished:
            return STOPPED_REJECTION if scheduler.is_stopped else _RUN_ENDED_REJECTION
        elapsed_s = at - scheduler.features.deadline.deadline.started_at
        if self.deadline_s is not None and self.deadline_s <= elapsed_s:
            return f"the run started {elapsed_s:.0f} s ago, and a deadline counts from the start: set a longer one"
        budget = scheduler.features.budget.budget
        if self.budget is not None and budget is None:
            return "the run has no budget to change; a run gets a budget only at its start"
        if self.budget is not None and budget is not None and budget.is_child:
            return "the run shares the budget of its parent run; change it there"
        return None

    def apply(self, scheduler: "RunScheduler", *, at: float) -> None:
        """Apply the command.

        Raises:
            ComputeBudgetExceeded: the compute budget of the current activation is used up; nothing has changed.
        """
        if self.max_in_flight is not None:
            scheduler.rebuild.set_max_in_flight(self.max_in_flight, at)
        if self.deadline_s is not None:
            scheduler.features.deadline.set_limit(self.deadline_s, by=self.actor.name)
        if self.budget is not None:
            scheduler.features.budget.set_limits(self.budget, at)


def current_notes(scheduler: "RunScheduler | None") -> list[dict[str, Any]]:
    """Return the notes about the current state of a run: paused, compensating, finishing early, missing values.

    The note about a pause omits the reason of the pause, because the note about the pause command contains this reason.
    """
    if scheduler is None:
        return []
    notes: list[dict[str, Any]] = []
    if scheduler.state.phase.forbids_compensation and scheduler.is_finished:
        summary, uncompensated_notes = compensation_summary(scheduler.state)
        notes.append({"code": NOTE_COMPENSATED, "node_id": None, "message": summary})
        notes += [note.to_json() for note in uncompensated_notes]
    elif scheduler.state.phase is Phase.COMPENSATING and not scheduler.state.options.is_child:
        message = "the run is compensating its calls; cancel it again to stop the compensation"
        notes.append({"code": NOTE_COMPENSATED, "node_id": None, "message": message})
    budget = scheduler.features.budget.budget
    if budget is not None and (text := budget.finish_reason) is not None:
        message = f"the budget is used up, so the run finishes with the results so far ({text})"
        notes.append({"code": "budget", "node_id": None, "message": message})
    if scheduler.state.paused is not None and not scheduler.is_finished:
        message = f"nothing new starts: {Actor(scheduler.state.paused.by).describe('paused')}"
        notes.append({"code": "paused", "node_id": None, "message": message})
    return [*notes, *islice(missing_value_notes(scheduler), _MAX_MISSING_NOTES)]


def missing_value_notes(scheduler: "RunScheduler") -> Iterator[dict[str, Any]]:
    """Yield a note for each skipped node whose condition reads a path that a result does not have."""
    skipped_nodes = (
        node for node, record in scheduler.state.visible_nodes() if record.status is NodeStatus.SKIPPED and node.when
    )
    for node in islice(skipped_nodes, _MAX_CHECKED_SKIPPED_NODES):
        missing_texts = [
            missing_text
            for missing_text in missing_value_texts(scheduler, node)
            if missing_text.endswith(" is missing")
        ]
        if missing_texts:
            message = (
                f"skipped, because its condition reads missing values: {'; '.join(missing_texts[:_MAX_MISSING_VALUES])}"
            )
            yield {"code": "missing_value", "node_id": node.id, "message": message}


def _pause_text(paused: ActivePause) -> str:
    return Actor(paused.by, paused.reason).describe("paused")


def rejection_of_node_commands(scheduler: "RunScheduler") -> str | None:
    """Return why commands to nodes are rejected, or `None`.

    Before the plan is approved, no record may change, because nodes would start.
    """
    if scheduler.is_stopped:
        return STOPPED_REJECTION
    plan_request = scheduler.features.feedback.requests.of_task("")
    return _NOT_STARTED_REJECTION.format(plan_request.id) if plan_request is not None else None


def ref_or_rejection(scheduler: "RunScheduler", task_id: str) -> TaskRef | str:
    """Return the node or item of an id, or why commands to it are rejected."""
    if (rejection := rejection_of_node_commands(scheduler)) is not None:
        return rejection
    ref = scheduler.state.find(task_id)
    if ref is None:
        ids = [node.id for node, _ in scheduler.state.visible_nodes()][:_MAX_COMPARED_IDS]
        hint = suggestion(task_id, ids)
        return f"the run has no node {task_id[:200]!r}{f'; {hint}' if hint else ''}"
    if scheduler.state.phase is Phase.COMPENSATING and scheduler.plan.nodes[ref.node].compensates is None:
        return COMPENSATING_REJECTION
    record = scheduler.state.record(ref)
    if record.status is NodeStatus.SUPERSEDED:
        newest_id = scheduler.state.newest_id(task_id)
        if newest_id == task_id:
            return f"{task_id!r} was superseded, and no node replaces it: {record.reason or 'it was superseded'}"
        return f"{task_id!r} was superseded by {newest_id!r}: send the command to {newest_id!r}"
    return ref


def limits_to_json(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return `max_parallel` and `deadline` (RFC 3339 time, null means no deadline). If the run has a budget, also
    return `budget`."""
    encoded = {
        "max_parallel": scheduler.state.max_in_flight,
        "deadline": format_time(scheduler.features.deadline.deadline.at),
    }
    return (
        encoded
        if scheduler.features.budget.budget is None
        else {**encoded, "budget": options_to_json(scheduler.features.budget.budget)}
    )


def policy_to_json(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return `policy` in its JSON form."""
    return {"policy": scheduler.state.policy.to_json()}


MAX_COMMAND_BYTES = 256 * 1024
"""Maximum size of arguments, results or nodes in a command; this data becomes part of the history and the state of the
run.
"""


@dataclass(frozen=True, slots=True)
class CommandMessage:
    """A decoded command.

    Args:
        content: JSON value of the message.
        node_id: node or item of the command, with the path to its sub-plan; `None` for a command to the run.
        confirmation: confirmation for the sender.
        note: text of the note about the applied command.
        is_broadcast: whether the same message is sent to all sub-plans.
    """

    content: Mapping[str, Any]
    node_id: str | None
    command: RunCommand | UnparsedCommand
    confirmation: str
    note: str | None = None
    is_broadcast: bool = False
