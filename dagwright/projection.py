"""From the history of a run to the states of its nodes, with no worker and no query.

The pure scheduler is fed the run's input and its events, in the order in which the workflow took them: events
come to a workflow in batches, one for each workflow task, signals first. A task counts as running from the event
that scheduled it; how its attempts fare is in no event, and `describe` knows it, which is the feed's part. When
the run has ended, what it wrote of itself stands above what was worked out here.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import (
    ActivityTaskFailedEventAttributes,
    ActivityTaskTimedOutEventAttributes,
    HistoryEvent,
)
from temporalio.converter import DataConverter
from temporalio.exceptions import ActivityError, RetryState

from dagwright.contracts import limits, wire
from dagwright.contracts.carries import RunCarry, state_from_text
from dagwright.contracts.chunk_inputs import ChunkInput
from dagwright.contracts.chunk_runs import begin_chunk, with_items
from dagwright.contracts.marks import HistoryUse, Marks
from dagwright.contracts.messages import (
    MessageInvalid,
    RunInput,
    SubPlanEnd,
    cancel_request_from_json,
    pages_of,
    plan_of_pages,
    read_message,
    run_input_from_json,
    sub_plan_end_from_json,
)
from dagwright.contracts.outcomes import (
    found_ends,
    needs_loading,
    next_call,
    take_failure,
    take_loading_failure,
    take_result,
    take_sub_plan_end,
)
from dagwright.contracts.packing import unpack
from dagwright.plan.carry import restore, tasks_in_flight
from dagwright.plan.compiled import CompiledPlan, nodes_from_json, plan_from_json
from dagwright.plan.errors import NodeError
from dagwright.plan.references import Lookup
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import NodeStatus
from dagwright.plan.unfilled import unfilled_from_json
from dagwright.sub_plan_events import sub_plan_end_of
from dagwright.written import all_records, closing_document, take_written

_Failed = ActivityTaskFailedEventAttributes | ActivityTaskTimedOutEventAttributes

_COMPILE_PLAN, _LOAD_PLAN, _RESOLVE_LOOKUPS = (
    f"{wire.OWN_ID_MARK}{name}"
    for name in (wire.ACTIVITY_COMPILE_PLAN, wire.ACTIVITY_LOAD_PLAN, wire.ACTIVITY_RESOLVE_LOOKUPS)
)
_PREPARING = {name.removeprefix(wire.OWN_ID_MARK): name for name in (_COMPILE_PLAN, _LOAD_PLAN, _RESOLVE_LOOKUPS)}
"""What a run does before its first node: type of the activity -> what no node can be called."""

_CLOSED_AS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: None,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "failed",
}
"""How each closing event reads if it brings no document with it."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a workflow task failed: the server's name of the cause, and all that is known in words."""

    cause: str
    message: str


