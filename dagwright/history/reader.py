"""Reader of the histories of a run, one execution after the other, which replays the newest one."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventFilterType
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError

from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.scheduler.map_items import listed_items
from dagwright.history.executions import Cursor
from dagwright.history.queues import WaitMarks
from dagwright.history.replay import HistoryReplay
from dagwright.protocol.conversion import decode_payloads, without_codec

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

PAGE_PAUSE_S = 0.3
"""Pause between two pages of history: faster readers would slow down the run
(docs/contributing/internals/temporal.md)."""
LOST_SERVER_S = 60.0
"""Time after which a reader gives up on a server that does not respond."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a run with the replay of its events.

    Args:
        number: 1 for the first execution of the run.
    """

    run_id: str
    number: int
    replay: HistoryReplay

    @property
    def cursor(self) -> Cursor:
        """Position after the last applied event."""
        return Cursor(self.number, self.replay.last_event)

    @property
    def is_over(self) -> bool:
        """Whether its history is complete."""
        return self.replay.is_closed or self.replay.continued_as is not None


class HistoryReader:
    """Reader of one run.

    Code that uses the replay or `marks` while `follow` is running must hold `lock`.

    Args:
        run_id: the execution to start with.
        number: number of that execution in the run, 1 for the first.
    """

    def __init__(self, client: Client, workflow_id: str, run_id: str, *, number: int) -> None:
        self._client = client
        self._workflow_id = workflow_id
        self._converter = client.data_converter.with_context(
            WorkflowSerializationContext(namespace=client.namespace, workflow_id=workflow_id)
        )
        self.execution = self._execution(run_id, number)
        """The newest known execution."""
        self.marks = WaitMarks()
        self.lock = asyncio.Lock()
        self.changed = asyncio.Event()

    async def read_to(self, event_id: int) -> None:
        """Read the events of the first execution up to an event."""
        async for event in self._handle(self.execution).fetch_history_events():
            if event.event_id > event_id:
                break
            await self._apply_event(self.execution, event)
        await self.execution.replay.apply_held()

    async def read_to_end(self) -> None:
        """Read all events."""
        while True:
            async for event in self._handle(self.execution).fetch_history_events():
                await self._apply_event(self.execution, event)
            await self.execution.replay.apply_held()
            current = self._current_execution()
            if current is self.execution:
                return
            self.execution = current

    async def follow(self) -> None:
        """Read the history as it grows, across new executions and connection losses, until the run has ended.

        Raises:
            RPCError: the server has not responded for a minute.
        """
        lost_since: float | None = None
        while not self.execution.replay.is_closed:
            try:
                async for _ in self._pages():
                    lost_since = None
            except RPCError:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_SERVER_S:
                    raise
            await asyncio.sleep(PAGE_PAUSE_S)

    async def _pages(self) -> AsyncIterator[None]:
        """Apply the history of one execution page by page, as long as the server responds."""
        execution = self._current_execution()
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
        """Apply the events of a page that were not applied before the connection was lost."""
        async with self.lock:
            self.marks.clear()
            for event in page:
                if event.event_id > execution.replay.last_event:
                    await self._apply_event(execution, event)
            await execution.replay.apply_held()
            self.execution = execution
        self.changed.set()

    async def _apply_event(self, execution: Execution, event: HistoryEvent) -> None:
        await decode_payloads(event, self._converter)
        await execution.replay.apply(event)

    def _current_execution(self) -> Execution:
        """Return the current execution: a new one if the previous one continued as new."""
        continued_as = self.execution.replay.continued_as
        return self.execution if continued_as is None else self._execution(continued_as, self.execution.number + 1)

    def _execution(self, run_id: str, number: int) -> Execution:
        return Execution(run_id, number, HistoryReplay(self._workflow_id, without_codec(self._converter)))

    def _handle(self, execution: Execution) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(self._workflow_id, run_id=execution.run_id)


class TaskState(NamedTuple):
    """State of a node or item that changes while its run continues."""

    status: NodeStatus
    attempts: int
    reason: str | None


def states_of(scheduler: "RunScheduler | None") -> dict[str, TaskState]:
    """Return the states of all nodes and items that are no longer pending: task id -> state, in plan order."""
    states: dict[str, TaskState] = {}
    if scheduler is None:
        return states
    for node, record in scheduler.state.visible_nodes():
        for item in listed_items(record):
            states[f"{node.id}[{item.key}]"] = _state(item.record)
        if record.status is not NodeStatus.PENDING:
            states[node.id] = _state(record)
    return states


def started_in(scheduler: "RunScheduler | None") -> set[str]:
    """Return the nodes and items that have started, whatever their outcome."""
    states = states_of(scheduler)
    records = {task: scheduler.record_of(task) for task in states} if scheduler is not None else {}
    return {task for task, record in records.items() if record is not None and has_started(states[task], record)}


def has_started(state: TaskState, record: Record) -> bool:
    """Return whether a node or item has started.

    Args:
        record: record of the same moment, or of a later one.
    """
    if state.status is NodeStatus.RUNNING or state.attempts:
        return True
    is_known = state.status is not NodeStatus.WAITING or record.status is NodeStatus.WAITING
    return is_known and state.status not in (NodeStatus.PENDING, NodeStatus.READY) and record.started_at is not None


def _state(record: Record) -> TaskState:
    return TaskState(record.status, record.attempts, record.reason)
