"""`RunReader`: state of a run from its history and from `describe`. All commands read runs through it.

The reader needs no worker, works after the run has closed, and never queries the workflow (docs/contributing/guards.md
F11, F13). It finds the executions of a run one after the other, and replays the history of the newest execution.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle, WorkflowHistoryEventFilterType
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.model.states import RunStatus
from dagwright.features.commands.steering import current_notes
from dagwright.history.executions import START, Cursor, RunNotFound, executions_of, root_in
from dagwright.history.moment_facts import TaskState, started_tasks, states_of
from dagwright.history.pending_activities import (
    decode_pending,
    lookup_notes,
    may_wait,
    open_calls,
    pending_calls,
    store_notes,
    workflow_task_notes,
)
from dagwright.history.queues import (
    WAITING_NOTE_CODES,
    OpenCall,
    WaitMarks,
    calls_without_worker,
    no_free_slot_note,
    no_worker_notes,
    paused_call_notes,
    waiting_reason,
    waits_for_slot,
)
from dagwright.history.replay import HistoryReplay
from dagwright.history.run_view import HistorySnapshot, RunView
from dagwright.protocol.conversion import decode_payloads, without_codec

PAGE_PAUSE_S = 0.3
"""Pause between two pages of history: faster readers would slow down the run
(docs/contributing/internals/temporal.md)."""
LOST_SERVER_S = 60.0
"""Time after which a reader gives up on an unresponsive server."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a run with the replay of its events.

    Args:
        id: Temporal's run ID of the execution.
        number: 1 for the first execution of the run.
    """

    id: str
    number: int
    replay: HistoryReplay

    @property
    def cursor(self) -> Cursor:
        """Position after the last applied event."""
        return Cursor(self.number, self.replay.last_event_id)

    @property
    def is_over(self) -> bool:
        """Whether the execution has ended, so that its history is complete."""
        return self.replay.is_closed or self.replay.continued_as is not None


class HistoryReader:
    """Replay of the history of one run, event by event.

    Code that uses the replay or `marks` while `follow` is running must hold `lock`.

    Args:
        execution_id: the execution to start with.
        number: number of that execution in the run, 1 for the first.
    """

    def __init__(self, client: Client, run_id: str, execution_id: str, *, number: int) -> None:
        self._client = client
        self._run_id = run_id
        self._converter = client.data_converter.with_context(
            WorkflowSerializationContext(namespace=client.namespace, workflow_id=run_id)
        )
        self.execution = self._execution(execution_id, number)
        """The execution that is being read or was read last."""
        self.marks = WaitMarks()
        """Tasks of the replay that are shown as waiting, until further events are applied."""
        self.lock = asyncio.Lock()
        self.change_event = asyncio.Event()

    async def read_to(self, event_id: int) -> None:
        """Read the events of the execution up to and including an event."""
        async for event in self._handle(self.execution).fetch_history_events():
            if event.event_id > event_id:
                break
            await self._apply_event(self.execution, event)
        # The replay holds back the last batch of events, because the next events may be workflow updates of this batch.
        await self.execution.replay.apply_held_batch()

    async def read_to_end(self) -> None:
        """Read all events."""
        while True:
            async for event in self._handle(self.execution).fetch_history_events():
                await self._apply_event(self.execution, event)
            await self.execution.replay.apply_held_batch()
            next_execution = self._execution_to_read()
            if next_execution is self.execution:
                return
            self.execution = next_execution

    async def follow(self) -> None:
        """Read the history as it grows, across new executions and connection losses, until the run has ended.

        Raises:
            RPCError: the server has not responded for a minute.
        """
        lost_since: float | None = None
        while not self.execution.replay.is_closed:
            try:
                async for _ in self._apply_pages():
                    lost_since = None
            except RPCError:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_SERVER_S:
                    raise
            await asyncio.sleep(PAGE_PAUSE_S)

    async def _apply_pages(self) -> AsyncIterator[None]:
        """Apply the history of one execution page by page, as long as the server responds."""
        execution = self._execution_to_read()
        events = self._handle(execution).fetch_history_events(
            wait_new_event=True, event_filter_type=WorkflowHistoryEventFilterType.ALL_EVENT
        )
        while True:
            await events.fetch_next_page()
            await self._apply_page(execution, events.current_page or ())
            yield
            if execution.is_over or events.next_page_token is None:
                return
            await asyncio.sleep(PAGE_PAUSE_S)

    async def _apply_page(self, execution: Execution, page: Sequence[HistoryEvent]) -> None:
        """Apply the new events of a page. After a connection loss, a page also has events that were applied already."""
        async with self.lock:
            self.marks.clear()
            for event in page:
                if event.event_id > execution.replay.last_event_id:
                    await self._apply_event(execution, event)
            await execution.replay.apply_held_batch()
            self.execution = execution
        self.change_event.set()

    async def _apply_event(self, execution: Execution, event: HistoryEvent) -> None:
        await decode_payloads(event, self._converter)
        await execution.replay.apply(event)

    def _execution_to_read(self) -> Execution:
        """Return the next execution if `self.execution` has continued as new, otherwise `self.execution`."""
        continued_as = self.execution.replay.continued_as
        return self.execution if continued_as is None else self._execution(continued_as, self.execution.number + 1)

    def _execution(self, execution_id: str, number: int) -> Execution:
        return Execution(execution_id, number, HistoryReplay(self._run_id, without_codec(self._converter)))

    def _handle(self, execution: Execution) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(self._run_id, run_id=execution.id)


DESCRIBE_PAUSE_S = 1.0
"""Time after which a followed run is described again if it has no new event."""
MAX_CHECKED_SUB_PLANS = 30
"""Maximum number of sub-plans of one run that are checked for waiting calls, once a second."""


class RunReader:
    """Reader of one run.

    Args:
        client: client of the run's namespace.
        run_id: id of the run.
        execution_id: Temporal's run ID of one execution; `None` means the newest execution.
    """

    def __init__(self, client: Client, run_id: str, *, execution_id: str | None = None) -> None:
        self._client = client
        self._run_id = run_id
        self._execution_id = execution_id

    async def read(self) -> RunView:
        """Return the current state of the run.

        Raises:
            RunNotFound: there is no such run.
        """
        description = await self._describe()
        reader = self._reader(description.run_id, number=await self._number_of(description))
        await reader.read_to_end()
        if reader.execution.id != description.run_id:
            # The run continued as new after it was described.
            description = await self._describe(reader.execution.id)
        return await self._view(reader, description)

    async def follow(self) -> AsyncGenerator[RunView, None]:
        """Yield the state of the run now, after every change (at most every 0.3 s), and once more when it has closed.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not responded for a minute.
        """
        description = await self._describe()
        reader = self._reader(description.run_id, number=await self._number_of(description))
        follow_task = asyncio.create_task(reader.follow())
        try:
            while True:
                with suppress(TimeoutError):
                    # `asyncio.wait_for` would lose a cancellation that arrives together with the awaited result.
                    async with asyncio.timeout(DESCRIBE_PAUSE_S):
                        await reader.change_event.wait()
                reader.change_event.clear()
                if follow_task.done():
                    await follow_task
                view = await self._view_with_retries(reader, description)
                yield view
                if view.is_closed:
                    return
        finally:
            follow_task.cancel()

    async def states_at(self, cursor: Cursor) -> dict[str, TaskState]:
        """Return the states of all tasks at a position.

        The result is empty if the server no longer retains the execution.
        """
        return (await self.states_and_cursor_at(cursor))[0]

    async def states_and_cursor_at(self, cursor: Cursor) -> tuple[dict[str, TaskState], Cursor]:
        """Return the result of `states_at`, and the position of the last applied event, which is not after `cursor`."""
        reader = await self._reader_at(cursor)
        if reader is None:
            return {}, START
        return states_of(reader.execution.replay.scheduler), reader.execution.cursor

    async def snapshot_at(self, cursor: Cursor) -> HistorySnapshot:
        """Return the state of the run at a position; empty if the server no longer retains the execution."""
        reader = await self._reader_at(cursor)
        if reader is None:
            return HistorySnapshot()
        replay = reader.execution.replay
        await replay.complete_state()
        return HistorySnapshot(replay.scheduler, reader.execution.cursor, replay.is_closed)

    async def started_tasks_at(self, cursor: Cursor) -> set[str]:
        """Return the tasks that had started at a position; see `states_at`."""
        reader = await self._reader_at(cursor)
        return set() if reader is None else started_tasks(reader.execution.replay.scheduler)

    async def _reader_at(self, cursor: Cursor) -> HistoryReader | None:
        """Return a reader at a position; `None` if the server no longer retains the execution."""
        description = await self._describe()
        executions = await self._executions_until(description)
        if cursor.execution > len(executions):
            return None
        reader = self._reader(executions[cursor.execution - 1], number=cursor.execution)
        try:
            await reader.read_to(cursor.event)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None
        return reader

    def _reader(self, execution_id: str, *, number: int) -> HistoryReader:
        return HistoryReader(self._client, self._run_id, execution_id, number=number)

    async def _number_of(self, description: WorkflowExecutionDescription) -> int:
        """Return the number of the described execution in its run; 1 for the first."""
        executions = await self._executions_until(description)
        index = executions.index(description.run_id) if description.run_id in executions else len(executions)
        return index + 1

    async def _executions_until(self, description: WorkflowExecutionDescription) -> list[str]:
        return await executions_of(
            self._client,
            self._run_id,
            first_execution_id=_first_execution_id(description),
            last_execution_id=description.run_id,
        )

    async def _describe(self, execution_id: str | None = None) -> WorkflowExecutionDescription:
        handle = self._client.get_workflow_handle(self._run_id, run_id=execution_id or self._execution_id)
        try:
            description = await handle.describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise RunNotFound(f"there is no run {self._run_id!r:.200}") from None
            raise
        if description.workflow_type == wire.WORKFLOW_SESSION:
            name = self._run_id.removeprefix(wire.ID_SESSION)
            raise RunNotFound(f"{self._run_id!r} is a session, not a run: `dagwright session {name}` shows it")
        await decode_pending(description.raw_description, self._client)
        return description

    async def _view_with_retries(
        self, reader: HistoryReader, initial_description: WorkflowExecutionDescription
    ) -> RunView:
        """Return the current state of the run, with retries if the server does not respond.

        Args:
            initial_description: description used for a closed run, which is not described again.
        """
        give_up_at = time.monotonic() + LOST_SERVER_S
        while True:
            try:
                is_closed = reader.execution.replay.is_closed
                description = initial_description if is_closed else await self._describe(reader.execution.id)
                return await self._view(reader, description)
            except RPCError:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(DESCRIBE_PAUSE_S)

    async def _view(self, reader: HistoryReader, description: WorkflowExecutionDescription) -> RunView:
        raw = description.raw_description
        async with reader.lock:
            replay = reader.execution.replay
            await replay.complete_state()
            is_open = not replay.is_closed and description.run_id == reader.execution.id
            calls = open_calls(raw, replay) if is_open else []
            paused_calls = [call for call in calls if call.pause_reason is not None]
            deferred_calls = [call for call in calls if call.deferral_reason is not None]
            unserved_calls = await calls_without_worker(self._client, calls)
            waits_for_workflow_slot = waits_for_slot(calls, unserved_calls=unserved_calls)
            waiting_children = await self._waiting_sub_plans(raw, replay) if is_open else {}
            notes = [*replay.notes, *current_notes(replay.scheduler)]
            if is_open:
                notes += [*workflow_task_notes(raw, replay.workflow_task_failure), *store_notes(raw, replay)]
                notes += lookup_notes(raw, replay)
            if unserved_calls:
                notes += await self._no_worker_notes(unserved_calls, description)
            if waits_for_workflow_slot:
                notes.append(no_free_slot_note())
            notes += paused_call_notes(paused_calls)
            for task_id, view in waiting_children.items():
                notes += [{**note, "node_id": task_id} for note in view.notes if note["code"] in WAITING_NOTE_CODES]
            if replay.scheduler is not None:
                reasons = {
                    call.task: waiting_reason(call)
                    for call in [*unserved_calls, *paused_calls, *deferred_calls]
                    if call.task is not None
                }
                reasons |= {task: view.reason for task, view in waiting_children.items()}
                reader.marks.put(replay.scheduler, reasons)
            # `calls` includes the workflow task, so `waits_for_workflow_slot` counts as one waiting call.
            waiting_count = len(unserved_calls) + len(paused_calls) + len(deferred_calls) + waits_for_workflow_slot
            all_work_waits = waiting_count == len(calls) and len(waiting_children) == len(raw.pending_children)
            return RunView(
                run_id=self._run_id,
                execution_id=reader.execution.id,
                status=_status_of(replay, is_waiting=all_work_waits and bool(waiting_count or waiting_children)),
                title=replay.title,
                scheduler=replay.scheduler,
                pending_calls=pending_calls(raw, replay) if is_open else {},
                started_at=replay.started_at,
                ended_at=replay.ended_at,
                is_closed=replay.is_closed,
                closing_document=replay.document,
                error=replay.error.to_json() if replay.error else None,
                notes=notes,
                cursor=reader.execution.cursor,
                run_input=replay.run_input,
                first_execution_id=_first_execution_id(description),
                pending_commands=replay.pending_commands,
                has_accepted_command=replay.has_accepted_command,
                has_waiting_marks=not reader.marks.is_empty,
                history_statuses=reader.marks.history_statuses,
                opened_requests=replay.opened_requests,
                has_no_slot=waits_for_workflow_slot,
            )

    async def _no_worker_notes(
        self, unserved_calls: Sequence[OpenCall], description: WorkflowExecutionDescription
    ) -> list[dict[str, Any]]:
        """Return advice about calls that wait for a worker, naming the tools from the memo of the root run."""
        # The root run may have been removed after its retention period.
        with suppress(RunNotFound):
            if (root := root_in(await description.memo())) is not None:
                description = await RunReader(self._client, root)._describe()
        tools = tools_of(await description.memo())
        return no_worker_notes(unserved_calls, run_id=description.id, tools=tools, run_queue=description.task_queue)

    async def _waiting_sub_plans(
        self, raw: DescribeWorkflowExecutionResponse, replay: HistoryReplay
    ) -> dict[str, RunView]:
        """Return the sub-plans that wait: task id -> view. At most `MAX_CHECKED_SUB_PLANS` are checked."""
        sub_plans = {}
        for child in raw.pending_children[:MAX_CHECKED_SUB_PLANS]:
            task_id = replay.sub_plan_of(child.workflow_id)
            reader_of_child = RunReader(self._client, child.workflow_id, execution_id=child.run_id or None)
            # The history of a sub-plan is read only if its description shows that the sub-plan may wait.
            with suppress(RunNotFound):
                if task_id is not None and may_wait((await reader_of_child._describe()).raw_description):
                    view = await reader_of_child.read()
                    if view.status == RunStatus.WAITING:
                        sub_plans[task_id] = view
        return sub_plans


def tools_of(memo: Mapping[str, Any]) -> list[str]:
    """Return the values of the option `--tools`, from the memo of a run."""
    tools = memo.get(wire.MEMO_TOOLS)
    return [str(reference) for reference in tools] if isinstance(tools, list) else []


def _first_execution_id(description: WorkflowExecutionDescription) -> str:
    return description.raw_description.workflow_execution_info.first_run_id or description.run_id


def _status_of(replay: HistoryReplay, *, is_waiting: bool) -> str:
    if replay.document is not None:
        return str(replay.document["status"])
    if replay.is_closed:
        return replay.status_at_close or RunStatus.FAILED
    scheduler_waits = replay.scheduler is not None and replay.scheduler.status() is RunStatus.WAITING
    return RunStatus.WAITING if is_waiting or scheduler_waits else RunStatus.RUNNING
