"""`RunFeed`: what a run is doing, from its history and from `describe`.

It is the one way in which commands look at a run.

It needs no worker, works after the run closed, and never asks the workflow (docs/guards.md F11, F13).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.core.errors import DagwrightError
from dagwright.core.expressions.stored_values import is_whole
from dagwright.core.expressions.value_refs import with_shown
from dagwright.core.model.requests import Request
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.core.scheduler.run_end import counts_of
from dagwright.features.commands.steering import standing_notes
from dagwright.features.compensation.compensation import compensation_counts
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.closing_event import is_reference
from dagwright.history.executions import BEGINNING, Offset, executions_of, root_run, run_above
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
from dagwright.history.queues import NOTES_OF_WAITING, OpenCall, held_notes, notes_of, reason_of, unserved
from dagwright.history.reader import LOST_SERVER_S, HistoryReader, TaskState, begun_in, states_of
from dagwright.history.replay import Projection
from dagwright.protocol.command_handler import ReadMessage
from dagwright.protocol.documents import (
    RunFacts,
    compact_value,
    encoded_size,
    graph_document,
    reference_to,
    result_document,
)
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.messages import RunInput

DESCRIBE_PAUSE_S = 1.0
SUB_PLANS_LOOKED_AT = 30
"""Sub-plans of one run that are asked for what they wait for, once a second."""
RESTORED_BYTES = 1024 * 1024
"""A value up to this size is put back into a document unless all are asked for."""


class RunNotFound(DagwrightError):
    """There is no run of that id."""


class RunClosed(DagwrightError):
    """The run has ended, so nothing can be done to it."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment.

    Args:
        status: the state of the run (docs/internals/states.md).
        scheduler: the projected scheduler; `None` while the plan is not known.
        run_id: the newest execution of it.
        pending: task id -> the call in flight.
        notes: what is worth saying, such as a workflow task that keeps failing.
        offset: the last event that it holds; what `describe` knows beside it may be newer.
        run_input: what its newest execution was given.
        first_run_id: its first execution, the scope of its idempotency keys.
        pending_commands: returns the signals of people that no workflow task has taken: when, its name, and what reads
            it.
        has_marks: whether some tasks are shown to wait for a worker, which `describe` knows and no event tells.
        opened: requests that were opened in the newest execution by ID, those that are closed included.
        hidden: node or item that is shown to wait for a worker -> its status in the history.
    """

    workflow_id: str
    run_id: str
    status: str
    title: str | None
    scheduler: RunScheduler | None
    pending: Mapping[str, PendingCall]
    started_at: float | None
    ended_at: float | None
    is_closed: bool
    written: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)
    offset: Offset = BEGINNING
    run_input: RunInput | None = None
    first_run_id: str = ""
    pending_commands: Callable[[], list[tuple[float, str, ReadMessage]]] = list
    has_marks: bool = False
    hidden: Mapping[str, NodeStatus] = field(default_factory=dict)
    opened: Mapping[str, Request] = field(default_factory=dict, repr=False)

    def document(self) -> dict[str, Any]:
        """Returns the result document; values over 1 MiB, and those in the payload store, stand there by reference."""
        document = self.unfilled_document()
        document["output"] = shortened(document["output"], ref="output")
        for name, node in document["nodes"].items():
            node["result"] = shortened(node["result"], ref=f"node:{name}")
        return document

    def unfilled_document(self) -> dict[str, Any]:
        """Return the result document with every value; what lies in the payload store is a `StoredValue` there.

        Its `error` says why the run failed, also if only nodes failed: `protocol.failures`.
        """
        document = self._recorded_document()
        return {**document, "error": run_error_of(document)}

    def _recorded_document(self) -> dict[str, Any]:
        facts = RunFacts(self.workflow_id, self.run_id, title=self.title, error=self.error, notes=self.notes)
        document = result_document(self.scheduler, facts, status=self.status)
        return document if self.written is None else self._as_written(document, self.written)

    def _as_written(self, projected: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the document that the run wrote, with the values that stand there by reference."""
        document = {**projected, **{key: written[key] for key in projected if key in written}}
        document |= {"run_id": self.workflow_id, "execution_id": self.run_id, "status": self.status}
        document["notes"] = [*document["notes"], *(note for note in self.notes if note not in document["notes"])]
        if self.scheduler is not None:
            output, error = self.scheduler.output()
            if error is None and _stands_for(document["output"], output, ref="output"):
                document["output"] = output
        if "nodes_ref" in written:
            document["nodes"] = projected["nodes"]
            # What is listed here is not counted there.
            if "nodes_ref" in projected:
                document["nodes_ref"] = projected["nodes_ref"]
            return document
        document["nodes"] = {
            name: {**node, "result": projected["nodes"][name]["result"]}
            if name in projected["nodes"]
            and _stands_for(node["result"], projected["nodes"][name]["result"], ref=f"node:{name}")
            else dict(node)
            for name, node in document["nodes"].items()
        }
        return document

    def graph(self) -> dict[str, Any]:
        """Returns nodes and edges with their states."""
        return graph_document(self.scheduler) if self.scheduler else {"nodes": [], "edges": []}

    @property
    def reason(self) -> str:
        """What a run that waits waits for."""
        if self.scheduler is not None and self.scheduler.features.feedback.requests.open:
            return next(iter(self.scheduler.features.feedback.requests.open.values())).waits_for
        records = [record for _, record in self.scheduler.state.shown()] if self.scheduler else []
        reasons = [record.reason for record in records if record.status is NodeStatus.WAITING and record.reason]
        return reasons[0] if reasons else "no worker serves its queue"

    @property
    def nodes_done(self) -> int:
        """Count of nodes that came to an end of their own, those that take something back left out."""
        if self.scheduler is None:
            return 0
        counts = counts_of(self.scheduler.plan, self.scheduler.records) - compensation_counts(self.scheduler.state)
        return sum(count for status, count in counts.items() if status.has_ended)

    @property
    def nodes_total(self) -> int | None:
        """Count of the nodes of the plan, those that take something back left out; `None` if there is no plan yet."""
        if self.scheduler is None:
            return None
        return self.scheduler.plan.written_count - compensation_counts(self.scheduler.state).total()


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """A run at a place in its history.

    Args:
        scheduler: the projected scheduler; `None` while the plan is not known.
        offset: the last event that was read.
    """

    scheduler: RunScheduler | None = None
    offset: Offset = BEGINNING
    is_closed: bool = False


