"""Fork reuse: a fork takes results and idempotency keys of the other run where they are those that it would have."""

from collections.abc import Collection
from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.resolution import MissingData
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.model.tasks import Task
from dagwright.core.scheduler.component import SchedulerComponent
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.fork_reuse.fingerprint import content_of, content_of_map
from dagwright.features.fork_reuse.reuse import KeptBook, take_kept


class ForkReuse(SchedulerComponent):
    """Reuses what another run did."""

    def __init__(self, scheduler: Scheduler[Any]) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self.book: KeptBook | None = None
        """What may be reused, if the run is a fork."""

    def use(self, book: KeptBook | None) -> None:
        """Reuse what stands in a book from now on."""
        self.book = book
        self._scheduler.update_hooks()

    def needed_hooks(self) -> Collection[str]:
        """Return no hook if the run is not a fork."""
        return self.hooks if self.book is not None else ()

    def on_rebuild(self, base: int, added: int) -> None:  # noqa: ARG002 - a hook
        """Forget fingerprints of results that may have changed."""
        if self.book is not None:
            self.book.digests.clear()

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:
        """Complete a node or item with the result of the other run, if it is the result that it would have here."""
        state = self._state
        node = state.plan.nodes[ref.node]
        kept = self.book.tasks.get(state.id_of(ref)) if self.book is not None else None
        if kept is None or not kept.has_result:
            return False
        # The condition of a node in a region is not evaluated here, and the nodes of a large region are not known.
        if node.kind == "reported" and (node.when is not None or state.regions.is_inside_offloaded(ref.node)):
            return False
        is_map = node.for_each is not None and ref.item is None
        try:
            if is_map:
                content = content_of_map(state, ref.node, book=self.book)
            else:
                content = content_of(state, ref, book=self.book)
        except (MissingData, TooMuchWork):
            return False
        is_reusable = node.kind != "lookup" or state.options.resolver.is_reusable(node, kept.result)
        if content != kept.content or not is_reusable:
            return False
        take_kept(state.record(ref), kept)
        self._scheduler.propagation.end(ref, NodeStatus.COMPLETED, at)
        return True

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Give a task the idempotency key that it had in the other run, and its child run the results of that there."""
        kept = self.book.key_of(task.id, task.node.id) if self.book is not None else None
        if kept is None:
            return False
        task.below = kept.below
        is_run = task.is_run or task.chunk is not None
        if kept.scope is None or (is_run and kept.content):
            return False
        is_same = not kept.content or content_of(self._state, task.ref, book=self.book) == kept.content
        task.scope = self._state.record(task.ref).scope = kept.scope if is_same else None
        return False
