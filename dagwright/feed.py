"""`RunFeed`: what a run is doing, from its history and from `describe`.

It is the one way in which commands look at a run.

It needs no worker, works after the run closed, and never asks the workflow (engine-findings.md 11, 13).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from dagwright.contracts.documents import (
    RunFacts,
    compact_value,
    encoded_size,
    graph_document,
    result_document,
)
from dagwright.contracts.limits import MESSAGE_LIMIT_BYTES, cut_text
from dagwright.plan.scheduler import Scheduler
from dagwright.projection import Projection, is_reference

PAGE_PAUSE_S = 0.3
"""Rest between two pages of history: hurried readers would slow the run (engine-findings.md 11)."""
DESCRIBE_PAUSE_S = 1.0
RESTORED_BYTES = 1024 * 1024
"""A value up to this size is put back into a document unless all are asked for."""
LOST_SERVER_S = 60.0
"""How long a reader waits for a server that does not answer, before it gives up."""

_STATES = {
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED: "started",
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED: "scheduled",
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "cancelling",
}


class RunNotFound(Exception):
    """There is no run of that id."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """What the server says of a call in flight.

    Args:
        attempt: 1 for the first.
        state: `scheduled` (no worker has it), `started`, `backing_off` (waits for the next attempt) or
            `cancelling`.
        last_failure: message of the last failed attempt.
        next_attempt_at: seconds since the epoch, while it backs off.
    """

    attempt: int
    state: str
    last_failure: str | None = None
    next_attempt_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment.

    Args:
        status: the state of the run (contract.md section 4).
        scheduler: the projected scheduler; `None` while the plan is not known.
        pending: task id -> the call in flight.
        notes: what is worth saying, such as a workflow task that keeps failing.
    """

    workflow_id: str
    run_id: str
    status: str
    title: str | None
    scheduler: Scheduler | None
    pending: Mapping[str, PendingCall]
    started_at: float | None
    ended_at: float | None
    is_closed: bool
    written: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)

    def document(self, *, full: bool = False) -> dict[str, Any]:
        """Returns the result document; values that the run wrote by reference are put back.

        Args:
            full: put back values over 1 MiB as well.
        """
        facts = RunFacts(self.workflow_id, self.run_id, title=self.title, error=self.error, notes=self.notes)
        document = result_document(self.scheduler, facts, status=self.status)
        if self.written is not None:
            document = self._as_written(document, self.written)
        if not full:
            document["output"] = _shortened(document["output"], ref="output")
            for name, node in document["nodes"].items():
                node["result"] = _shortened(node["result"], ref=f"node:{name}")
        return document

    def _as_written(self, projected: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the document that the run wrote, with the values that stand there by reference."""
        document = {**projected, **{key: written[key] for key in projected if key in written}}
        document |= {"workflow_id": self.workflow_id, "run_id": self.run_id, "status": self.status}
        document["notes"] = [*document["notes"], *(note for note in self.notes if note not in document["notes"])]
        if is_reference(document["output"], ref="output") and self.scheduler is not None:
            output, error = self.scheduler.output()
            document["output"] = document["output"] if error else output
        if "nodes_ref" in written:
            document["nodes"] = projected["nodes"]
            return document
        document["nodes"] = {
            name: {**node, "result": projected["nodes"][name]["result"]}
            if is_reference(node["result"], ref=f"node:{name}") and name in projected["nodes"]
            else dict(node)
            for name, node in document["nodes"].items()
        }
        return document

    def graph(self) -> dict[str, Any]:
        """Returns nodes and edges with their states."""
        return graph_document(self.scheduler) if self.scheduler else {"nodes": [], "edges": []}

    @property
    def nodes_done(self) -> int:
        """Count of nodes in a final state."""
        return sum(record.status.is_final for record in self.scheduler.records) if self.scheduler else 0


def _shortened(value: Any, *, ref: str) -> Any:
    return value if encoded_size(value) <= RESTORED_BYTES else compact_value(value, ref=ref)


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
        projection = await self._project(description.run_id)
        return self._view(projection, description)

    async def follow(self) -> AsyncIterator[RunView]:
        """Yields the run now, after every change (at most every 0.3 s), and once more when it has closed.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not answered for a minute.
        """
        description = await self._describe()
        projection = Projection(self._workflow_id, self._client.data_converter)
        changed = asyncio.Event()
        reader = asyncio.create_task(self._read_on(projection, description.run_id, changed))
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), DESCRIBE_PAUSE_S)
                changed.clear()
                if reader.done():
                    await reader
                if not projection.is_closed:
                    description = await self._patiently_describe(description.run_id)
                yield self._view(projection, description)
                if projection.is_closed:
                    return
        finally:
            reader.cancel()

    async def _describe(self, run_id: str | None = None) -> WorkflowExecutionDescription:
        handle = self._client.get_workflow_handle(self._workflow_id, run_id=run_id or self._run_id)
        try:
            return await handle.describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise RunNotFound(f"there is no run {self._workflow_id!r}") from None
            raise

    async def _patiently_describe(self, run_id: str) -> WorkflowExecutionDescription:
        give_up_at = time.monotonic() + LOST_SERVER_S
        while True:
            try:
                return await self._describe(run_id)
            except RPCError:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(DESCRIBE_PAUSE_S)

    async def _project(self, run_id: str) -> Projection:
        projection = Projection(self._workflow_id, self._client.data_converter)
        handle = self._client.get_workflow_handle(self._workflow_id, run_id=run_id)
        async for event in handle.fetch_history_events():
            await projection.take(event)
        return projection

    async def _read_on(self, projection: Projection, run_id: str, changed: asyncio.Event) -> None:
        """Reads the history as it grows, over losses of the server."""
        seen = 0
        lost_since: float | None = None
        while not projection.is_closed:
            handle = self._client.get_workflow_handle(self._workflow_id, run_id=run_id)
            events = handle.fetch_history_events(
                wait_new_event=True, event_filter_type=WorkflowHistoryEventFilterType.ALL_EVENT
            )
            try:
                while not projection.is_closed:
                    await events.fetch_next_page()
                    lost_since = None
                    for event in events.current_page or ():
                        if event.event_id > seen:
                            seen = event.event_id
                            await projection.take(event)
                    changed.set()
                    if events.next_page_token is None:
                        break
                    await asyncio.sleep(PAGE_PAUSE_S)
            except RPCError:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_SERVER_S:
                    raise
            await asyncio.sleep(PAGE_PAUSE_S)

    def _view(self, projection: Projection, description: WorkflowExecutionDescription) -> RunView:
        projection.settle()
        pending = {}
        for call in description.raw_description.pending_activities if not projection.is_closed else ():
            task_id = projection.task_of(call.activity_id)
            if task_id is not None:
                pending[task_id] = _pending_call(call)
        return RunView(
            workflow_id=self._workflow_id,
            run_id=description.run_id,
            status=_status_of(projection),
            title=projection.title,
            scheduler=projection.scheduler,
            pending=pending,
            started_at=projection.started_at,
            ended_at=projection.ended_at,
            is_closed=projection.is_closed,
            written=projection.document,
            error=projection.error.to_json() if projection.error else None,
            notes=[*projection.notes, *_task_notes(description, projection.task_failure)],
        )


def _pending_call(call: PendingActivityInfo) -> PendingCall:
    state = _STATES.get(call.state, "scheduled")
    is_backing_off = state == "scheduled" and call.HasField("next_attempt_schedule_time")
    return PendingCall(
        attempt=call.attempt,
        state="backing_off" if is_backing_off else state,
        last_failure=call.last_failure.message if call.HasField("last_failure") else None,
        next_attempt_at=call.next_attempt_schedule_time.ToNanoseconds() / 1e9 if is_backing_off else None,
    )


def _status_of(projection: Projection) -> str:
    if projection.document is not None:
        return str(projection.document["status"])
    if projection.is_closed:
        return projection.closed_as or "failed"
    return "running"


def _task_notes(description: WorkflowExecutionDescription, failure: str | None) -> list[dict[str, Any]]:
    """Returns a note if the workflow task fails again and again; history holds the first failure of a series."""
    task = description.raw_description.pending_workflow_task
    if task.attempt <= 2:
        return []
    cause = cut_text(failure, max_bytes=MESSAGE_LIMIT_BYTES) if failure else "no worker answered in time"
    message = (
        f"the run cannot go on: its workflow task has failed {task.attempt - 1} times ({cause}); it is tried again "
        "and again, and goes on by itself when a worker can do it"
    )
    return [{"code": "workflow_task_failing", "node": None, "message": message}]
