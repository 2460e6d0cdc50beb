"""The deadline of a run, and its end when the deadline has passed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.scheduler.scheduler import Scheduler

_EARLY_S = 0.001
"""A timer may fire so much before the time that was worked out for it, as parts of seconds are rounded."""
_NAMED = 3
"""Nodes of each kind that are named; the others are counted."""
_REASON_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Deadline:
    """How long a run may take, from the start of its first execution.

    Args:
        began_at: that start, in seconds since the epoch.
        limit_s: seconds from there; `None` is as long as it takes.
        whose: whom the error of a run over it names.
        what: which limit the error names.
    """

    began_at: float = 0.0
    limit_s: float | None = None
    whose: str = "the run"
    what: str = "its deadline"

    @property
    def at(self) -> float | None:
        """Until when the run may go on, in seconds since the epoch."""
        return None if self.limit_s is None else self.began_at + self.limit_s

    @property
    def error(self) -> NodeError:
        """Why a run has failed that took over it."""
        return NodeError("deadline_exceeded", f"{self.whose} took over {self.what}")

    def is_due(self, at: float) -> bool:
        """Tells whether the run may go on no longer."""
        return self.at is not None and at >= self.at - _EARLY_S

    def set_by(self, name: str | None, *, limit_s: float) -> "Deadline":
        """Returns the deadline that somebody gives the run instead.

        Args:
            name: who.
            limit_s: infinite is none any more.
        """
        what = f"its deadline of {limit_s:g} s, set by {name or 'somebody who gave no name'}"
        return replace(self, limit_s=None if math.isinf(limit_s) else limit_s, what=what)


class RunDeadline:
    """Limits how long a run may take; the driver keeps the timer and calls `expire`."""

    def __init__(self, scheduler: Scheduler[Any]) -> None:
        self._scheduler = scheduler
        self.deadline = Deadline()

    def set(self, limit_s: float, *, by: str | None) -> None:
        """Change how long the run may take, from its start; infinite means no limit."""
        self._scheduler.state.limits_changed = True
        self.deadline = self.deadline.set_by(by, limit_s=limit_s)

    def lift(self) -> None:
        """Remove the limit: a run that compensates for its calls has none."""
        self._scheduler.state.limits_changed = True
        self.deadline = replace(self.deadline, limit_s=None)

    def expire(self, at: float) -> None:
        """End the run as failed if its deadline has passed."""
        if not self.deadline.is_due(at):
            return
        state = self._scheduler.state
        report = held_up_words(state.plan, state.records, is_paused=state.paused is not None)
        error = self.deadline.error
        self._scheduler.abort(error, at)
        if state.error is error and report:
            state.error = replace(error, message=f"{error.message}; {report}")
        self._scheduler.propagate(at)


def held_up_words(plan: CompiledPlan, records: Sequence[Record], *, is_paused: bool) -> str:
    """Returns what runs and what waits, such as `still running: a, b; waiting: c (waits for ann: Go on?)`.

    Empty if nothing does.
    """
    running: list[str] = []
    waiting: list[str] = []
    for name, record in _tasks(plan, records):
        if record.status is NodeStatus.RUNNING:
            running.append(name)
        elif record.status is NodeStatus.WAITING:
            reason = " ".join((record.reason or "").split())[:_REASON_CHARACTERS]
            waiting.append(f"{name} ({reason})" if reason else name)
    parts = ["it was paused"] if is_paused else []
    parts += [
        f"{what}: {_listed(names)}" for what, names in (("still running", running), ("waiting", waiting)) if names
    ]
    return "; ".join(parts)


def _tasks(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[str, Record]]:
    """Yields nodes and items as they are shown; a map does not run itself, but its items."""
    for node, record in zip(plan.nodes[: plan.written_count], records, strict=False):
        if node.for_each is None:
            yield node.id, record
        for item in record.items:
            yield f"{node.id}[{item.key}]", item.record


def _listed(names: Sequence[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"{left:,} more"] if left > 0 else [])])