def _stands_for(written: Any, value: Any, *, ref: str) -> bool:
    """Tells whether what a run wrote only refers to a value."""
    return is_reference(written, ref=ref) or not is_whole(value)


def shortened(value: Any, *, ref: str) -> Any:
    """Returns a value, or a reference to it if it is over 1 MiB; what lies in the payload store is one anyway."""
    if encoded_size(value) > RESTORED_BYTES:
        return compact_value(value, ref=ref)
    return value if is_whole(value) else with_shown(value, lambda part: reference_to(part, ref=ref))


class RunFeed:
    """Reads one run.

    Args:
        client: connected to the run's namespace.
        workflow_id: id of the run.
        run_id: one execution of that id; `None` is the newest.
    """

    def __init__(self, client: Client, workflow_id: str, *, run_id: str | None = None) -> None:
        self._client = client
        self._workflow_id = workflow_id
        self._run_id = run_id

    async def read(self) -> RunView:
        """Returns the run as it is now.

        Raises:
            RunNotFound: there is no such run.
        """
        description = await self._describe()
        reader = self._reader(description.run_id, number=await self._number_of(description))
        await reader.read_to_end()
        if reader.execution.run_id != description.run_id:
            # It went on in a new execution after it was described.
            description = await self._describe(reader.execution.run_id)
        return await self._view(reader, description)

    async def follow(self) -> AsyncGenerator[RunView, None]:
        """Yields the run now, after every change (at most every 0.3 s), and once more when it has closed.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not answered for a minute.
        """
        description = await self._describe()
        reader = self._reader(description.run_id, number=await self._number_of(description))
        reading = asyncio.create_task(reader.read_on())
        try:
            while True:
                with suppress(TimeoutError):
                    # `wait_for` loses a cancellation that comes with what it waits for.
                    async with asyncio.timeout(DESCRIBE_PAUSE_S):
                        await reader.changed.wait()
                reader.changed.clear()
                if reading.done():
                    await reading
                view = await self._patiently_view(reader, description)
                yield view
                if view.is_closed:
                    return
        finally:
            reading.cancel()

    async def states_at(self, offset: Offset) -> dict[str, TaskState]:
        """Returns the states of all tasks that a subscriber has seen who has seen everything up to `offset`.

        Of an execution that the server does not keep any more, nothing is known.
        """
        return (await self.seen_at(offset))[0]

    async def seen_at(self, offset: Offset) -> tuple[dict[str, TaskState], Offset]:
        """Returns what `states_at` does, and the place up to which there is something to be seen: at most `offset`."""
        reader = await self._reader_at(offset)
        if reader is None:
            return {}, BEGINNING
        return states_of(reader.execution.projection.scheduler), reader.execution.offset

    async def snapshot_at(self, offset: Offset) -> HistorySnapshot:
        """Return the run as its history up to `offset` shows it; nothing if the server no longer keeps that."""
        reader = await self._reader_at(offset)
        if reader is None:
            return HistorySnapshot()
        projection = reader.execution.projection
        await projection.settle()
        return HistorySnapshot(projection.scheduler, reader.execution.offset, projection.is_closed)

    async def begun_at(self, offset: Offset) -> set[str]:
        """Returns the tasks of which a subscriber has seen that they began; as `states_at`."""
        reader = await self._reader_at(offset)
        return set() if reader is None else begun_in(reader.execution.projection.scheduler)

    async def _reader_at(self, offset: Offset) -> HistoryReader | None:
        """Returns a reader that has read up to a place; `None` if the server does not keep that."""
        description = await self._describe()
        executions = await self._executions_until(description)
        if offset.run > len(executions):
            return None
        reader = self._reader(executions[offset.run - 1], number=offset.run)
        try:
            await reader.read_to(offset.event)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None
        return reader

    def _reader(self, run_id: str, *, number: int) -> HistoryReader:
        return HistoryReader(self._client, self._workflow_id, run_id, number=number)

    async def _number_of(self, description: WorkflowExecutionDescription) -> int:
        """Returns which execution of its run the described one is; 1 for the first."""
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
            raise RunNotFound(f"{self._workflow_id!r} is a session and no run: `dagwright session {name}` shows it")
        await decode_pending(described.raw_description, self._client)
        return described

    async def _patiently_view(self, reader: HistoryReader, before: WorkflowExecutionDescription) -> RunView:
        """Returns the run as it is now, also if the server is gone for a while.

        Args:
            before: what `describe` told last; of a run that has closed it is asked no more.
        """
        give_up_at = time.monotonic() + LOST_SERVER_S
        while True:
            try:
                is_closed = reader.execution.projection.is_closed
                description = before if is_closed else await self._describe(reader.execution.run_id)
                return await self._view(reader, description)
            except RPCError:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(DESCRIBE_PAUSE_S)

    async def _view(self, reader: HistoryReader, description: WorkflowExecutionDescription) -> RunView:
        raw = description.raw_description
        async with reader.turn:
            projection = reader.execution.projection
            await projection.settle()
            is_open = not projection.is_closed and description.run_id == reader.execution.run_id
            calls = open_calls(raw, projection) if is_open else []
            held = [call for call in calls if call.held is not None]
            waiting = await unserved(self._client, calls)
            below = await self._waiting_sub_plans(raw, projection) if is_open else {}
            notes = [*projection.notes, *standing_notes(projection.scheduler)]
            if is_open:
                notes += [*task_notes(raw, projection.task_failure), *store_notes(raw, projection)]
                notes += lookup_notes(raw, projection)
            if waiting:
                notes += await self._no_worker_notes(waiting, description)
            notes += held_notes(held)
            for task_id, view in below.items():
                notes += [{**note, "node_id": task_id} for note in view.notes if note["code"] in NOTES_OF_WAITING]
            if projection.scheduler is not None:
                reasons = {call.task: reason_of(call) for call in [*waiting, *held] if call.task is not None}
                reader.marks.put(projection.scheduler, reasons | {task: view.reason for task, view in below.items()})
            is_waiting = len(waiting) + len(held) == len(calls) and len(below) == len(raw.pending_children)
            return RunView(
                workflow_id=self._workflow_id,
                run_id=reader.execution.run_id,
                status=_status_of(projection, is_waiting=is_waiting and bool(waiting or held or below)),
                title=projection.title,
                scheduler=projection.scheduler,
                pending=pending_calls(raw, projection) if is_open else {},
                started_at=projection.started_at,
                ended_at=projection.ended_at,
                is_closed=projection.is_closed,
                written=projection.document,
                error=projection.error.to_json() if projection.error else None,
                notes=notes,
                offset=reader.execution.offset,
                run_input=projection.run_input,
                first_run_id=_first_run_id(description),
                pending_commands=projection.pending_commands,
                has_marks=not reader.marks.is_empty,
                hidden=reader.marks.hidden,
                opened=projection.opened,
            )

    async def _no_worker_notes(
        self, waiting: Sequence[OpenCall], description: WorkflowExecutionDescription
    ) -> list[dict[str, Any]]:
        """Returns what to do about calls that wait for a worker: the run above all knows the tools of those below."""
        # One above may have ended so long ago that the server has forgotten it.
        with suppress(RunNotFound):
            while (above := root_run(description) or run_above(description)) not in (None, description.id):
                description = await RunFeed(self._client, str(above))._describe()
        tools = tools_of(await description.memo())
        return notes_of(waiting, workflow_id=description.id, tools=tools, own_queue=description.task_queue)

    async def _waiting_sub_plans(
        self, raw: DescribeWorkflowExecutionResponse, projection: Projection
    ) -> dict[str, RunView]:
        """Returns the sub-plans that wait: task id -> view. Those beyond some dozens are not looked at."""
        found = {}
        for child in raw.pending_children[:SUB_PLANS_LOOKED_AT]:
            task_id = projection.sub_plan_of(child.workflow_id)
            feed = RunFeed(self._client, child.workflow_id, run_id=child.run_id or None)
            # The look at the sub-plan's own history is for those of which something has not been taken.
            with suppress(RunNotFound):
                if task_id is not None and may_wait((await feed._describe()).raw_description):
                    view = await feed.read()
                    if view.status == RunStatus.WAITING:
                        found[task_id] = view
        return found


def tools_of(memo: Mapping[str, Any]) -> list[str]:
    """Returns the `--tools` of a run, from its memo."""
    tools = memo.get(wire.MEMO_TOOLS)
    return [str(reference) for reference in tools] if isinstance(tools, list) else []


def _first_run_id(description: WorkflowExecutionDescription) -> str:
    return description.raw_description.workflow_execution_info.first_run_id or description.run_id


def _status_of(projection: Projection, *, is_waiting: bool) -> str:
    if projection.document is not None:
        return str(projection.document["status"])
    if projection.is_closed:
        return projection.closed_as or RunStatus.FAILED
    is_paused = projection.scheduler is not None and projection.scheduler.status() is RunStatus.WAITING
    return RunStatus.WAITING if is_waiting or is_paused else RunStatus.RUNNING
