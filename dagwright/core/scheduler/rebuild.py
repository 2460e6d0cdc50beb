"""Changes to what a run knows of its nodes that people make: together or not at all, and the run goes on from them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.model.actor import By
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.lineage import SeenBook
from dagwright.core.model.states import NodeStatus, Phase, Record, RunStatus
from dagwright.core.model.usage import UsageBook
from dagwright.core.model.worker_results import LEFT_BEHIND
from dagwright.core.scheduler import map_batches
from dagwright.core.scheduler.extension import Extension, extended
from dagwright.core.scheduler.extension_checks import refusal_of_extension
from dagwright.core.scheduler.item_book import Place
from dagwright.core.scheduler.readiness import Readiness
from dagwright.core.scheduler.run_end import status_of
from dagwright.core.scheduler.run_state import ADDED, WORK_OF_REMAKING
from dagwright.features.compensation.compensation import TAKEN_BACK, left_standing, undoing_of, why_not_completed
from dagwright.features.plan_extension.extender import MOST_STEPS, Pursuit, next_step

_DERIVED = (NodeStatus.BLOCKED, NodeStatus.SKIPPED, NodeStatus.CANCELLED)
"""What a node can end as because of another one."""
PLANNED_AGAIN = "the plan was made again, and goes on without it"
"""Reason of a node whose place nothing takes."""


class Remaking(Readiness):
    """The part of a scheduler that goes on from records which it has not made itself, and in a plan that grows."""

    pursuit: Pursuit | None = None
    """What the run adds nodes for, if it does."""

    def is_own(self, node_id: str) -> bool:
        """Tells whether an id is one of those that the run gives to what it adds by itself."""
        return self.pursuit is not None and self.pursuit.is_own(node_id)

    def resume(self, records: Sequence[Record], *, error: NodeError | None, cancelled: bool, phase: Phase) -> None:
        """Goes on, instead of `begin`, from what another scheduler of the same plan knew between two events.

        Everything else follows from the records. Tasks that were running still are: the driver knows of them.

        Args:
            records: of the nodes, in plan order.
            error, cancelled, phase: what the other one knew of the whole run.
        """
        self.records = list(records)
        self.error, self.cancelled, self.phase = error, cancelled, phase
        self._unfinished = sum(not record.status.is_final for record in self.records)
        for number, (node, record) in enumerate(zip(self.plan.nodes, self.records, strict=True)):
            if record.status is NodeStatus.PENDING:
                for needed in node.dependencies:
                    if self.records[needed].status.is_final:
                        self._waits[number].count(self.plan.nodes[needed], self.records[needed])
            if record.items:
                self._items.claim(number, record)
            if record.status is NodeStatus.RUNNING and node.for_each is not None:
                # The task that joins results has not begun to count until all others have ended.
                waiting = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)
                self._items.open[number] = sum(item.record.status in waiting for item in record.items)
            self._resume_tasks(number, record)

    def grow(self, extension: Extension) -> None:
        """Takes an extension of the plan that was made before, ahead of `resume`.

        Raises:
            ValueError: it was made for another plan.
        """
        self.plan = extended(self.plan, extension)
        self.changes.extensions.append(extension)
        self._derive()

    def catch_up(self, at: float) -> None:
        """Moves on what hangs on nothing that is open, after a `resume` from nothing but the ends of nodes."""
        self._decide_all(at)
        self.settle(at)

    def _decide_all(self, at: float) -> None:
        for number, record in enumerate(self.records):
            if record.status is NodeStatus.PENDING and not self.plan.nodes[number].dependencies:
                # As in `begin`, whatever its join.
                self._become_ready(number, at)
            elif record.status is NodeStatus.PENDING:
                self._decide(number, at)
        self._tell_dependents(at)

    def _resume_tasks(self, number: int, record: Record) -> None:
        """Gives the tasks of a node their places in a new queue."""
        if record.status is NodeStatus.RUNNING and self.plan.nodes[number].for_each is not None:
            self._widen(number)
            for index, item in enumerate(record.items):
                self._resume_task(number, index, item.record)
        else:
            self._resume_task(number, -1, record)

    def _resume_task(self, number: int, item: int, record: Record) -> None:
        if record.status is NodeStatus.READY and not self._membership.is_told(number, self.records):
            self._queue.push((self.plan.nodes[number].priority, number, item))
        elif record.status is NodeStatus.RUNNING:
            self._queue.occupy(number)

    def begin_anew(self, place: Place, record: Record, *, at: float) -> None:
        """Puts a new record in the place of another one, and closes what that asked; `remake` has to follow."""
        number, item = place
        if self._record(number, item).status is NodeStatus.WAITING:
            self._close_request(self.id_of((number, item)), at)
        if item < 0:
            self.records[number] = record
        else:
            self.records[number].items[item].record = record

    def spend_remaking(self, at: float) -> None:
        """Takes what `remake` costs off the work of this moment.

        Many may change the run at one moment, and the nodes that move on then need some of its work as well.

        Raises:
            TooMuchWork: that much is not left, or less than half of what there was.
        """
        self._budget.start(at)
        self._budget.leave_half()
        self._budget.spend(WORK_OF_REMAKING * (len(self.records) + self._edges()))

    def remake(self, *, at: float, plan: CompiledPlan | None = None) -> None:
        """Goes on from the records as somebody changed them, or with a plan that has grown; `settle` has to follow.

        Complexity: O(V + E), some microseconds for each.
        """
        self.plan = plan or self.plan
        self._derive()
        self.resume(self.records, error=self.error, cancelled=self.cancelled, phase=self.phase)
        for number, record in enumerate(self.records):
            if record.status is NodeStatus.RUNNING and record.items and not map_batches.is_cut(record):
                self._remake_items(number, at)
        self._decide_all(at)

    def set_max_in_flight(self, count: int, at: float) -> None:
        """Changes how many tasks run at once: those in flight run on, and large maps get their part of the new limit.

        Complexity: O(V), a microsecond or two for each.

        Raises:
            TooMuchWork: too much was done at this moment; nothing has changed.
        """
        self._budget.start(at)
        self._budget.spend(WORK_OF_REMAKING * len(self.records))
        self.allow_in_flight(count)
        for number, record in enumerate(self.records):
            self._resume_tasks(number, record)

    def grow_by_hand(self, extension: Extension, by: By, *, at: float) -> None:
        """Adds nodes that somebody gives to the plan.

        Raises:
            TooMuchWork: nothing was changed.
        """
        self.spend_remaking(at)
        self._grow(extension, by, at=at, request=None)
        self.settle(at)

    def grow_early(self, extension: Extension, *, at: float) -> None:
        """Adds nodes to the plan that are there before it is whole.

        Raises:
            TooMuchWork: nothing was changed.
        """
        self.spend_remaking(at)
        Remade(self, at).grow(extension)
        self.settle(at)

    def _grow(self, extension: Extension, by: By, *, at: float, request: str | None) -> None:
        for node in extension.nodes:
            if node.supersedes is not None:
                # Who gives a node other arguments has decided that it may run.
                self.hand_of(node.id).approved = True
        Remade(self, at).grow(extension)
        for node in extension.nodes:
            what, more = (ADDED, {}) if node.supersedes is None else ("retry_node", _changed(node.supersedes))
            self.hand_of(node.id).steps.append(by.step(what, at, request=request, **more))

    def settle(self, at: float) -> None:
        """Lets everything move on until nothing moves, with the nodes that the run adds to that by itself."""
        super().settle(at)
        if self.pursuit is not None and self.phase is Phase.GOING:
            self._pursue(self.pursuit, at)
        if self.takes_back and self.is_finished:
            self._end_all_or_nothing(at)

    def _end_all_or_nothing(self, at: float) -> None:
        """Begins to take back what the run did, if it has come to its end otherwise than completed."""
        if self.phase.is_given_up:
            return
        if self.phase is Phase.GOING:
            if status_of(self.plan, self.records) is RunStatus.COMPLETED:
                return
            self.error = why_not_completed(self)
        self._begin_undoing(at)

    def begin_to_take_back(self, at: float) -> None:
        """Takes back what the run did from whose end this one goes on; it has the usage of that no more."""
        if self.phase.is_given_up:
            return
        self.error = self.error or NodeError(TAKEN_BACK, "the run above takes back what this one did")
        self.changes.usage, self.changes.seen = UsageBook(), SeenBook()
        self._begin_undoing(at)

    def status(self) -> RunStatus:
        """Returns the state of the run (docs/internals/states.md)."""
        if self.changes.takes_back and self.is_finished:
            return RunStatus.FAILED if left_standing(self) else RunStatus.COMPLETED
        status = super().status()
        is_short = status is RunStatus.COMPLETED and self.shortfall() is not None
        return RunStatus.COMPLETED_WITH_FAILURES if is_short else status

    def shortfall(self) -> NodeError | None:
        """Returns why a run that has ended with something has not reached all that it is for."""
        return self.pursuit.shortfall(self) if self.pursuit is not None and self.is_finished else None

    def _begin_undoing(self, at: float) -> None:
        """Grows by the nodes that take back what the run did, all of which has ended."""
        if self.is_stopped:
            # Whoever stopped the run wants it to end, paused or not.
            self.paused = None
        self.phase = Phase.UNDOING
        extension = undoing_of(self)
        if extension is None or refusal_of_extension(self, extension) is not None:
            return
        self.changes.has_new_limits = True
        self.changes.deadline = replace(self.deadline, limit_s=None)
        self._charge_growth(at)
        Remade(self, at).grow(extension)
        super().settle(at)

    def _pursue(self, pursuit: Pursuit, at: float) -> None:
        for _ in range(MOST_STEPS):
            step = None if self.is_stopped else next_step(pursuit, self)
            if step is None:
                return
            if isinstance(step, NodeError):
                self.abort(step, at)
                return
            self._charge_growth(at)
            Remade(self, at).grow(step)
            super().settle(at)
        self.abort(NodeError("Bug", f"the run grew {MOST_STEPS} times at one moment, and wants to grow again"), at)

    def _charge_growth(self, at: float) -> None:
        # What follows from records alone is never refused for want of time: nobody would ask for it again.
        self._budget.start(at)
        self._budget.charge(WORK_OF_REMAKING * (len(self.records) + self._edges()))

    def _remake_items(self, number: int, at: float) -> None:
        """Starts the items of a node that are to begin again; it ends if there are none, and none was open."""
        again = [
            index for index, item in enumerate(self.records[number].items) if item.record.status is NodeStatus.PENDING
        ]
        self._items.open[number] += len(again)
        for index in again:
            self._start_item(number, index, True, at)
        if not self._items.open[number] and self.records[number].status is NodeStatus.RUNNING:
            self._end_items(number, at)


def _changed(node_id: str) -> dict[str, Any]:
    """Returns what the lineage of a node tells that takes the place of one and has other arguments."""
    return {"arguments": True, "supersedes": node_id}


class Remade:
    """Changes to the records of a scheduler that are made together, or not at all."""

    def __init__(self, scheduler: Remaking, at: float) -> None:
        self._scheduler = scheduler
        self._at = at
        self._records: dict[Place, Record] = {}
        self._tried: list[str] = []

    def put(self, place: Place, record: Record) -> None:
        """Puts a record in the place of another."""
        self._records[place] = record
        self._open_node_of(place)

    def begin_again(self, place: Place) -> None:
        """Starts a node or item once more, as its next call."""
        self.put(place, Record())
        self._tried.append(self._scheduler.id_of(place))

    def reopen(self, number: int) -> None:
        """Lets everything that ended because of a node be decided again."""
        waiting = [number]
        while waiting:
            for dependent in self._scheduler.dependents_of(waiting.pop()):
                record = self._scheduler.records[dependent]
                is_derived = record.status in _DERIVED and not record.attempts and not record.items
                if record.status is NodeStatus.CANCELLED:
                    is_derived = is_derived and bool(record.blocked_by)
                if is_derived and (dependent, -1) not in self._records:
                    self._records[dependent, -1] = Record()
                    waiting.append(dependent)

    def go_on(self) -> None:
        """Makes the changes, and lets the run go on from them.

        Raises:
            TooMuchWork: nothing was changed.
        """
        self._scheduler.spend_remaking(self._at)
        self._make(None)
        self._scheduler.settle(self._at)

    def grow(self, extension: Extension) -> None:
        """Adds nodes to the plan too; those that supersede others take over what waits for them.

        What it costs has been spent.
        """
        for node_id in extension.given_up:
            number = self._scheduler.number_of(node_id)
            assert number is not None
            is_worker = self._scheduler.plan.nodes[number].is_worker
            self._supersede(number, reason=LEFT_BEHIND if is_worker else PLANNED_AGAIN)
        for node in extension.nodes:
            if node.supersedes is not None:
                number = self._scheduler.number_of(node.supersedes)
                assert number is not None
                self.reopen(number)
                self._supersede(number, reason=None)
        self._make(extension)

    def _supersede(self, number: int, *, reason: str | None) -> None:
        """Leaves a node as it ended, for another one to take its place, or because the plan goes on without it."""
        ended = replace(self._scheduler.records[number], status=NodeStatus.SUPERSEDED, reason=reason)
        ended.ended_at = ended.ended_at or self._at
        self._records[number, -1] = ended

    def _make(self, extension: Extension | None) -> None:
        scheduler = self._scheduler
        for task_id in self._tried:
            hand = scheduler.hand_of(task_id)
            record = scheduler.record_of(task_id)
            hand.tries, hand.attempts = hand.tries + 1, record.attempts if record else 0
        for place, record in self._records.items():
            scheduler.begin_anew(place, record, at=self._at)
        plan = None
        if extension is not None:
            plan = extended(scheduler.plan, extension)
            base = extension.base
            scheduler.records[base:base] = [Record() for _ in extension.nodes]
            scheduler.requests.move_early(base, len(extension.nodes))
            scheduler.changes.extensions.append(extension)
        scheduler.remake(at=self._at, plan=plan)

    def _open_node_of(self, place: Place) -> None:
        """Has a node run again whose item is done again."""
        number, item = place
        record = self._scheduler.records[number]
        if item >= 0 and record.status.is_final and (number, -1) not in self._records:
            self._records[number, -1] = replace(
                record, status=NodeStatus.RUNNING, result=None, error=None, reason=None, ended_at=None
            )
