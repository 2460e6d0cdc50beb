"""Progress of a run as the protocol tells it: a notification for each node that begins and each that ends. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from dagwright.client.following import RunMoment
from dagwright.core.model.states import NodeStatus
from dagwright.history.reader import TaskState, states_of
from dagwright.history.run_reader import RunView

_SILENT = (NodeStatus.PENDING, NodeStatus.READY)
_BEGUN = 0.5
"""What a node counts that has begun, of the one that it counts when it has ended: progress only ever goes up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One notification.

    Args:
        done: nodes and items that have ended, and half of each that has begun.
        total: those that are known; more may come.
        message: which node is in which state now.
    """

    done: float
    total: float
    message: str


@dataclass(slots=True)
class ProgressOfRun:
    """What of a run was told already."""

    told: dict[str, float] = field(default_factory=dict)
    """Id of a node or item -> what it counts."""
    last: float = -1.0

    def news(self, moment: RunMoment) -> Iterator[Progress]:
        """Yields what is new, one notification for each node or item, each with more progress than the one before."""
        states = states_of(moment.view.scheduler)
        total = _total_of(moment.view, states)
        for task in moment.changed:
            state = states.get(task)
            if state is None or state.status in _SILENT:
                continue
            self.told[task] = max(self.told.get(task, 0.0), 1.0 if state.status.is_final else _BEGUN)
            done = sum(self.told.values())
            # Another attempt or reason is no progress, which may not be told twice.
            if done > self.last:
                self.last = done
                yield Progress(done, max(total, done), _words(task, state))


def _total_of(view: RunView, states: dict[str, TaskState]) -> float:
    nodes = sum(1 for _ in view.scheduler.shown()) if view.scheduler is not None else 0
    return float(nodes + sum(task.endswith("]") for task in states))


def _words(task: str, state: TaskState) -> str:
    reason = f": {state.reason}" if state.reason and not state.status.is_final else ""
    return f"{task} {state.status.value}{reason}"