class Projection:
    """What the events so far say of a run.

    Args:
        workflow_id: id of the run, for the ids of its sub-plans.
        converter: decodes failures.
    """

    def __init__(self, workflow_id: str, converter: DataConverter) -> None:
        self._workflow_id = workflow_id
        self._converter = converter
        self.run_input: RunInput | None = None
        self.scheduler: Scheduler | None = None
        self.title: str | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.closed_as: str | None = None
        self.document: dict[str, Any] | None = None
        """The document that the run itself wrote at its end."""
        self.error: NodeError | None = None
        self.notes: list[dict[str, Any]] = []
        self.task_failure: TaskFailure | None = None
        """Why the last workflow task failed; `None` once one has been done."""
        self.continued_as: str | None = None
        """Run id of the execution in which the run goes on."""
        self.last_event = 0
        """Id of the last event that was taken."""
        self.changes = 0
        """Rises with every batch that was taken."""
        self._plan: CompiledPlan | None = None
        self._page_count = 0
        """How many pages the plan travels in."""
        self._pages: dict[int, Any] = {}
        """Its pages, under the events that asked for them, in plan order."""
        self._state: dict[str, str] = {}
        """Pieces of the state that was handed on, under the ids of the activities that fetch them."""
        self._chunk: ChunkInput | None = None
        """The chunk of a large map that the run does."""
        self._early_ends: list[SubPlanEnd] = []
        """Reports of sub-plans that came before that state was there."""
        self._lookups: Mapping[Lookup, Any] | None = None
        self._cancel: str | None = None
        self._is_cancelled = False
        self._batch: list[HistoryEvent] = []
        self._task_starts: dict[int, tuple[float, HistoryUse]] = {}
        """Workflow tasks that have begun: event id -> when, and what had been used of the history."""
        self._now = 0.0
        """When the workflow task began whose commands come next; it is the workflow's own clock."""
        self._use = HistoryUse(0, 0)
        self._marks: Marks | None = None
        self._signals = 0
        self._scheduled: dict[int, str] = {}
        self._deadline_timer: str | None = None
        self._grace_timer: str | None = None
        self._drain_timer: str | None = None
        self._tasks: dict[str, str] = {}
        self._loads: dict[str, str] = {}
        """Activity id -> the task whose arguments it loads."""
        self._children: dict[str, str] = {}

    @property
    def is_closed(self) -> bool:
        """Tells whether the run has ended."""
        return self.ended_at is not None

    def task_of(self, activity: str) -> str | None:
        """Returns the id of the task that an activity id stands for."""
        return self._tasks.get(activity) or self._loads.get(activity)

    def sub_plan_of(self, workflow_id: str) -> str | None:
        """Returns the id of the task whose sub-plan runs under a workflow id."""
        return self._children.get(workflow_id)

    async def take(self, event: HistoryEvent) -> None:
        """Takes the next event of the history."""
        self.last_event = event.event_id
        at = event.event_time.ToNanoseconds() / 1e9
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                self.started_at = at
                self._read_input(event)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                size = event.workflow_task_started_event_attributes.history_size_bytes
                self._task_starts[event.event_id] = at, HistoryUse(event.event_id, size, self._signals)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                self.task_failure = _task_failure(event)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                self.task_failure = None
                await self._take_batch(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                going_on = event.workflow_execution_continued_as_new_event_attributes
                self.continued_as = going_on.new_execution_run_id
            case closing if closing in _CLOSED_AS:
                await self._close(event, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                self._take_scheduled(event)
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                initiated = event.start_child_workflow_execution_initiated_event_attributes
                self._start(self._children, initiated.workflow_id)
            case EventType.EVENT_TYPE_TIMER_STARTED:
                self._note_timer(event)
            case _:
                self._signals += event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
                self._batch.append(event)

    def _take_scheduled(self, event: HistoryEvent) -> None:
        scheduled = event.activity_task_scheduled_event_attributes
        self._scheduled[event.event_id] = scheduled.activity_id
        preparing = _PREPARING.get(scheduled.activity_type.name)
        if preparing is not None and self.scheduler is None:
            # No node has been started yet; later a node may have any of these names.
            self._scheduled[event.event_id] = preparing
            if preparing == _LOAD_PLAN:
                self._pages[event.event_id] = None
        elif not scheduled.activity_id.startswith(wire.OWN_ID_MARK):
            self._start(self._tasks, scheduled.activity_id)
        elif scheduled.activity_id.startswith(wire.ID_LOAD_VALUES):
            self._start(self._loads, scheduled.activity_id)

    # The beginning.

    def _read_input(self, event: HistoryEvent) -> None:
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        try:
            self.run_input = run_input_from_json(_read_argument(payloads))
        except MessageInvalid as error:
            self.error = NodeError(error.code, str(error))
            return
        self._page_count = len(self.run_input.pages)
        self._chunk = self.run_input.chunk
        if self.run_input.compiled is not None:
            self._set_plan(self.run_input.compiled)
        if self.run_input.carry is not None:
            self.notes = [dict(note) for note in self.run_input.carry.notes]

    def _set_plan(self, plan: CompiledPlan) -> None:
        self._plan, self.title = plan, plan.title
        if not self._missing_lookups():
            self._lookups = self._lookups_given
        carry = self._carry
        if carry is not None and carry.state and self._lookups is not None:
            self._go_on(carry, carry.state)

    def _take_compiled(self, compiled: Any) -> None:
        """Takes what the activity made of a plan as it was written."""
        self._page_count = len(pages_of(compiled))
        if not self._page_count:
            self._set_plan(plan_from_json(compiled))

    def _take_page(self, scheduled_id: int, page: Any) -> None:
        self._pages[scheduled_id] = page
        if len(self._pages) < self._page_count or None in self._pages.values():
            return
        try:
            head, *pages = map(unpack, self._pages.values())
            plan = plan_of_pages(head, [node for page in pages for node in nodes_from_json(page)])
        except ValueError:
            # The run is refused for it, and says why.
            return
        self._pages = {}
        self._set_plan(plan)

    @property
    def _carry(self) -> RunCarry | None:
        return self.run_input.carry if self.run_input is not None else None

    def _take_state(self, name: str, piece: str) -> None:
        """Takes a piece of the state that the execution before handed on."""
        carry = self._carry
        self._state[name] = piece
        if carry is not None and len(self._state) == len(carry.refs):
            names = [f"{wire.ID_GET_STATE} {number}" for number in range(1, len(carry.refs) + 1)]
            self._go_on(carry, "".join(self._state[name] for name in names))
            self._state = {}

    @property
    def _lookups_given(self) -> Mapping[Lookup, Any]:
        return self.run_input.lookups if self.run_input is not None else {}

    def _missing_lookups(self) -> list[Lookup]:
        wanted = self._plan.lookups if self._plan is not None else ()
        return [lookup for lookup in wanted if lookup not in self._lookups_given]

    def _begin(self, at: float) -> None:
        self.scheduler = self._new_scheduler()
        self.scheduler.begin(at)
        if self._chunk is not None:
            begin_chunk(self.scheduler, self._chunk, at=at)

    def _go_on(self, carry: RunCarry, state: str) -> None:
        """Begins where the execution before this one ended."""
        scheduler = self._new_scheduler()
        try:
            restore(scheduler, state_from_text(state))
        except ValueError as error:
            self.error = NodeError("invalid", str(error))
            return
        self.scheduler, self.started_at, self.notes = scheduler, carry.began_at, [dict(note) for note in carry.notes]
        # Calls end before a run goes on in a new execution; sub-plans are runs of their own.
        for task_id in tasks_in_flight(scheduler):
            self._children[limits.child_workflow_id(self._workflow_id, task_id)] = task_id

    def _new_scheduler(self) -> Scheduler:
        assert self._plan is not None
        assert self.run_input is not None
        inputs = self.run_input.inputs
        if self._chunk is not None:
            inputs = with_items(inputs, self._chunk.items)
        return Scheduler(self._plan, inputs, lookups=self._lookups, max_in_flight=self.run_input.max_in_flight)

    @property
    def _has_all_to_begin(self) -> bool:
        has_items = self._chunk is None or self._chunk.source is None
        return self._plan is not None and self._lookups is not None and has_items

    # Batches.

    async def _take_batch(self, completed: HistoryEvent, at: float) -> None:
        """Takes the events that the workflow saw in one workflow task, in its order."""
        self.settle()
        before = completed.workflow_task_completed_event_attributes.started_event_id
        self._now, self._use = self._task_starts.pop(before, (at, self._use))
        batch = [event for event in self._batch if event.event_id < before]
        self._batch = [event for event in self._batch if event.event_id >= before]
        signalled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
        cancelled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
        signals = [event for event in batch if event.event_type == signalled]
        others = [event for event in batch if event.event_type not in (signalled, cancelled)]
        is_stopped = len(signals) + len(others) < len(batch)
        has_begun = self.scheduler is not None
        for event in [*signals, *others]:
            await self._take_event(event, self._now)
        if self.scheduler is None and self._carry is None and self._has_all_to_begin:
            self._begin(self._now)
        if self.scheduler is not None and self._marks is None:
            self._marks = Marks(begun=self._use)
            if self._is_cancelled:
                self.scheduler.cancel(self._now, reason=self._cancel)
            self._take_early_ends(self._now)
        if is_stopped:
            self._take_stop(self._now, has_begun=has_begun)
        self.changes += 1

    def _take_stop(self, at: float, *, has_begun: bool) -> None:
        """Takes Temporal's own cancel, which a workflow hears of after all that came with it.

        Args:
            has_begun: the run had begun before; else it has given out its first tasks, and took all of them back.
        """
        if self.scheduler is None or has_begun:
            self._take_cancel(wire.REASON_TEMPORAL_CANCEL, at)
            return
        self.settle()
        for task_id in [*self._tasks.values(), *self._children.values()]:
            record = self.scheduler.record_of(task_id)
            if record is not None and record.status is NodeStatus.READY:
                record.status = NodeStatus.RUNNING
        self._take_cancel(wire.REASON_TEMPORAL_CANCEL, at)
        for task_id in self._tasks.values():
            self.scheduler.task_cancelled(task_id, at=at)

    def settle(self) -> None:
        """Does what the last workflow task did and left no event of: tasks that cannot be sent have failed.

        To be called when all events that are there have been taken, before anybody looks.
        """
        if self.scheduler is None or self._marks is None or self.is_closed:
            return
        while not self.scheduler.is_stopped and self._marks.has_room(self._use, self.scheduler):
            if not self._give_next():
                return

    def _give_next(self) -> bool:
        """Takes the next task from the scheduler, as the workflow does; it is `ready` until its event comes."""
        assert self.scheduler is not None
        ready = next_call(self.scheduler, self._now)
        if ready is None:
            return False
        task = ready.task
        record = self.scheduler.record_of(task.id)
        assert record is not None
        record.status, record.started_at = NodeStatus.READY, None
        if task.is_run:
            self._children[limits.child_workflow_id(self._workflow_id, task.id)] = task.id
        else:
            self._tasks[limits.activity_id(task.call_id)] = task.id
            if needs_loading(self.scheduler, ready):
                self._loads[limits.load_id(task.id)] = task.id
        return True

    def _start(self, given: Mapping[str, str], name: str) -> None:
        """Takes the event that a task was scheduled: the workflow has given out all those before it too.

        Args:
            given: id on the wire -> task id.
            name: id on the wire.
        """
        if self.scheduler is None:
            return
        while name not in given and self._give_next():
            pass
        # Another version of the workflow may have chosen in another order: what history says is what runs.
        record = self.scheduler.record_of(given.get(name, name))
        if record is not None and record.status is NodeStatus.READY:
            record.status, record.started_at = NodeStatus.RUNNING, self._now

    async def _take_event(self, event: HistoryEvent, at: float) -> None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                self._take_signal(event, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                done = event.activity_task_completed_event_attributes
                self._take_result(done.scheduled_event_id, done.result.payloads, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                await self._take_failure(failed, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                timed_out = event.activity_task_timed_out_event_attributes
                await self._take_failure(timed_out, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
                cancelled = event.activity_task_canceled_event_attributes
                task_id = self.task_of(self._scheduled.pop(cancelled.scheduled_event_id, ""))
                if self.scheduler is not None and task_id is not None:
                    self.scheduler.task_cancelled(task_id, at=at)
            case EventType.EVENT_TYPE_TIMER_FIRED:
                self._take_timer(event.timer_fired_event_attributes.timer_id, at)
            case _:
                await self._take_child(event, at)

    def _take_signal(self, event: HistoryEvent, at: float) -> None:
        signal = event.workflow_execution_signaled_event_attributes
        try:
            message = _read_argument(signal.input.payloads)
        except MessageInvalid:
            message = None
        if signal.signal_name == wire.SIGNAL_CANCEL:
            self._take_cancel(cancel_request_from_json(message).reason, at)
        elif signal.signal_name == wire.SIGNAL_SUB_PLAN_ENDED:
            with suppress(MessageInvalid):
                self._early_ends.append(sub_plan_end_from_json(message))
                self._take_early_ends(at)

    def _take_early_ends(self, at: float) -> None:
        if self.scheduler is None:
            return
        for end in self._early_ends:
            take_sub_plan_end(self.scheduler, end, at=at)
        self._early_ends = []

    def _take_cancel(self, reason: str | None, at: float) -> None:
        self._is_cancelled, self._cancel = True, reason
        if self.scheduler is not None:
            self.scheduler.cancel(at, reason=reason)

    def _take_result(self, scheduled_id: int, payloads: Any, at: float) -> None:
        name = self._scheduled.pop(scheduled_id, "")
        payload = payloads[0] if payloads else Payload(metadata={"encoding": b"binary/null"})
        if name == _COMPILE_PLAN:
            self._take_compiled(read_message(payload)["compiled"])
        elif name == _LOAD_PLAN:
            self._take_page(scheduled_id, read_message(payload))
        elif name == _RESOLVE_LOOKUPS and self._plan is not None:
            found = read_message(payload)
            looked_up = {lookup: party["id"] for lookup, party in zip(self._missing_lookups(), found, strict=True)}
            self._lookups = {**self._lookups_given, **looked_up}
        elif name == wire.ID_LOAD_ITEMS:
            loaded = read_message(payload)
            items = unfilled_from_json(loaded["value"], loaded.get("stored"))
            self._chunk = ChunkInput(self._chunk.given, items) if self._chunk is not None else None
        elif name.startswith(wire.ID_GET_STATE):
            self._take_state(name, str(read_message(payload)["text"]))
        elif name == wire.ID_FIND_ENDED and self.scheduler is not None:
            for end in found_ends(payload, self._children):
                take_sub_plan_end(self.scheduler, end, at=at)
        elif self.scheduler is not None and name in self._tasks:
            take_result(self.scheduler, self._tasks[name], payload, at=at)

    async def _take_failure(self, ended: _Failed, at: float) -> None:
        name = self._scheduled.pop(ended.scheduled_event_id, "")
        # As the workflow is given it: why there is no other attempt says how many there were.
        error = ActivityError(
            "",
            scheduled_event_id=ended.scheduled_event_id,
            started_event_id=ended.started_event_id,
            identity="",
            activity_type="",
            activity_id=name,
            retry_state=RetryState(ended.retry_state) if ended.retry_state else None,
        )
        error.__cause__ = await self._converter.decode_failure(ended.failure)
        if self.scheduler is not None and name in self._loads:
            take_loading_failure(self.scheduler, self._loads[name], error, at=at)
        elif self.scheduler is not None and name in self._tasks:
            take_failure(self.scheduler, self._tasks[name], error, at=at)

    async def _take_child(self, event: HistoryEvent, at: float) -> None:
        """Takes the end of a sub-plan that sent no report before it."""
        if self.scheduler is None:
            return
        end = await sub_plan_end_of(event, self._children, scheduler=self.scheduler, converter=self._converter)
        if end is not None:
            take_sub_plan_end(self.scheduler, end, at=at)

    # Timers.

    def _note_timer(self, event: HistoryEvent) -> None:
        summary = event.user_metadata.summary
        timer_id = event.timer_started_event_attributes.timer_id
        text = read_message(summary) if summary.data else None
        if text == wire.TIMER_DEADLINE:
            self._deadline_timer = timer_id
        elif text == wire.TIMER_GRACE:
            self._grace_timer = timer_id
        elif text == wire.TIMER_DRAIN:
            self._drain_timer = timer_id

    def _take_timer(self, timer_id: str, at: float) -> None:
        if self.scheduler is None:
            return
        if timer_id == self._deadline_timer:
            self.scheduler.abort(NodeError("deadline_exceeded", "the run took over its deadline"), at)
        elif timer_id == self._drain_timer and self._marks is not None:
            self._marks.give_up_drain()
        elif timer_id == self._grace_timer:
            for task_id in dict.fromkeys([*self._tasks.values(), *self._children.values()]):
                self.scheduler.task_cancelled(task_id, at=at, reason=wire.REASON_STILL_OUTSIDE)

    # The end.

    async def _close(self, event: HistoryEvent, at: float) -> None:
        for pending in self._batch:
            await self._take_event(pending, at)
        self._batch = []
        self.ended_at = at
        self.closed_as = _CLOSED_AS[event.event_type]
        self.document = closing_document(event)
        if self.document is None and self.closed_as is None:
            self.error = NodeError("failed", "the run ended without a document")
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            error = await self._converter.decode_failure(event.workflow_execution_failed_event_attributes.failure)
            code = getattr(error, "type", None) or "failed"
            self.error = NodeError(code, getattr(error, "message", str(error)))
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            reason = event.workflow_execution_terminated_event_attributes.reason
            self.error = NodeError("terminated", f"the run was terminated: {reason or 'no reason given'}")
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
            self.error = NodeError("timed_out", "the run took over the time that its starter gave it")
        self._end_nodes(at)
        self.changes += 1

    def _end_nodes(self, at: float) -> None:
        """Gives every node the end that the run wrote; one that it wrote nothing of ended with the run at the latest.

        A run writes no nodes if it was ended by force, and their counts alone if they are many.
        """
        if self.document is not None and not self.document["nodes"] and "nodes_ref" not in self.document:
            # The run was refused before it began.
            self.scheduler = None
        if self.scheduler is None:
            return
        for name, node in (self.document or {}).get("nodes", {}).items():
            record = self.scheduler.record_of(name)
            if record is not None:
                take_written(record, node, name=name)
        for record in all_records(self.scheduler):
            if not record.status.is_final:
                record.status, record.ended_at = NodeStatus.CANCELLED, at
                record.reason = self.error.message if self.error else None


def _read_argument(payloads: Sequence[Payload]) -> Any:
    """Returns the one argument of a run or a signal, as the workflow is handed it: of several only how many."""
    return read_message(payloads[0]) if len(payloads) == 1 else [None] * len(payloads) or None


def _task_failure(event: HistoryEvent) -> TaskFailure:
    failed = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
    words = cause.replace("_", " ").lower()
    return TaskFailure(cause, f"{words}: {failed.failure.message}" if failed.failure.message else words)
