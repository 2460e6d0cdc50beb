"""Call batches of a run: calls that may start together, and their followers, share one activity.

Followers are calls that can start as soon as calls of the batch have ended. The engine adds each call that may share an
activity. At the end of a dispatch, the calls of one queue and priority form batches. A single call without followers
gets a separate activity. The engine starts the batches one by one, because all batches together may exceed the size
limit of a workflow task.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import limits, wire
from dagwright.core.model.compiled import tool_of
from dagwright.core.model.states import Task
from dagwright.features.batch_followers import MAX_CALLS, can_start_batch, followers_of, max_parallel_calls
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.call_batches import (
    CallBatchResult,
    apply_call_batch,
    encode_call_batch,
    read_call_batch_result,
)
from dagwright.protocol.ready_calls import ReadyCall
from dagwright.protocol.run_labels import task_summary
from dagwright.protocol.sent_headers import headers_of_call
from dagwright.workflows.activity_calls import (
    HEARTBEAT_S,
    INTERNAL_ATTEMPT_TIMEOUT,
    EncodedCall,
    RunContext,
    json_payload,
    priority_of,
)
from dagwright.workflows.retries import CALL_BATCH_RETRIES


@dataclass(frozen=True, slots=True)
class StartedBatch:
    """A call batch in flight: its calls except the followers, and its activity."""

    calls: Sequence[ReadyCall]
    handle: "asyncio.Task[RawValue]"
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DetachedCall:
    """A call that left its batch without a result.

    Args:
        failure: encoded failure; `None` if the call is slow or was not made.
    """

    failure: str | None = None


class CallBatches:
    """The call batches of one execution.

    Args:
        scheduler: scheduler of the run.
        run: parts of the idempotency keys, and the model of the run.
    """

    def __init__(self, scheduler: RunScheduler, run: RunContext) -> None:
        self._scheduler = scheduler
        self._run = run
        self._added_calls: list[ReadyCall] = []
        self._separate_until: dict[str, float] = {}
        """Tool -> time until which its calls have separate activities."""
        self._detached_calls: dict[str, DetachedCall] = {}
        """ID of a task that has not started again -> its detached call."""

    @property
    def has_added_calls(self) -> bool:
        """Whether added calls wait for the end of the dispatch."""
        return bool(self._added_calls)

    def add(self, ready_call: ReadyCall, *, at: float) -> bool:
        """Add a call that may start, unless it needs a separate activity; return whether the call was added."""
        task = ready_call.task
        if (
            task.id in self._detached_calls
            or not can_start_batch(self._scheduler, task)
            or task.node.tool in self._separate_tools(at)
        ):
            return False
        self._added_calls.append(ready_call)
        return True

    def take_failure(self, task: Task) -> str | None:
        """Remove and return the encoded failure of a detached call.

        The separate activity of the call reports this failure as the first attempt.
        """
        detached_call = self._detached_calls.pop(task.id, None)
        return detached_call.failure if detached_call is not None and task.call_number == 1 else None

    def start_next(self, at: float) -> Iterator[StartedBatch | ReadyCall]:
        """Start the first added call together with the calls that can share its activity.

        Yields:
            A batch that has started, or a single call that still has to start in a separate activity.
        """
        group = self._group_of(self._added_calls[0])
        calls = _first_batch([ready_call for ready_call in self._added_calls if self._group_of(ready_call) == group])
        started_ids = {ready_call.task.id for ready_call in calls}
        self._added_calls = [ready_call for ready_call in self._added_calls if ready_call.task.id not in started_ids]
        queue, _ = group
        yield from self._start(calls, queue, at)

    def _group_of(self, ready_call: ReadyCall) -> tuple[str | None, int]:
        """Return the queue and the priority of a call. All calls of a batch have the same queue and priority."""
        node = ready_call.task.node
        return self._scheduler.plan.tools[node.tool].task_queue, node.priority

    def _start(self, calls: Sequence[ReadyCall], queue: str | None, at: float) -> Iterator[StartedBatch | ReadyCall]:
        scheduler = self._scheduler
        tasks = [ready_call.task for ready_call in calls]
        followers, plan = followers_of(scheduler, tasks, task_queue=queue, separate_tools=self._separate_tools(at))
        if len(calls) + len(followers) == 1:
            yield from calls
            return
        max_parallel = max_parallel_calls(scheduler, call_count=len(calls))
        keys = {node_id: self._run.key_of(None, [["node", node_id]]) for node_id in followers}
        headers = [self._headers(ready_call) for ready_call in calls]
        message = encode_call_batch(
            calls, headers, plan=plan, keys=keys, max_parallel=max_parallel, model=self._run.model
        )
        tool_names = {task.node.tool for task in tasks} | {
            scheduler.state.node_of(follower).tool for follower in followers
        }
        count = len(calls) + len(followers)
        first_task = tasks[0]
        handle = workflow.start_activity(
            wire.ACTIVITY_CALL_BATCH,
            EncodedCall(json_payload(message), {}),
            activity_id=limits.call_batch_id(first_task.call_id),
            task_queue=queue or self._run.task_queue,
            result_type=RawValue,
            start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=max(self._heartbeat_s(name) for name in sorted(tool_names))),
            retry_policy=CALL_BATCH_RETRIES,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=limits.summary_of(f"{count} short steps from {task_summary(first_task)}"),
            priority=priority_of(first_task.node.priority),
        )
        yield StartedBatch(calls, handle, len(message))

    def _headers(self, ready_call: ReadyCall) -> dict[str, bytes]:
        task = ready_call.task
        tool = tool_of(task.node, self._scheduler.plan.tools)
        return headers_of_call(
            ready_call, key=self._run.key_of(task.scope, task.path), tool=tool, model=self._run.model
        )

    def _heartbeat_s(self, tool: str) -> float:
        return HEARTBEAT_S[self._scheduler.plan.tools[tool].effects]

    def end(self, calls: Sequence[ReadyCall], result: RawValue | None, *, at: float) -> list[ReadyCall]:
        """Apply the result of a batch, and return the calls that have to start again.

        Args:
            calls: calls of the batch that are still in flight.
            result: `None` if the activity failed.
        """
        batch_result = CallBatchResult() if result is None else read_call_batch_result(result.payload)
        has_result = bool(batch_result.call_ends or batch_result.detached_failures)
        running_ids = apply_call_batch(
            self._scheduler, batch_result, calls=[ready_call.task.id for ready_call in calls], at=at
        )
        self._separate_until |= dict.fromkeys(batch_result.separate_tools, at + limits.SEPARATE_CALLS_S)
        self._detached_calls |= {
            task_id: DetachedCall(failure) for task_id, failure in batch_result.detached_failures.items()
        }
        if not has_result:
            # Another batch would fail too.
            self._detached_calls |= {task_id: DetachedCall() for task_id in running_ids}
        return [ready_call for ready_call in calls if ready_call.task.id in running_ids]

    def pop_added_calls(self) -> Sequence[ReadyCall]:
        """Remove and return the added calls."""
        calls, self._added_calls = self._added_calls, []
        return calls

    def _separate_tools(self, at: float) -> set[str]:
        return {tool for tool, until in self._separate_until.items() if until > at}


def _first_batch(calls: Sequence[ReadyCall]) -> Sequence[ReadyCall]:
    """Return the first calls, as many as one batch may have by number and size."""
    size = 0
    for count, ready_call in enumerate(calls):
        size += ready_call.size_bytes
        if count and (count == MAX_CALLS or size > limits.REGION_BATCH_INPUT_BYTES):
            return calls[:count]
    return calls
