"""`RunReader`: state of a run from its history and from `describe`. All commands read runs through it.

It needs no worker, works after the run has closed, and never queries the workflow
(docs/contributing/guards.md F11, F13).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.expressions.stored_values import is_whole
from dagwright.core.model.requests import Request
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.features.commands.steering import current_notes
from dagwright.history.closing_event import is_reference
from dagwright.history.executions import START, Cursor, RunNotFound, executions_of, root_in
from dagwright.history.pending_activities import (
    PendingCall,
    decode_pending,
    lookup_notes,
    may_wait,
    open_calls,
    pending_calls,
    store_notes,
    task_notes,
)
from dagwright.history.queues import (
    NO_FREE_SLOT,
    NOTES_OF_WAITING,
    OpenCall,
    calls_without_worker,
    no_free_slot_note,
    no_worker_notes,
    paused_call_notes,
    reason_of,
    waits_for_slot,
)
from dagwright.history.reader import LOST_SERVER_S, HistoryReader, TaskState, started_in, states_of
from dagwright.history.replay import HistoryReplay
from dagwright.protocol.documents import (
    RunFacts,
    graph_document,
    result_document,
    shortened,
)
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.listings import progress_of
from dagwright.protocol.messages import RunInput
from dagwright.protocol.notes import ReadMessage

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

DESCRIBE_PAUSE_S = 1.0
MAX_CHECKED_SUB_PLANS = 30
"""Most sub-plans of one run that are checked for waiting calls, once a second."""
_OF_EVENTS = ("nodes", "nodes_ref")
"""Fields of a document that readers take from the events of the run."""


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run at one moment.

    Args:
        status: status of the run (docs/reference/states.md).
        scheduler: scheduler, rebuilt from the history; `None` while the plan is not known.
        run_id: the newest execution of the run.
        pending: task id -> the call in flight.
        notes: notes, for example about a workflow task that fails repeatedly.
        cursor: position of the last applied event; data from `describe` may be newer.
        run_input: input of the newest execution.
        first_run_id: the first execution, which is the scope of its idempotency keys.
        pending_commands: returns the command signals that no workflow task has handled: time, name, and a function that
            reads the message.
        has_marks: whether tasks are marked as waiting for a worker, which is known from `describe` and from no event.
        opened: requests that were opened in the newest execution by ID, including closed ones.
        hidden: node or item that is marked as waiting for a worker -> its status in the history.
        has_no_slot: whether the next step of the run waits for a free slot of a worker.
    """

    workflow_id: str
    run_id: str
    status: str
    title: str | None
    scheduler: "RunScheduler | None"
    pending: Mapping[str, PendingCall]
    started_at: float | None
    ended_at: float | None
    is_closed: bool
    closing_document: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)
    cursor: Cursor = START
    run_input: RunInput | None = None
    first_run_id: str = ""
    pending_commands: Callable[[], list[tuple[float, str, ReadMessage]]] = list
    has_marks: bool = False
    hidden: Mapping[str, NodeStatus] = field(default_factory=dict)
    opened: Mapping[str, Request] = field(default_factory=dict, repr=False)
    has_no_slot: bool = False

    def document(self) -> dict[str, Any]:
        """Return the result document; values over 1 MiB, and those in the payload store, are references."""
        document = self.document_with_refs()
        document["output"] = shortened(document["output"], ref="output")
        for name, node in document["nodes"].items():
            node["result"] = shortened(node["result"], ref=f"node:{name}")
        return document

    def document_with_refs(self) -> dict[str, Any]:
        """Return the result document with every value; a value in the payload store is a `StoredValue`.

        Its `error` is set for every failed run, also if only nodes failed: `protocol.failures`.
        """
        document = self._recorded_document()
        return {**document, "error": run_error_of(document)}

    def _recorded_document(self) -> dict[str, Any]:
        facts = RunFacts(self.workflow_id, self.run_id, title=self.title, error=self.error, notes=self.notes)
        document = result_document(self.scheduler, facts, status=self.status)
        return document if self.closing_document is None else self._as_written(document, self.closing_document)

    def _as_written(self, replayed: Mapping[str, Any], closing_document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document that the run wrote, with its nodes and the output that it may contain by reference."""
        written = [name for name in replayed if name in closing_document and name not in _OF_EVENTS]
        document = {**replayed, **{name: closing_document[name] for name in written}}
        document |= {"run_id": self.workflow_id, "execution_id": self.run_id, "status": self.status}
        document["notes"] = [*document["notes"], *(note for note in self.notes if note not in document["notes"])]
        if self.scheduler is not None:
            output, error = self.scheduler.output()
            if error is None and _is_summary_of(document["output"], output, ref="output"):
                document["output"] = output
        return document

    def graph(self) -> dict[str, Any]:
        """Return nodes and edges with their states."""
        return graph_document(self.scheduler) if self.scheduler else {"nodes": [], "edges": []}

    @property
    def reason(self) -> str:
        """Reason for which the run waits."""
        if self.scheduler is not None and self.scheduler.features.feedback.requests.open:
            return next(iter(self.scheduler.features.feedback.requests.open.values())).waits_for
        records = [record for _, record in self.scheduler.state.visible_nodes()] if self.scheduler else []
        reasons = [record.reason for record in records if record.status is NodeStatus.WAITING and record.reason]
        otherwise = NO_FREE_SLOT if self.has_no_slot else "no worker serves its task queue"
        return reasons[0] if reasons else otherwise

    @property
    def nodes_done(self) -> int:
        """Number of nodes that have ended by themselves, without compensation nodes."""
        return 0 if self.scheduler is None else progress_of(self.scheduler).done

    @property
    def nodes_total(self) -> int | None:
        """Number of nodes of the plan, without compensation nodes; `None` if there is no plan yet."""
        return None if self.scheduler is None else progress_of(self.scheduler).total


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """State of a run at a position in its history.

    Args:
        scheduler: scheduler, rebuilt from the history; `None` while the plan is not known.
        cursor: position of the last applied event.
    """

    scheduler: "RunScheduler | None" = None
    cursor: Cursor = START
    is_closed: bool = False


def _is_summary_of(closing_document: Any, value: Any, *, ref: str) -> bool:
    """Return whether a value in a document is only a reference."""
    return is_reference(closing_document, ref=ref) or not is_whole(value)


class RunReader:
    """Reader of one run.

    Args:
        client: client of the run's namespace.
        workflow_id: id of the run.
        run_id: one execution of that id; `None` means the newest one.
    """

    def __init__(self, client: Client, workflow_id: str, *, run_id: str | None = None) -> None:
        self._client = client
        self._workflow_id = workflow_id
        self._run_id = run_id

    async def read(self) -> RunView:
        """Return the current state of the run.

        Raises:
            RunNotFound: there is no such run.
        """
        description = await self._describe()
        reader = self._reader(description.run_id, number=await self._number_of(description))
        await reader.read_to_end()
        if reader.execution.run_id != description.run_id:
            # It continued as new after it was described.
            description = await self._describe(reader.execution.run_id)
        return await self._view(reader, description)

    async def follow(self) -> AsyncGenerator[RunView, None]:
        """Yield the state of the run now, after every change (every 0.3 s at most), and once more when it has closed.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not responded for a minute.
        """
        description = await self._describe()
        reader = self._reader(description.run_id, number=await self._number_of(description))
        reading = asyncio.create_task(reader.follow())
        try:
            while True:
                with suppress(TimeoutError):
                    # `wait_for` loses a cancellation that arrives together with the awaited result.
                    async with asyncio.timeout(DESCRIBE_PAUSE_S):
                        await reader.changed.wait()
                reader.changed.clear()
                if reading.done():
                    await reading
                view = await self._view_with_retries(reader, description)
                yield view
                if view.is_closed:
                    return
        finally:
            reading.cancel()

    async def states_at(self, cursor: Cursor) -> dict[str, TaskState]:
        """Return the states of all tasks at a position.

        They are empty if the server no longer retains the execution.
        """
        return (await self.states_and_cursor_at(cursor))[0]

    async def states_and_cursor_at(self, cursor: Cursor) -> tuple[dict[str, TaskState], Cursor]:
        """Return the result of `states_at`, and the last position with events: at most `cursor`."""
        reader = await self._reader_at(cursor)
        if reader is None:
            return {}, START
        return states_of(reader.execution.replay.scheduler), reader.execution.cursor

    async def snapshot_at(self, cursor: Cursor) -> HistorySnapshot:
        """Return the state of the run at a position; an empty snapshot if the server no longer retains it."""
        reader = await self._reader_at(cursor)
        if reader is None:
            return HistorySnapshot()
        replay = reader.execution.replay
        await replay.settle()
        return HistorySnapshot(replay.scheduler, reader.execution.cursor, replay.is_closed)

    async def started_at_cursor(self, cursor: Cursor) -> set[str]:
        """Return the tasks that had started at a position; see `states_at`."""
        reader = await self._reader_at(cursor)
        return set() if reader is None else started_in(reader.execution.replay.scheduler)

    async def _reader_at(self, cursor: Cursor) -> HistoryReader | None:
        """Return a reader at a position; `None` if the server no longer retains it."""
        description = await self._describe()
        executions = await self._executions_until(description)
        if cursor.run > len(executions):
            return None
        reader = self._reader(executions[cursor.run - 1], number=cursor.run)
        try:
            await reader.read_to(cursor.event)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None
        return reader

    def _reader(self, run_id: str, *, number: int) -> HistoryReader:
        return HistoryReader(self._client, self._workflow_id, run_id, number=number)

    async def _number_of(self, description: WorkflowExecutionDescription) -> int:
        """Return the number of the described execution in its run; 1 for the first."""
        executions = await self._executions_until(description)
        known = executions.index(description.run_id) if description.run_id in executions else len(executions)
        return known + 1

    async def _executions_until(self, description: WorkflowExecutionDescription) -> list[str]:
        first, last = _first_run_id(description), description.run_id
        return await executions_of(self._client, self._workflow_id, first_run_id=first, last_run_id=last)

    async def _describe(self, run_id: str | None = None) -> WorkflowExecutionDescription:
        handle = self._client.get_workflow_handle(self._workflow_id, run_id=run_id or self._run_id)
        try:
            described = await handle.describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise RunNotFound(f"there is no run {self._workflow_id!r:.200}") from None
            raise
        if described.workflow_type == wire.WORKFLOW_SESSION:
            name = self._workflow_id.removeprefix(wire.ID_SESSION)
            raise RunNotFound(f"{self._workflow_id!r} is a session, not a run: `dagwright session {name}` shows it")
        await decode_pending(described.raw_description, self._client)
        return described

    async def _view_with_retries(self, reader: HistoryReader, before: WorkflowExecutionDescription) -> RunView:
        """Return the current state of the run, with retries if the server does not respond.

        Args:
            before: the last result of `describe`; a closed run is not described again.
        """
        give_up_at = time.monotonic() + LOST_SERVER_S
        while True:
            try:
                is_closed = reader.execution.replay.is_closed
                description = before if is_closed else await self._describe(reader.execution.run_id)
                return await self._view(reader, description)
            except RPCError:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(DESCRIBE_PAUSE_S)

    async def _view(self, reader: HistoryReader, description: WorkflowExecutionDescription) -> RunView:
        raw = description.raw_description
        async with reader.lock:
            replay = reader.execution.replay
            await replay.settle()
            is_open = not replay.is_closed and description.run_id == reader.execution.run_id
            calls = open_calls(raw, replay) if is_open else []
            held = [call for call in calls if call.held is not None]
            deferred = [call for call in calls if call.deferred is not None]
            waiting = await calls_without_worker(self._client, calls)
            has_no_slot = waits_for_slot(calls, without_worker=waiting)
            children = await self._waiting_sub_plans(raw, replay) if is_open else {}
            notes = [*replay.notes, *current_notes(replay.scheduler)]
            if is_open:
                notes += [*task_notes(raw, replay.task_failure), *store_notes(raw, replay)]
                notes += lookup_notes(raw, replay)
            if waiting:
                notes += await self._no_worker_notes(waiting, description)
            if has_no_slot:
                notes.append(no_free_slot_note())
            notes += paused_call_notes(held)
            for task_id, view in children.items():
                notes += [{**note, "node_id": task_id} for note in view.notes if note["code"] in NOTES_OF_WAITING]
            if replay.scheduler is not None:
                reasons = {call.task: reason_of(call) for call in [*waiting, *held, *deferred] if call.task is not None}
                reader.marks.put(replay.scheduler, reasons | {task: view.reason for task, view in children.items()})
            idle = len(waiting) + len(held) + len(deferred) + has_no_slot
            is_waiting = idle == len(calls) and len(children) == len(raw.pending_children)
            return RunView(
                workflow_id=self._workflow_id,
                run_id=reader.execution.run_id,
                status=_status_of(replay, is_waiting=is_waiting and bool(idle or children)),
                title=replay.title,
                scheduler=replay.scheduler,
                pending=pending_calls(raw, replay) if is_open else {},
                started_at=replay.started_at,
                ended_at=replay.ended_at,
                is_closed=replay.is_closed,
                closing_document=replay.document,
                error=replay.error.to_json() if replay.error else None,
                notes=notes,
                cursor=reader.execution.cursor,
                run_input=replay.run_input,
                first_run_id=_first_run_id(description),
                pending_commands=replay.pending_commands,
                has_marks=not reader.marks.is_empty,
                hidden=reader.marks.hidden,
                opened=replay.opened,
                has_no_slot=has_no_slot,
            )

    async def _no_worker_notes(
        self, waiting: Sequence[OpenCall], description: WorkflowExecutionDescription
    ) -> list[dict[str, Any]]:
        """Return advice about calls that wait for a worker; the top run knows the tools of its child runs."""
        # The top-level run may have been removed after its retention period.
        with suppress(RunNotFound):
            if (root := root_in(await description.memo())) is not None:
                description = await RunReader(self._client, root)._describe()
        tools = tools_of(await description.memo())
        return no_worker_notes(waiting, workflow_id=description.id, tools=tools, own_queue=description.task_queue)

    async def _waiting_sub_plans(
        self, raw: DescribeWorkflowExecutionResponse, replay: HistoryReplay
    ) -> dict[str, RunView]:
        """Return the sub-plans that wait: task id -> view. At most some dozens are checked."""
        sub_plans = {}
        for child in raw.pending_children[:MAX_CHECKED_SUB_PLANS]:
            task_id = replay.sub_plan_of(child.workflow_id)
            reader_of_child = RunReader(self._client, child.workflow_id, run_id=child.run_id or None)
            # The history of a sub-plan is only read if one of its calls has not been started.
            with suppress(RunNotFound):
                if task_id is not None and may_wait((await reader_of_child._describe()).raw_description):
                    view = await reader_of_child.read()
                    if view.status == RunStatus.WAITING:
                        sub_plans[task_id] = view
        return sub_plans


def tools_of(memo: Mapping[str, Any]) -> list[str]:
    """Return the `--tools` of a run, from its memo."""
    tools = memo.get(wire.MEMO_TOOLS)
    return [str(reference) for reference in tools] if isinstance(tools, list) else []


def _first_run_id(description: WorkflowExecutionDescription) -> str:
    return description.raw_description.workflow_execution_info.first_run_id or description.run_id


def _status_of(replay: HistoryReplay, *, is_waiting: bool) -> str:
    if replay.document is not None:
        return str(replay.document["status"])
    if replay.is_closed:
        return replay.closed_as or RunStatus.FAILED
    is_paused = replay.scheduler is not None and replay.scheduler.status() is RunStatus.WAITING
    return RunStatus.WAITING if is_waiting or is_paused else RunStatus.RUNNING
