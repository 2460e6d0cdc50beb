"""Replay of the history of a run: rebuilds the states of its nodes without a worker and without a query.

The scheduler gets the input and the events of the run in the order in which the workflow handled them: a workflow
receives events in batches, one for each workflow task, signals first. A task counts as running from the event that
scheduled it. No event contains the progress of attempts, so the run reader takes the progress from `describe`. After
the end of the run, its status, output and error come from its result document.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

from dagwright.core.boundary import limits, wire
from dagwright.core.model.requests import MessageSource, Request
from dagwright.core.model.states import NO_ATTEMPT, ONE_ATTEMPT, NodeError, NodeStatus
from dagwright.core.scheduler.run_state import last_call_id, task_of_call
from dagwright.history.closing_event import (
    STATUS_AT_CLOSE,
    WorkflowTaskFailure,
    closing_document,
    closing_error,
    end_open_nodes,
    recorded_document,
    workflow_task_failure,
)
from dagwright.history.event_decoding import (
    LOAD_PLAN,
    PREPARATION_ID_BY_TYPE,
    ExecutionStart,
    FailedCall,
    error_of_call,
    sub_plan_end_of,
    workflow_end_of,
)
from dagwright.history.open_batches import OpenCallBatches
from dagwright.history.open_timers import OpenTimers
from dagwright.history.task_batches import EventBatch, EventBatches, read_argument
from dagwright.protocol import budgets
from dagwright.protocol.budgets import BudgetMessage
from dagwright.protocol.commands import (
    CommandHandler,
    accept_sub_plan_report,
    is_command,
    is_command_signal,
    note_unknown_signal,
    read_sub_plan_report,
)
from dagwright.protocol.history_limits import HistoryLimits, HistoryUse
from dagwright.protocol.map_batch_runs import start_map_batch
from dagwright.protocol.messages import MessageInvalid, SubPlanEnd
from dagwright.protocol.notes import Notes, ReadMessage, bug_message
from dagwright.protocol.notifications import NOTE_CODE, failure_note
from dagwright.protocol.outcomes import (
    apply_failure,
    apply_loading_failure,
    apply_result,
    apply_store_wait,
    apply_sub_plan_end,
    sub_plan_ends_from_payload,
)
from dagwright.protocol.ready_calls import is_workflow_call, needs_loading, next_call
from dagwright.protocol.run_input import RunInput
from dagwright.protocol.run_snapshot import RunSnapshot, state_from_text
from dagwright.protocol.run_start import scheduler_for_run, start_restored_run, start_run
from dagwright.protocol.scheduler_snapshot import restore_state, tasks_in_flight

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_UPDATE_EVENTS = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
    }
)


class HistoryReplay:
    """State of a run after the events so far.

    Args:
        run_id: id of the run, for the ids of its sub-plans.
        converter: converter that decodes failures.
    """

    def __init__(self, run_id: str, converter: DataConverter) -> None:
        self._run_id = run_id
        self._converter = converter
        self.scheduler: RunScheduler | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.status_at_close: str | None = None
        self.document: dict[str, Any] | None = None
        """Result document in the closing event."""
        self._recorded_document: dict[str, Any] | None = None
        """Result document that a cancelled run recorded before its end."""
        self.error: NodeError | None = None
        self.opened_requests: dict[str, Request] = {}
        """ID -> request opened in this execution, open or closed. The scheduler does not store closed requests."""
        self._notes = Notes()
        self.workflow_task_failure: WorkflowTaskFailure | None = None
        """Failure of the last workflow task; `None` after a workflow task has completed."""
        self.continued_as: str | None = None
        self.last_event_id = 0
        self._start_data = ExecutionStart()
        self._early_ends: list[SubPlanEnd] = []
        """Reports of sub-plans that arrived before the run had started."""
        self._early_budget_messages: list[BudgetMessage] = []
        """Budget messages that arrived before the run had started."""
        self._budget_report_events: set[int] = set()
        """Events that sent budget reports to the parent run."""
        self._commands = CommandHandler(self._notes)
        self.has_accepted_command = self._commands.has_accepted
        self._batches = EventBatches()
        self._held_batch: EventBatch | None = None
        """The last batch, until it is certain that no other update belongs to it."""
        self._now = 0.0
        """Start of the workflow task that was completed last, by the clock of the workflow."""
        self._history_use = HistoryUse(0, 0)
        self._limits: HistoryLimits | None = None
        self._activity_by_event: dict[int, str] = {}
        """Id of the event that scheduled an activity -> id of the activity."""
        self._timers = OpenTimers()
        self._task_by_activity: dict[str, str] = {}
        """Id of the activity of a call -> task of the call."""
        self._task_by_load: dict[str, str] = {}
        """Activity id -> task whose arguments the activity loads."""
        self._call_batches = OpenCallBatches()
        self._task_by_workflow: dict[str, str] = {}
        """Workflow id of a child workflow that is not a run -> task of the call."""
        self._call_by_child: dict[str, str] = {}
        """Run ID of a sub-plan -> id of the call that started it."""

    @property
    def run_input(self) -> RunInput | None:
        """Input of the run; `None` if it is invalid."""
        return self._start_data.run_input

    @property
    def title(self) -> str | None:
        return self._start_data.plan.title if self._start_data.plan is not None else None

    @property
    def notes(self) -> list[dict[str, Any]]:
        return self._notes.to_json()

    @property
    def is_closed(self) -> bool:
        return self.ended_at is not None

    def task_of(self, activity_id: str) -> str | None:
        """Return the task of an activity id; `None` if the call was abandoned and retried."""
        task_id = self._task_by_activity.get(activity_id) or self._task_by_load.get(activity_id)
        if self.scheduler is None or task_id not in self.scheduler.state.overrides:
            return task_id
        call_id = last_call_id(self.scheduler.state, task_id)
        current_ids = [limits.activity_id(call_id), limits.load_id(call_id), limits.store_wait_id(call_id)]
        return task_id if activity_id in current_ids else None

    def tasks_of(self, activity_id: str) -> list[str]:
        """Return the tasks of an activity: several for a call batch."""
        ids_of_calls = self._call_batches.activity_ids_of(activity_id)
        return [task_id for id_of_call in ids_of_calls if (task_id := self.task_of(id_of_call)) is not None]

    def sub_plan_of(self, child_run_id: str) -> str | None:
        """Return the task whose sub-plan is the run `child_run_id`; `None` if no task has started that run."""
        call_id = self._call_by_child.get(child_run_id)
        return None if self.scheduler is None or call_id is None else task_of_call(self.scheduler.state, call_id)

    def _child_task_of(self, workflow_id: str) -> str | None:
        """Return the task that started a child workflow; `None` if the call was abandoned and retried."""
        task_id = self._task_by_workflow.get(workflow_id)
        if task_id is None or self.scheduler is None:
            return self.sub_plan_of(workflow_id)
        newest_id = limits.child_workflow_id(self._run_id, last_call_id(self.scheduler.state, task_id))
        return task_id if newest_id == workflow_id else None

    def pending_commands(self) -> list[tuple[float, str, ReadMessage]]:
        """Return the command signals that no workflow task has handled: time, name and reader of the message."""
        signals = [
            (event.event_time.ToNanoseconds() / 1e9, event.workflow_execution_signaled_event_attributes)
            for event in self._batches.signals
        ]
        return [
            (at, signal.signal_name, partial(read_argument, signal.input.payloads))
            for at, signal in signals
            if is_command_signal(signal.signal_name)
        ]

    async def apply(self, event: HistoryEvent) -> None:
        if event.event_type not in _UPDATE_EVENTS:
            await self.apply_held_batch()
        self.last_event_id = event.event_id
        at = event.event_time.ToNanoseconds() / 1e9
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                self.started_at = at
                self._read_input(event)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                self._batches.start(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                self.workflow_task_failure = workflow_task_failure(event)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                self.workflow_task_failure = None
                self._held_batch = self._batches.complete(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                continuation = event.workflow_execution_continued_as_new_event_attributes
                self.continued_as = continuation.new_execution_run_id
            case update if update in _UPDATE_EVENTS:
                await self._apply_update(event)
            case closing if closing in STATUS_AT_CLOSE:
                await self._close(event, at)
            case _:
                self._apply_command_event(event)

    async def _apply_update(self, event: HistoryEvent) -> None:
        if event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            return
        self._batches.count_update()
        if self._held_batch is not None:
            self._held_batch.updates.append(event)
        else:
            # The batch was applied already, because a reader needed the state.
            await self._apply_event(event, self._now)

    def _apply_command_event(self, event: HistoryEvent) -> None:
        """Apply an event that records a workflow command; store any other event for the next workflow task."""
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                self._apply_scheduled_activity(event)
            case EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                child_start = event.start_child_workflow_execution_initiated_event_attributes
                self._mark_running(self._child_task_of, child_start.workflow_id)
            case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
                sent_signal = event.signal_external_workflow_execution_initiated_event_attributes
                if sent_signal.signal_name == wire.SIGNAL_BUDGET_REPORT:
                    self._budget_report_events.add(event.event_id)
            case EventType.EVENT_TYPE_TIMER_STARTED:
                self._timers.add(event)
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                self._recorded_document = recorded_document(event) or self._recorded_document
            case _:
                self._batches.add(event)

    def _apply_scheduled_activity(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_scheduled_event_attributes
        self._activity_by_event[event.event_id] = attributes.activity_id
        preparation_id = PREPARATION_ID_BY_TYPE.get(attributes.activity_type.name)
        if preparation_id is not None and self.scheduler is None:
            # No node has started yet; later, the activity of a node may have the same ID.
            self._activity_by_event[event.event_id] = preparation_id
            if preparation_id == LOAD_PLAN:
                self._start_data.expect_page(event.event_id)
        elif attributes.activity_id.startswith(wire.ID_CALL_BATCH):
            for activity_id in self._call_batches.add(attributes):
                self._mark_running(self._task_by_activity.get, activity_id)
        elif not attributes.activity_id.startswith(wire.INTERNAL_ID_PREFIX):
            self._mark_running(self._task_by_activity.get, attributes.activity_id)
        elif attributes.activity_id.startswith(wire.ID_LOAD_VALUES):
            self._mark_running(self._task_by_load.get, attributes.activity_id)

    # Start.

    def _read_input(self, event: HistoryEvent) -> None:
        try:
            self._start_data.read_input(event.workflow_execution_started_event_attributes.input.payloads)
        except MessageInvalid as error:
            self.error = NodeError(error.code, str(error))
            return
        if (snapshot := self._start_data.snapshot) is not None:
            self._notes.prepend(snapshot.notes, snapshot.omitted_notes)
            self._restore(snapshot)

    def _start_run(self, run_input: RunInput, at: float) -> None:
        self.scheduler = self._new_scheduler()
        start_run(self.scheduler, run_input, at=at)
        self._notes.prepend(run_input.notes, 0)
        if self._start_data.map_batch is not None:
            start_map_batch(self.scheduler, self._start_data.map_batch, at=at)

    def _new_scheduler(self) -> "RunScheduler":
        start, started_at = self._start_data, self.started_at or 0.0
        assert start.plan is not None
        assert start.run_input is not None
        return scheduler_for_run(start.plan, start.run_input, started_at=started_at, inputs=start.inputs)

    def _restore(self, snapshot: RunSnapshot) -> None:
        """Restore the state of the previous execution, if state and plan are complete."""
        state = self._start_data.state
        if state is None or not self._start_data.has_plan:
            return
        self.started_at = self.started_at if snapshot.origin else snapshot.started_at
        scheduler = self._new_scheduler()
        try:
            restore_state(scheduler, state_from_text(state))
        except ValueError as error:
            self.error = NodeError("invalid", str(error))
            return
        self.scheduler = scheduler
        # Calls end before a run continues as new; sub-plans are separate runs and continue.
        for task_id in tasks_in_flight(scheduler):
            call_id = last_call_id(scheduler.state, task_id)
            self._call_by_child[limits.child_workflow_id(self._run_id, call_id)] = call_id

    # Batches of events.

    async def apply_held_batch(self) -> None:
        """Apply the last batch. Later updates of the batch are applied when they arrive."""
        batch, self._held_batch = self._held_batch, None
        if batch is not None:
            await self._apply_batch(batch)

    async def _apply_batch(self, batch: EventBatch) -> None:
        """Apply the events that the workflow received in one workflow task, in the order of the workflow."""
        self._apply_unrecorded_effects()
        if self.scheduler is not None and self.scheduler.is_finished:
            self._commands.reject_further_commands()
        self._now = batch.at
        self._history_use = replace(batch.history_use, signals=batch.history_use.signals + len(batch.updates))
        has_started = self.scheduler is not None
        messages, other_events = batch.messages_and_others
        if self.scheduler is not None and self._limits is not None and (messages or other_events):
            self.scheduler.advance(self._now)
        for event in messages:
            await self._apply_event(event, self._now)
        earlier_tasks = set(self._dispatched_tasks()) if batch.has_cancel_request and has_started else set()
        if messages:
            # The workflow reacts to the messages before it receives the other events.
            self._apply_unrecorded_effects()
        for event in other_events:
            await self._apply_event(event, self._now)
        if self.scheduler is None and self.run_input is not None and self._start_data.can_start_run:
            self._start_run(self.run_input, self._now)
        if self.scheduler is not None and self._limits is None:
            start_restored_run(self.scheduler, self.run_input, at=self._now)
            self._limits = HistoryLimits(baseline=self._history_use)
            for end in self._early_ends:
                self._handle_report(self.scheduler, end, self._now)
            for budget_message in self._early_budget_messages:
                budgets.apply_budget_message(self.scheduler, budget_message, at=self._now)
            self._commands.apply_stored_commands(self.scheduler, at=self._now)
        if batch.has_cancel_request:
            self._apply_cancel_request(self._now, has_started=has_started, earlier_tasks=earlier_tasks)

    def _dispatched_tasks(self) -> list[str]:
        return [*self._task_by_activity.values(), *self._task_by_workflow.values(), *self._sub_plan_tasks()]

    def _apply_cancel_request(self, at: float, *, has_started: bool, earlier_tasks: Collection[str]) -> None:
        """Apply Temporal's own cancel request, which the workflow handles after all other events.

        Args:
            has_started: whether the run started in an earlier workflow task. Otherwise this workflow task scheduled the
                first tasks of the run, and withdrew them.
            earlier_tasks: tasks that earlier workflow tasks dispatched; the calls of other tasks leave no event.
        """
        if self.scheduler is None:
            return
        if not has_started:
            self._apply_unrecorded_effects()
        new_tasks = [task_id for task_id in self._dispatched_tasks() if task_id not in earlier_tasks]
        for task_id in new_tasks:
            record = self.scheduler.record_of(task_id)
            if record is not None and record.status is NodeStatus.READY:
                record.status = NodeStatus.RUNNING
        self.scheduler.close(at, reason=wire.REASON_TEMPORAL_CANCEL)
        calls = {*self._task_by_activity.values(), *self._task_by_workflow.values()}
        for task_id in new_tasks:
            if task_id in calls:
                self.scheduler.task_cancelled(task_id, at=at)

    async def complete_state(self) -> None:
        """Apply the last batch, and its effects that left no event.

        Call this method after all available events were applied, and before the state is read.
        """
        await self.apply_held_batch()
        self._apply_unrecorded_effects()

    def _apply_unrecorded_effects(self) -> None:
        """Apply those effects of the last workflow task for which the history has no event.

        For example, a task that cannot be sent fails without an event.
        """
        if self.scheduler is None or self._limits is None or self.is_closed:
            return
        while not self.scheduler.is_stopped and self._limits.has_room(self._history_use, self.scheduler):
            if not self._dispatch_next():
                break
        for rejection in self.scheduler.features.feedback.requests.take_rejections():
            self._notes.add("message_rejected", rejection)
        notifications = self.scheduler.features.feedback.requests.notifications
        self.opened_requests |= {
            notification.request.id: notification.request
            for notification in notifications
            if notification.kind == "opened"
        }
        # The workflow sends the notifications.
        notifications.clear()
        if self.scheduler.features.budget.budget is not None:
            self.scheduler.features.budget.budget.next_report()
            self.scheduler.features.budget.budget.next_grants()

    def _dispatch_next(self) -> bool:
        """Dispatch the next task as the workflow does. The task is `ready` until its event arrives."""
        assert self.scheduler is not None
        ready_call = next_call(self.scheduler, self._now)
        if ready_call is None:
            return False
        task = ready_call.task
        record = self.scheduler.record_of(task.id)
        assert record is not None
        record.status, record.started_at = NodeStatus.READY, None
        if task.is_child_run:
            self._call_by_child[limits.child_workflow_id(self._run_id, task.call_id)] = task.call_id
            return True
        if is_workflow_call(self.scheduler, task.node) and not task.is_join:
            self._task_by_workflow[limits.child_workflow_id(self._run_id, task.call_id)] = task.id
        else:
            self._task_by_activity[limits.activity_id(task.call_id)] = task.id
        if needs_loading(self.scheduler, ready_call):
            self._task_by_load[limits.load_id(task.call_id)] = task.id
        return True

    def _sub_plan_tasks(self) -> list[str]:
        return [task_id for child_id in self._call_by_child if (task_id := self.sub_plan_of(child_id)) is not None]

    def _mark_running(self, task_of: Callable[[str], str | None], scheduled_id: str) -> None:
        """Apply the event that scheduled a task, after dispatching the tasks that the workflow dispatched before.

        Args:
            task_of: function that returns the dispatched task of an id.
            scheduled_id: id of the activity or child workflow.
        """
        if self.scheduler is None:
            return
        while task_of(scheduled_id) is None and self._dispatch_next():
            pass
        # Another version of the workflow may have dispatched in another order: the history decides.
        record = self.scheduler.record_of(task_of(scheduled_id) or scheduled_id)
        if record is not None and record.status is NodeStatus.READY:
            record.status, record.started_at = NodeStatus.RUNNING, self._now

    async def _apply_event(self, event: HistoryEvent, at: float) -> None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                self._handle_signal(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                request = event.workflow_execution_update_accepted_event_attributes.accepted_request
                if is_command(request.input.name):
                    self._handle_command(request.input.name, request.input.args.payloads, at, source="update")
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed_call = event.activity_task_completed_event_attributes
                self._apply_result(completed_call.scheduled_event_id, completed_call.result.payloads, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                await self._apply_failure(event.activity_task_failed_event_attributes, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                await self._apply_failure(event.activity_task_timed_out_event_attributes, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
                self._cancel_call(event.activity_task_canceled_event_attributes.scheduled_event_id, at)
            case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED:
                failed_signal = event.signal_external_workflow_execution_failed_event_attributes
                if failed_signal.initiated_event_id in self._budget_report_events:
                    self._handle_budget_message(budgets.PARENT_LOST, at)
            case EventType.EVENT_TYPE_TIMER_FIRED:
                timer = event.timer_fired_event_attributes.timer_id
                self._timers.fire(timer, self.scheduler, self._limits, dispatched_tasks=self._dispatched_tasks, at=at)
            case _:
                await self._apply_child_end(event, at)

    @property
    def _started_scheduler(self) -> "RunScheduler | None":
        """Scheduler of the run after its start; messages that arrive earlier are stored."""
        return self.scheduler if self._limits is not None else None

    def _handle_signal(self, event: HistoryEvent, at: float) -> None:
        signal = event.workflow_execution_signaled_event_attributes
        name, payloads = signal.signal_name, signal.input.payloads
        if is_command_signal(name):
            self._handle_command(name, payloads, at, source="signal")
        elif name in budgets.SIGNALS:
            message = budgets.read_budget_message(name, partial(read_argument, payloads), self._notes)
            self._handle_budget_message(message, at)
        elif name != wire.SIGNAL_SUB_PLAN_ENDED:
            note_unknown_signal(name, self._notes)
        elif (end := read_sub_plan_report(partial(read_argument, payloads), self._notes)) is not None:
            if self._started_scheduler is None:
                self._early_ends.append(end)
            else:
                self._handle_report(self._started_scheduler, end, at)

    def _handle_budget_message(self, budget_message: BudgetMessage | None, at: float) -> None:
        if budget_message is not None and self._started_scheduler is None:
            self._early_budget_messages.append(budget_message)
        elif budget_message is not None and self._started_scheduler is not None:
            budgets.apply_budget_message(self._started_scheduler, budget_message, at=at)

    def _handle_report(self, scheduler: "RunScheduler", end: SubPlanEnd, at: float) -> None:
        if not accept_sub_plan_report(end, scheduler, self._notes):
            return
        try:
            apply_sub_plan_end(scheduler, end, at=at)
        # Catch all exceptions: the workflow ends with this error and reports it, and history readers continue.
        except Exception as error:
            self._notes.add_rejection(wire.SIGNAL_SUB_PLAN_ENDED, bug_message(error))

    def _handle_command(self, name: str, payloads: Sequence[Payload], at: float, *, source: MessageSource) -> None:
        """Apply a command, or store it until the run has its plan."""
        read_message, scheduler = partial(read_argument, payloads), self._started_scheduler
        self._commands.handle(name, read_message, source=source, scheduler=scheduler, at=at)

    def _apply_result(self, scheduled_event_id: int, payloads: Any, at: float) -> None:
        activity_id = self._activity_by_event.pop(scheduled_event_id, "")
        payload = payloads[0] if payloads else Payload(metadata={"encoding": b"binary/null"})
        if self.scheduler is None and self._start_data.handle(activity_id, scheduled_event_id, payload):
            if (snapshot := self._start_data.snapshot) is not None:
                self._restore(snapshot)
        elif activity_id == wire.ID_FIND_ENDED and self.scheduler is not None:
            for end in sub_plan_ends_from_payload(payload, self._call_by_child):
                apply_sub_plan_end(self.scheduler, end, at=at)
        elif self._end_call_batch(activity_id, payload, at):
            return
        elif self.scheduler is not None and (task_id := self.task_of(activity_id)) is not None:
            if activity_id in self._task_by_activity:
                apply_result(self.scheduler, task_id, payload, at=at)
            elif task_id in self.scheduler.state.cancel_deadlines:
                # The arguments were loaded, but the task is cancelled before its call.
                self.scheduler.task_cancelled(task_id, at=at, attempt=NO_ATTEMPT)

    def _end_call_batch(self, activity_id: str, result: Payload | None, at: float) -> bool:
        return self._call_batches.end(self.scheduler, activity_id, result, task_of=self.task_of, at=at)

    def _cancel_call(self, scheduled_event_id: int, at: float) -> None:
        activity_id = self._activity_by_event.pop(scheduled_event_id, "")
        is_batch = self._end_call_batch(activity_id, None, at)
        if not is_batch and self.scheduler is not None and (task_id := self.task_of(activity_id)) is not None:
            attempt = ONE_ATTEMPT if activity_id in self._task_by_activity else NO_ATTEMPT
            self.scheduler.task_cancelled(task_id, at=at, attempt=attempt)

    async def _apply_failure(self, failed_call: FailedCall, at: float) -> None:
        activity_id = self._activity_by_event.pop(failed_call.scheduled_event_id, "")
        error = await error_of_call(failed_call, activity_id, converter=self._converter)
        if activity_id.startswith(wire.ID_NOTIFY):
            self._notes.add(NOTE_CODE, failure_note(error))
        if self._end_call_batch(activity_id, None, at):
            return
        if self.scheduler is not None and (task_id := self.task_of(activity_id)) is not None:
            if (
                activity_id in self._task_by_activity
                and apply_store_wait(self.scheduler, task_id, error, at=at) is not None
            ):
                self._record_store_wait(task_id, at)
                return
            apply = apply_failure if activity_id in self._task_by_activity else apply_loading_failure
            apply(self.scheduler, task_id, error, at=at)

    def _record_store_wait(self, task_id: str, at: float) -> None:
        """Record that a call waits for the payload store; its node keeps running."""
        assert self.scheduler is not None
        if self.scheduler.is_stopped or task_id in self.scheduler.state.cancel_deadlines:
            self.scheduler.task_cancelled(task_id, at=at, attempt=NO_ATTEMPT)
            return
        self._task_by_load[limits.store_wait_id(last_call_id(self.scheduler.state, task_id))] = task_id

    async def _apply_child_end(self, event: HistoryEvent, at: float) -> None:
        """Apply the end of a sub-plan that sent no report before, or of the workflow that a node calls."""
        if self.scheduler is None:
            return
        workflow_end = await workflow_end_of(event, converter=self._converter) if self._task_by_workflow else None
        if workflow_end is not None and workflow_end.workflow_id in self._task_by_workflow:
            if (task_id := self._child_task_of(workflow_end.workflow_id)) is not None:
                if workflow_end.result is not None:
                    apply_result(self.scheduler, task_id, workflow_end.result, at=at)
                elif workflow_end.error is not None:
                    apply_failure(self.scheduler, task_id, workflow_end.error, at=at)
            return
        end = await sub_plan_end_of(event, self._call_by_child, scheduler=self.scheduler, converter=self._converter)
        if end is not None:
            apply_sub_plan_end(self.scheduler, end, at=at)

    async def _close(self, event: HistoryEvent, at: float) -> None:
        # The cause of a failed node may be an effect that left no event.
        await self.complete_state()
        for unhandled_event in self._batches.pop_unhandled():
            await self._apply_event(unhandled_event, at)
        self.ended_at = at
        self.status_at_close = STATUS_AT_CLOSE[event.event_type]
        recorded_document = self._recorded_document if self.status_at_close == "cancelled" else None
        self.document = closing_document(event) or recorded_document
        self.error = await closing_error(event, self._converter, has_document=self.document is not None) or self.error
        if self.document is not None and not self.document["nodes"] and "nodes_ref" not in self.document:
            # The run was rejected before it started.
            self.scheduler = None
        if self.scheduler is not None:
            end_open_nodes(self.scheduler, error=self.error, at=at)
