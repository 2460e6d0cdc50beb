"""Detection of calls that wait for a worker, and advice on how to start a worker.

A queue without a worker causes no event and no error: the server keeps the call until a worker polls. The server
returns the time of the last poll of each worker. For five minutes after a worker ends, the server lists the worker with
the time at which the connection ended. A worker with free slots takes a call at once. So a call that has been scheduled
for some seconds, without a poll since then, waits for a worker. A worker without free slots does not poll either. If
the run has a running call on the queue, the queue counts as served.
"""

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.core.boundary import wire
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.tools import AGENT_PREFIX
from dagwright.tools.queue_names import FILE_PLACEHOLDER, is_queue_served_by, is_tool_queue, worker_options

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

NO_WORKER_AFTER_S = 3.0
"""Time after which a scheduled call counts as waiting for a worker. A worker needs about 1 s to start."""

WAITING_NOTE_CODES = ("no_worker", "no_free_slot", "tool_missing", "tool_paused", "call_paused")
"""Codes of the notes with advice about waiting calls."""

NO_FREE_SLOT = "no worker has a free slot"
"""Reason why a run waits: workers poll, but they continue other runs before they take the next step of this run."""

_RPC_TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Queue:
    """Task queue. A workflow queue and an activity queue may have the same name."""

    name: str
    kind: TaskQueueType.ValueType


@dataclass(frozen=True, slots=True)
class OpenCall:
    """Work that the server keeps for a run until the work is done.

    Args:
        queue: task queue of the call.
        is_started: whether a worker has received the call.
        scheduled_at: time at which the call was scheduled, in seconds since the epoch; `None` if the call is not
            scheduled yet, or has started.
        task: id of the plan's task; `None` for other work of the run.
        tool: name of the activity.
        is_foreign: whether a worker of another program serves the tool.
        pause_reason: why the server has paused the call: its tool is paused, or a user has paused the activity.
        deferral_reason: why the call waits although a worker could execute it, such as a rate limit.
    """

    queue: Queue
    is_started: bool
    scheduled_at: float | None = None
    task: str | None = None
    tool: str | None = None
    is_foreign: bool = False
    pause_reason: str | None = None
    deferral_reason: str | None = None


async def calls_without_worker(client: Client, calls: Sequence[OpenCall]) -> list[OpenCall]:
    """Return the calls that wait for a worker, in the order of `calls`; an empty list if the server does not respond.

    The server gets one request for each queue with an overdue call, and no request if no call is overdue.
    """
    newest_time_by_queue: dict[Queue, float] = {}
    for call in calls:
        if call.scheduled_at is not None and is_overdue(call.scheduled_at):
            newest_time_by_queue[call.queue] = max(call.scheduled_at, newest_time_by_queue.get(call.queue, 0.0))
    served_queues = {call.queue for call in calls if call.is_started}
    suspect_queues = [queue for queue in newest_time_by_queue if queue not in served_queues]
    polls = await asyncio.gather(*(_last_poll(client, queue) for queue in suspect_queues))
    unserved_queues = {
        queue for queue, poll in zip(suspect_queues, polls, strict=True) if poll < newest_time_by_queue[queue]
    }
    return [call for call in calls if call.queue in unserved_queues and call.scheduled_at is not None]


def waits_for_slot(calls: Sequence[OpenCall], *, unserved_calls: Sequence[OpenCall]) -> bool:
    """Return whether the next workflow task of the run waits although a worker polls, because its slots are in use.

    Args:
        unserved_calls: the calls of `calls` that wait for a worker.
    """
    workflow_tasks = [call for call in calls if call.queue.kind == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW]
    return any(
        call.scheduled_at is not None and is_overdue(call.scheduled_at) and call not in unserved_calls
        for call in workflow_tasks
    )


def is_overdue(scheduled_at: float) -> bool:
    """Return whether a call was scheduled so long ago that a worker with free slots would have taken the call."""
    return time.time() - scheduled_at > NO_WORKER_AFTER_S


