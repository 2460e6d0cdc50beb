"""Reads the histories of a run, one execution after the other, into a projection of the newest."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventFilterType
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError

from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.scheduler.map_batches import shown_items
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.executions import Offset
from dagwright.history.queues import WaitMarks
from dagwright.history.replay import Projection
from dagwright.protocol.conversion import decode_payloads, without_codec

PAGE_PAUSE_S = 0.3
"""Rest between two pages of history: hurried readers would slow the run (docs/internals/temporal.md)."""
LOST_SERVER_S = 60.0
"""How long a reader waits for a server that does not answer, before it gives up."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a run and what its events say.

    Args:
        number: 1 for the first of the run.
    """

    run_id: str
    number: int
    projection: Projection

    @property
    def offset(self) -> Offset:
        """The last event that was taken."""
        return Offset(self.number, self.projection.last_event)

    @property
    def is_over(self) -> bool:
        """Tells whether nothing more will be written into its history."""
        return self.projection.is_closed or self.projection.continued_as is not None


class HistoryReader:
    """Reads one run.

    Whoever looks at the projection or marks it while `read_on` runs holds `turn` meanwhile.

    Args:
        run_id: the execution to begin with.
        number: which execution of the run it is, 1 for the first.
    """

    def __init__(self, client: Client, workflow_id: str, run_id: str, *, number: int) -> None:
        self._client = client
        self._workflow_id = workflow_id
        self._converter = client.data_converter.with_context(
            WorkflowSerializationContext(namespace=client.namespace, workflow_id=workflow_id)
        )
        self.execution = self._execution(run_id, number)
        """The newest execution of which anything is known."""
        self.marks = WaitMarks()
        self.turn = asyncio.Lock()
        self.changed = asyncio.Event()

    async def read_to(self, event_id: int) -> None:
        """Reads the events of the first execution up to one."""
        async for event in self._handle(self.execution).fetch_history_events():
            if event.event_id > event_id:
                break
            await self._take_event(self.execution, event)
        await self.execution.projection.take_held()

    async def read_to_end(self) -> None:
        """Reads all there is."""
        while True:
            async for event in self._handle(self.execution).fetch_history_events():
                await self._take_event(self.execution, event)
            await self.execution.projection.take_held()
            following = self._following()
            if following is self.execution:
                return
            self.execution = following

    async def read_on(self) -> None:
        """Reads the history as it grows, over new executions and losses of the server, until the run has ended.

        Raises:
            RPCError: the server has not answered for a minute.
        """
        lost_since: float | None = None
        while not self.execution.projection.is_closed:
            try:
                async for _ in self._pages():
                    lost_since = None
            except RPCError:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_SERVER_S:
                    raise
            await asyncio.sleep(PAGE_PAUSE_S)

    async def _pages(self) -> AsyncIterator[None]:
        """Takes the history of one execution page by page, as long as the server answers."""
        taking = self._following()
        events = self._handle(taking).fetch_history_events(
            wait_new_event=True, event_filter_type=WorkflowHistoryEventFilterType.ALL_EVENT
        )
        while True:
            await events.fetch_next_page()
            await self._take(taking, events.current_page or ())
            yield
            if taking.is_over or events.next_page_token is None:
                return
            await asyncio.sleep(PAGE_PAUSE_S)

    async def _take(self, taking: Execution, page: Sequence[HistoryEvent]) -> None:
        """Takes the events of a page that have not been taken before the server was lost."""
        async with self.turn:
            self.marks.clear()
            for event in page:
                if event.event_id > taking.projection.last_event:
                    await self._take_event(taking, event)
            await taking.projection.take_held()
            self.execution = taking
        self.changed.set()

    async def _take_event(self, taking: Execution, event: HistoryEvent) -> None:
        await decode_payloads(event, self._converter)
        await taking.projection.take(event)

    def _following(self) -> Execution:
        """Returns the execution in which the run goes on: a new one, if the one before says so."""
        continued_as = self.execution.projection.continued_as
        return self.execution if continued_as is None else self._execution(continued_as, self.execution.number + 1)

    def _execution(self, run_id: str, number: int) -> Execution:
        return Execution(run_id, number, Projection(self._workflow_id, without_codec(self._converter)))

    def _handle(self, execution: Execution) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(self._workflow_id, run_id=execution.run_id)


class TaskState(NamedTuple):
    """What of a node or an item changes while its run goes on."""

    status: NodeStatus
    attempts: int
    reason: str | None


def states_of(scheduler: RunScheduler | None) -> dict[str, TaskState]:
    """Returns the states of all nodes and items that have moved: task id -> state, in plan order."""
    found: dict[str, TaskState] = {}
    if scheduler is None:
        return found
    for node, record in scheduler.state.shown():
        for item in shown_items(record):
            found[f"{node.id}[{item.key}]"] = _state(item.record)
        if record.status is not NodeStatus.PENDING:
            found[node.id] = _state(record)
    return found


def begun_in(scheduler: RunScheduler | None) -> set[str]:
    """Returns the nodes and items that have begun, whatever became of them."""
    states = states_of(scheduler)
    records = {task: scheduler.record_of(task) for task in states} if scheduler is not None else {}
    return {task for task, record in records.items() if record is not None and has_begun(states[task], record)}


def has_begun(state: TaskState, record: Record) -> bool:
    """Tells whether a node or item has begun.

    Args:
        record: of the same, or of a later moment.
    """
    if state.status is NodeStatus.RUNNING or state.attempts:
        return True
    is_known = state.status is not NodeStatus.WAITING or record.status is NodeStatus.WAITING
    return is_known and state.status not in (NodeStatus.PENDING, NodeStatus.READY) and record.started_at is not None


def _state(record: Record) -> TaskState:
    return TaskState(record.status, record.attempts, record.reason)
