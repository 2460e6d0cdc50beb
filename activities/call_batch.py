"""The activity `call_batch`: make short calls of tools that declare `batch`.

The results are the same as those of separate activities. Each result is recorded before a call that depends on it
starts (`batch_records`). The next attempt of `call_batch` continues from the records: after the death of a worker, only
calls without a record are repeated, with their idempotency keys. A failed or slow call leaves the batch and gets a
separate activity. The first attempt of the separate activity reports the call's failure, or continues the slow call.
This module must not import workflows.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pydantic_core
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.converter import DefaultFailureConverter, default
from temporalio.exceptions import ApplicationError

from dagwright.activities.batch_records import Records
from dagwright.activities.call_headers import current_headers, limited_subjects, use_headers
from dagwright.activities.call_limits import CallLimits
from dagwright.activities.call_tool import CallableTool, ToolAttempt
from dagwright.activities.detached_calls import BatchHeartbeats, DetachedCalls, RunningCall
from dagwright.activities.errors import CallDeferred
from dagwright.activities.paused_calls import PausedCalls
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import CALL_BATCH_RESULT_BYTES, CALL_BATCH_S, SLOW_CALL_S, activity_id
from dagwright.core.boundary.wire import ACTIVITY_CALL_BATCH, HEADER_OWNER, HEADER_TEMPLATE
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.regions.batches import read_batch
from dagwright.features.run_scheduler import create_scheduler
from dagwright.protocol.call_batches import BatchedCall, CallBatchInput, CallBatchResult, CallEnd, read_call_batch
from dagwright.protocol.conversion import encode_failure
from dagwright.protocol.outcomes import ResultInvalid, read_result
from dagwright.protocol.ready_calls import ReadyCall, next_call
from dagwright.protocol.sent_headers import headers_of_call

_RECORD_INTERVAL_S = 0.02
"""Interval at which results are recorded if no call waits for their record."""
_ANY_BATCH_TOOL = ToolDeclaration("", Effects.READ)
"""Declaration for `headers_of_call`: in batches, headers do not depend on the tool."""

BatchActivity = Callable[[dict[str, Any]], Awaitable[RawValue]]


@dataclass(slots=True)
class CallSlots:
    """Slots of the calls in all batches of a worker.

    Args:
        limit: maximum number of concurrent calls; at the limit, each batch still runs one call.
    """

    limit: int
    in_use: int = 0

    def release(self, task: object) -> None:  # noqa: ARG002 - a callback of tasks
        """Release the slot of a call that has ended."""
        self.in_use -= 1


@dataclass(frozen=True, slots=True)
class BatchSetup:
    """Everything that the batches of a worker share.

    Args:
        tools: the tools of the worker, by name.
        records_of: returns the records of a batch.
        slots: counts the calls of all batches.
        paused_calls: pauses of tools; `None` if tools cannot be paused.
        detached_calls: receives the slow calls.
        limits: limits of calls across all runs; `None` if calls have no limits.
    """

    tools: Mapping[str, CallableTool]
    records_of: Callable[[activity.Info], Records]
    slots: CallSlots
    paused_calls: PausedCalls | None
    detached_calls: DetachedCalls
    limits: CallLimits | None = None


def batch_activity(setup: BatchSetup) -> BatchActivity:
    """Return the activity `call_batch`."""

    @activity.defn(name=ACTIVITY_CALL_BATCH)
    async def call_batch(message: dict[str, Any]) -> RawValue:
        """Make the calls of `message` and return the results; see `dagwright.protocol.call_batches`."""
        try:
            batch_input = read_call_batch(message)
            followers = Followers(batch_input)
        except ValueError as error:
            raise ApplicationError(str(error), type="batch_lost", non_retryable=True) from None
        batch = CallBatch(batch_input, followers, setup)
        # The activity sends no timed heartbeats, because a batch ends within 0.4 s.
        result = await batch.run()
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=pydantic_core.to_json(result.to_json())))

    return call_batch


class Followers:
    """Followers of a batch: calls that depend on results of the batch.

    A scheduler with the batch's part of the plan decides after each result which followers may start.

    Args:
        batch_input: input of the batch.

    Raises:
        ValueError: the plan is invalid.
    """

    def __init__(self, batch_input: CallBatchInput) -> None:
        follower_input, at = read_batch(batch_input.plan), time.time()
        self._batch_input = batch_input
        self._scheduler = create_scheduler(follower_input.plan, follower_input.inputs)
        self._scheduler.start(at)
        for node_id, end in follower_input.ends:
            self._scheduler.features.regions.handle_node_end(node_id, end, at=at)
        records = self._scheduler.records
        self._open_dependencies = [
            sum(not records[dependency].status.is_final for dependency in node.dependencies)
            for node in self._scheduler.plan.nodes
        ]
        """Node -> number of its dependencies without a result."""

    def count_result(self, task_id: str) -> bool:
        """Count the result of a task as one dependency of each follower. Call this method before `apply_result`.

        Returns:
            Whether a follower now has the results of all its dependencies, so that it can start.
        """
        number = self._scheduler.state.number_of(task_id)
        if number is None:
            return False
        has_ready_follower = False
        for dependent in self._scheduler.state.dependents_of(number):
            self._open_dependencies[dependent] -= 1
            has_ready_follower |= not self._open_dependencies[dependent]
        return has_ready_follower

    def apply_result(self, task_id: str, payload: Payload) -> None:
        """Apply the result of a call."""
        number = self._scheduler.state.number_of(task_id)
        if number is None:
            # The task is an item of a map, so it has no followers.
            return
        try:
            value, _ = read_result(payload, name=f"{task_id}.result")
        except ResultInvalid:
            return
        at = time.time()
        # The calls with which the batch starts are `external` nodes, because the scheduler does not start them.
        if self._scheduler.plan.nodes[number].kind == "external":
            end = Record(NodeStatus.COMPLETED, result=value, attempts=1, started_at=at, ended_at=at)
            self._scheduler.features.regions.handle_node_end(task_id, end, at=at)
        else:
            self._scheduler.complete(task_id, value, at=at)

    def next_calls(self) -> list[BatchedCall]:
        """Return the calls that may start now."""
        calls = []
        while (ready_call := next_call(self._scheduler, time.time())) is not None:
            calls.append(self._batched_call(ready_call))
        return calls

    def _batched_call(self, ready_call: ReadyCall) -> BatchedCall:
        task, batch_input = ready_call.task, self._batch_input
        encoded = headers_of_call(
            ready_call, key=batch_input.keys[task.id], tool=_ANY_BATCH_TOOL, model=batch_input.model
        )
        headers = {name: json_from_bytes(value) for name, value in encoded.items()}
        arguments, timeout_s = json_from_bytes(ready_call.arguments), task.node.activity_timeout_s
        return BatchedCall(task.id, activity_id(task.call_id), task.node.tool, arguments, headers, timeout_s)


@dataclass(frozen=True, slots=True)
class _CallInFlight:
    """A running call, and the time of its start on the monotonic clock."""

    call: BatchedCall
    running_call: RunningCall
    started_at: float


class CallBatch:
    """One attempt of a batch.

    Args:
        batch_input: input of the batch.
    """

    def __init__(self, batch_input: CallBatchInput, followers: Followers, setup: BatchSetup) -> None:
        self._batch_input, self._followers, self._setup = batch_input, followers, setup
        self._info = activity.info()
        self._headers = current_headers()
        self._records = setup.records_of(self._info)
        self._loop = asyncio.get_running_loop()
        self._ready_calls: deque[BatchedCall] = deque()
        self._running_calls: dict[str, _CallInFlight] = {}
        self._repeated_task_ids: frozenset[str] = frozenset()
        """IDs of the tasks whose calls an earlier attempt may have started."""
        self._call_ends: list[CallEnd] = []
        self._recorded_count = 0
        """Number of results that are recorded."""
        self._recorded_at = time.monotonic()
        self._is_record_due = False
        """Whether to record at once, because calls wait for the record."""
        self._record_task: asyncio.Task[bool] | None = None
        self._recording_count = 0
        """Number of results that are recorded when `_record_task` has ended."""
        self._detached_failures: dict[str, str | None] = {}
        """ID of a task that left the batch -> the encoded failure of its call; `None` if the call did not fail."""
        self._separate_tools: dict[str, None] = {}
        """Tools whose later calls must not be batched."""
        self._result_bytes = 0
        self._close_at = time.monotonic() + CALL_BATCH_S
        """Time on the monotonic clock at which the batch stops starting calls."""
        self._is_cancelled = False
        self._wake = self._loop.create_future()

    async def run(self) -> CallBatchResult:
        """Make the calls and return their results."""
        self._continue_from(await self._records.read_earlier_results())
        while True:
            try:
                await self._start_calls()
            except asyncio.CancelledError:
                self._cancel()
            self._record()
            if not self._running_calls and self._record_task is None:
                return self._result()
            await self._wait()
            self._collect_results()
            self._apply_records()
            self._detach_slow_calls()

    def _continue_from(self, earlier_result: CallBatchResult) -> None:
        """Continue from the results that earlier attempts recorded."""
        self._call_ends, self._detached_failures, self._recorded_count = (
            [*earlier_result.call_ends],
            dict(earlier_result.detached_failures),
            len(earlier_result.call_ends),
        )
        self._separate_tools = dict.fromkeys(earlier_result.separate_tools)
        recorded_payloads = {end.task_id: end.payload for end in earlier_result.call_ends}
        calls = [*self._batch_input.calls]
        while calls:
            for call in calls:
                if call.task_id in recorded_payloads:
                    self._followers.count_result(call.task_id)
                    self._followers.apply_result(call.task_id, recorded_payloads[call.task_id])
                elif call.task_id not in self._detached_failures:
                    self._ready_calls.append(call)
            calls = self._followers.next_calls()
        if self._info.attempt > 1:
            self._repeated_task_ids = frozenset(call.task_id for call in self._ready_calls)

    @property
    def _is_closed(self) -> bool:
        return time.monotonic() >= self._close_at or self._result_bytes > CALL_BATCH_RESULT_BYTES

    @property
    def _has_room(self) -> bool:
        has_free_slot = self._setup.slots.in_use < self._setup.slots.limit or not self._running_calls
        return has_free_slot and len(self._running_calls) < self._batch_input.max_parallel

    def _cancel(self) -> None:
        """Start no more calls and cancel the running calls. Called when the worker stops or the run is cancelled."""
        self._is_cancelled = True
        self._close()
        self._wake_up()

    def _close(self) -> None:
        """Start no more calls."""
        self._close_at = 0.0

    async def _start_calls(self) -> None:
        while self._ready_calls and self._has_room and not self._is_closed:
            call = self._ready_calls[0]
            tool = self._setup.tools.get(call.tool)
            must_leave = tool is None or await self._must_wait(call.tool, tool)
            self._ready_calls.popleft()
            # A call that must wait needs a separate activity. A call of a tool that this worker lacks goes to another
            # worker.
            if tool is None or must_leave:
                self._detached_failures[call.task_id] = None
                self._separate_tools[call.tool] = None
                continue
            heartbeats = BatchHeartbeats(self._info)
            task = self._loop.create_task(self._call(call, tool, heartbeats))
            self._setup.slots.in_use += 1
            task.add_done_callback(self._setup.slots.release)
            task.add_done_callback(self._wake_up)
            self._running_calls[call.task_id] = _CallInFlight(call, RunningCall(task, heartbeats), time.monotonic())

    async def _must_wait(self, name: str, tool: CallableTool) -> bool:
        """Return whether a tool is paused or limited.

        Args:
            name: name of the tool in the call, which may be an alias.
        """
        if self._setup.paused_calls is not None and await self._setup.paused_calls.is_paused(name):
            return True
        if self._setup.limits is None:
            return False
        try:
            return bool(await self._setup.limits.limiters(limited_subjects(tool.spec.name)))
        except CallDeferred:
            return True

    async def _call(self, call: BatchedCall, tool: CallableTool, heartbeats: BatchHeartbeats) -> RawValue:
        headers = {name: _json_payload(value) for name, value in call.headers.items()}
        headers |= {name: self._headers[name] for name in (HEADER_OWNER, HEADER_TEMPLATE) if name in self._headers}
        use_headers(headers)
        info = replace(
            self._info,
            activity_id=call.activity_id,
            activity_type=call.tool,
            attempt=self._info.attempt if call.task_id in self._repeated_task_ids else 1,
            started_time=datetime.now(UTC),
            start_to_close_timeout=timedelta(seconds=call.timeout_s),
            heartbeat_details=[],
        )
        return await ToolAttempt(tool, info, tool.spec.declaration.effects, heartbeats=heartbeats).run(
            (call.arguments,)
        )

    def _wake_up(self, task: object = None) -> None:  # noqa: ARG002 - a callback of tasks and timers
        if not self._wake.done():
            self._wake.set_result(None)

    async def _wait(self) -> None:
        """Wait until a call or the recording ends, or a call is slow."""
        slow_at = (
            min((in_flight.started_at for in_flight in self._running_calls.values()), default=time.monotonic())
            + SLOW_CALL_S
        )
        timer = self._loop.call_later(max(0.0, slow_at - time.monotonic()), self._wake_up)
        try:
            await self._wake
        except asyncio.CancelledError:
            # Do not raise: the results of the calls that have ended are still returned.
            self._cancel()
        timer.cancel()
        self._wake = self._loop.create_future()

    def _collect_results(self) -> None:
        """Collect the results of the calls that have ended."""
        for ended in [in_flight for in_flight in self._running_calls.values() if in_flight.running_call.task.done()]:
            task, task_id = ended.running_call.task, ended.call.task_id
            del self._running_calls[task_id]
            if task.cancelled():
                self._detached_failures[task_id] = None
            elif (error := task.exception()) is not None:
                self._detached_failures[task_id] = encode_failure(_failure_of(error))
            else:
                payload = task.result().payload
                self._call_ends.append(CallEnd(task_id, payload))
                self._is_record_due |= self._followers.count_result(task_id)
                self._result_bytes += len(payload.data)

    def _detach_slow_calls(self) -> None:
        """Remove slow calls from the batch; after a cancellation, cancel all running calls."""
        now = time.monotonic()
        for in_flight in [
            in_flight
            for in_flight in self._running_calls.values()
            if self._is_cancelled or now - in_flight.started_at >= SLOW_CALL_S
        ]:
            call = in_flight.call
            del self._running_calls[call.task_id]
            self._detached_failures[call.task_id] = None
            self._close()
            if self._is_cancelled:
                in_flight.running_call.task.cancel()
            else:
                self._separate_tools[call.tool] = None
                self._setup.detached_calls.add(call.activity_id, in_flight.running_call)

    def _record(self) -> None:
        """Record the results so far: at once if calls wait for the record, otherwise at intervals."""
        if self._record_task is not None or len(self._call_ends) == self._recorded_count or self._is_closed:
            return
        is_interval_over = time.monotonic() - self._recorded_at > _RECORD_INTERVAL_S
        if not self._is_record_due and not (self._running_calls and is_interval_over):
            return
        self._is_record_due, self._recorded_at = False, time.monotonic()
        self._recording_count = len(self._call_ends)
        self._record_task = self._loop.create_task(self._records.record(self._result()))
        self._record_task.add_done_callback(self._wake_up)

    def _apply_records(self) -> None:
        """Make the followers of recorded calls ready."""
        if self._record_task is None or not self._record_task.done():
            return
        may_continue, self._record_task = self._record_task.result(), None
        if not may_continue:
            self._close()
            return
        for end in self._call_ends[self._recorded_count : self._recording_count]:
            self._followers.apply_result(end.task_id, end.payload)
        self._recorded_count = self._recording_count
        self._ready_calls += self._followers.next_calls()

    def _result(self) -> CallBatchResult:
        return CallBatchResult([*self._call_ends], {**self._detached_failures}, [*self._separate_tools])


def _json_payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=pydantic_core.to_json(value))


def _failure_of(error: BaseException) -> Failure:
    failure = Failure()
    DefaultFailureConverter().to_failure(error, default().payload_converter, failure)
    return failure