async def _last_poll(client: Client, queue: Queue) -> float:
    """Return the time of the last poll of a queue, 0 if there was none; infinite if it is unknown."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue.name), task_queue_type=queue.kind
    )
    try:
        description = await client.workflow_service.describe_task_queue(request, timeout=_RPC_TIMEOUT)
    except RPCError:
        return float("inf")
    return max((poller.last_access_time.ToNanoseconds() / 1e9 for poller in description.pollers), default=0.0)


# Notes.


def waiting_reason(call: OpenCall) -> str:
    """Return why a node waits."""
    return call.pause_reason or call.deferral_reason or f"no worker for {call.tool}"


def no_free_slot_note() -> dict[str, object]:
    """Return the note of a run whose next step waits for a free slot, with advice."""
    advice = "the run continues after the runs before it; with more workers it continues earlier"
    return {"code": "no_free_slot", "node_id": None, "message": f"{NO_FREE_SLOT}: {advice}"}


def no_worker_notes(
    unserved_calls: Sequence[OpenCall], *, run_id: str, tools: Sequence[str], run_queue: str | None = None
) -> list[dict[str, object]]:
    """Return a note for each queue without a worker, with the command that starts a worker.

    Args:
        run_id: run to watch.
        tools: tools and agents that the run was started with, from its memo.
        run_queue: task queue of the run's workflow.
    """
    calls_by_queue: dict[Queue, list[OpenCall]] = {}
    for call in unserved_calls:
        calls_by_queue.setdefault(call.queue, []).append(call)
    notes: list[dict[str, object]] = []
    for queue, calls in calls_by_queue.items():
        names = ", ".join(dict.fromkeys(call.tool for call in calls if call.task is not None and call.tool))
        reason = f"no worker serves the queue {queue.name!r}" + (
            f" of {names}" if names else ", so the run cannot continue"
        )
        if all(call.is_foreign for call in calls):
            hint = "start your own worker for this queue"
        else:
            hint = f"start one with {_commands(queue, tools, run_id=run_id, run_queue=run_queue)}"
        tasks = [call.task for call in calls]
        notes.append(
            {"code": "no_worker", "node_id": tasks[0] if len(tasks) == 1 else None, "message": f"{reason}; {hint}"}
        )
    return notes


def paused_call_notes(paused_calls: Sequence[OpenCall]) -> list[dict[str, object]]:
    """Return a note for each tool whose calls the server has paused, with advice."""
    notes: list[dict[str, object]] = []
    for tool, reason in dict.fromkeys((call.tool or "", call.pause_reason) for call in paused_calls):
        tasks = [
            call.task
            for call in paused_calls
            if (call.tool, call.pause_reason) == (tool, reason) and call.task is not None
        ]
        waiting_text = f"{len(tasks):,} calls wait" if len(tasks) > 1 else "its call waits"
        code, advice = _advice_for(tool, reason or "", is_single=len(tasks) <= 1)
        message = f"{tool}: {reason}; {waiting_text}; {advice}"
        notes.append({"code": code, "node_id": tasks[0] if len(tasks) == 1 else None, "message": message})
    return notes


def _advice_for(tool: str, reason: str, *, is_single: bool) -> tuple[str, str]:
    """Return the code and the advice of a note about paused calls of a tool.

    Args:
        reason: reason of the pause.
    """
    if reason.startswith(wire.PAUSED_FOR_MISSING_TOOL):
        fix = "start a worker of this queue that has the agent"
        if not tool.startswith(AGENT_PREFIX):
            fix = f"start a worker of this queue that has the tool, or a tool that replaces it (`aliases=[{tool!r}]`)"
        continuation = "the call continues by itself" if is_single else "the calls continue by themselves"
        return wire.ERROR_TOOL_MISSING, f"{fix}: {continuation}"
    is_paused = reason.startswith(wire.PAUSED_FOR_TOOL)
    command = shlex.join(["dagwright", "tool", "resume", tool] if is_paused else ["temporal", "activity", "unpause"])
    return "tool_paused" if is_paused else "call_paused", f"`{command}` resumes {'it' if is_single else 'them'}"


def _commands(queue: Queue, tools: Sequence[str], *, run_id: str, run_queue: str | None) -> str:
    is_run_queue = queue.kind == TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW or queue.name == run_queue
    options = worker_options(queue.name, tools, is_run_queue=is_run_queue)
    worker = f"`{shlex.join(['dagwright', 'worker', *options])}`"
    # `watch` serves the queues of the tools that the run was started with, and no others.
    if is_queue_served_by(queue.name, tools) or (is_run_queue and not is_tool_queue(queue.name)):
        return f"`dagwright watch {shlex.quote(run_id)}` or {worker}"
    return (
        f"{worker}, where {FILE_PLACEHOLDER} is the file or module of the tool"
        if FILE_PLACEHOLDER in options
        else worker
    )


# Display.


class WaitMarks:
    """Marks on the tasks of a scheduler; a marked task waits for a worker.

    For the scheduler these tasks are running or ready, so the marks are removed before the next event is applied.
    """

    def __init__(self) -> None:
        self._marked_tasks: dict[str, tuple[Record, NodeStatus]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no task is marked."""
        return not self._marked_tasks

    @property
    def history_statuses(self) -> dict[str, NodeStatus]:
        """Marked task -> its status without the mark."""
        return {task_id: status for task_id, (_, status) in self._marked_tasks.items()}

    def put(self, scheduler: "RunScheduler", reasons: Mapping[str, str]) -> None:
        """Mark running or ready tasks as waiting. A node is marked if all its running items are marked.

        Args:
            reasons: task id -> reason.
        """
        self.clear()
        reason_by_node: dict[str, str] = {}
        for task_id, reason in reasons.items():
            record = scheduler.record_of(task_id)
            if record is not None and record.status in (NodeStatus.RUNNING, NodeStatus.READY):
                self._mark(task_id, record, reason)
                node_id = scheduler.state.node_of(task_id).id
                if node_id != task_id:
                    reason_by_node[node_id] = reason
        for node_id, reason in reason_by_node.items():
            record = scheduler.record_of(node_id)
            if record is not None and all(item.record.status is not NodeStatus.RUNNING for item in record.items):
                self._mark(node_id, record, reason)

    def clear(self) -> None:
        """Restore the status of every marked task."""
        for record, status in self._marked_tasks.values():
            record.status, record.reason = status, None
        self._marked_tasks.clear()

    def _mark(self, task_id: str, record: Record, reason: str) -> None:
        # A node whose items are all marked may already be marked.
        self._marked_tasks.setdefault(task_id, (record, record.status))
        record.status, record.reason = NodeStatus.WAITING, reason
