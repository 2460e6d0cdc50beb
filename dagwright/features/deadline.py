"""Deadline of a run: the run fails when the deadline has passed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeError, NodeStatus, Record

if TYPE_CHECKING:
    from dagwright.core.scheduler.scheduler import Scheduler

_EARLY_S = 0.001
"""Seconds by which a timer may fire early, because its time is rounded."""
_MAX_TASKS = 3
"""Maximum number of running nodes, and of waiting nodes, in a message. The remaining nodes are only counted."""
_MAX_REASON_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Deadline:
    """Time limit of a run, counted from the start of its first execution.

    Args:
        started_at: start of the first execution, in seconds since the epoch.
        limit_s: `None` means no limit.
        subject: subject of the error message, such as "the run".
        name: name of the limit in the error message.
    """

    started_at: float = 0.0
    limit_s: float | None = None
    subject: str = "the run"
    name: str = "its deadline"

    @property
    def at(self) -> float | None:
        """Time at which the run must end, in seconds since the epoch; `None` if the run has no limit."""
        return None if self.limit_s is None else self.started_at + self.limit_s

    @property
    def error(self) -> NodeError:
        """Error of a run that has exceeded the limit."""
        return NodeError("deadline_exceeded", f"{self.subject} exceeded {self.name}")

    def is_due(self, at: float) -> bool:
        """Return whether the run has exceeded the limit."""
        return self.at is not None and at >= self.at - _EARLY_S

    def with_limit(self, user: str | None, *, limit_s: float) -> "Deadline":
        """Return a copy with another limit.

        Args:
            user: user who sets the limit.
            limit_s: infinite removes the limit.
        """
        limit_name = f"its deadline of {limit_s:g} s, set by {user or 'an unnamed user'}"
        return replace(self, limit_s=None if math.isinf(limit_s) else limit_s, name=limit_name)


class RunDeadline:
    """Time limit of a run. The workflow has the timer; when the timer fires, `expire` is called."""

    def __init__(self, scheduler: "Scheduler[Any]") -> None:
        self._scheduler = scheduler
        self.deadline = Deadline()

    def set_limit(self, limit_s: float, *, by: str | None) -> None:
        """Set the time limit of the run, counted from its start; infinite means no limit."""
        self._scheduler.state.limits_changed = True
        self.deadline = self.deadline.with_limit(by, limit_s=limit_s)

    def lift(self) -> None:
        """Remove the limit, because a run that compensates its calls has no limit."""
        self._scheduler.state.limits_changed = True
        self.deadline = replace(self.deadline, limit_s=None)

    def expire(self, at: float) -> None:
        """End the run as failed if its deadline has passed."""
        if not self.deadline.is_due(at):
            return
        state = self._scheduler.state
        details = timeout_message(state.plan, state.records, is_paused=state.paused is not None)
        error = self.deadline.error
        self._scheduler.abort(error, at)
        if state.error is error and details:
            state.error = replace(error, message=f"{error.message}; {details}")
        self._scheduler.propagate(at)


def timeout_message(plan: CompiledPlan, records: Sequence[Record], *, is_paused: bool) -> str:
    """Return a text such as `still running: a, b; waiting: c (waits for ann: Go on?)`.

    The text is empty if no node is running or waiting.
    """
    running_ids: list[str] = []
    waiting_texts: list[str] = []
    for task_id, record in _tasks(plan, records):
        if record.status is NodeStatus.RUNNING:
            running_ids.append(task_id)
        elif record.status is NodeStatus.WAITING:
            reason = " ".join((record.reason or "").split())[:_MAX_REASON_CHARACTERS]
            waiting_texts.append(f"{task_id} ({reason})" if reason else task_id)
    parts = ["it was paused"] if is_paused else []
    labelled_texts = (("still running", running_ids), ("waiting", waiting_texts))
    parts += [f"{label}: {_join_first(texts)}" for label, texts in labelled_texts if texts]
    return "; ".join(parts)


def _tasks(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[str, Record]]:
    """Yield the ids and records of all nodes and items that users see."""
    for node, record in zip(plan.nodes[: plan.visible_count], records, strict=False):
        if node.for_each is None:
            yield node.id, record
        for item in record.items:
            yield f"{node.id}[{item.key}]", item.record


def _join_first(texts: Sequence[str]) -> str:
    omitted_count = len(texts) - _MAX_TASKS
    return ", ".join([*texts[:_MAX_TASKS], *([f"{omitted_count:,} more"] if omitted_count > 0 else [])])
