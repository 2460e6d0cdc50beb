"""Call batches on the wire: input and result of the activity `call_batch`, and the effect of a result on the run.

A batch also runs *followers*: calls of `batch` tools that can start as soon as other calls of the batch have ended.

The workflow and the history reader apply results with the same function, so the reader shows the state of the run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pydantic_core
from temporalio.api.common.v1 import Payload

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import activity_id
from dagwright.core.model.states import NodeStatus
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.outcomes import ResultInvalid, apply_result, read_result

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.protocol.ready_calls import ReadyCall

ENDED_IN_BATCH = "cancelled after its call had ended in a batch"
"""Reason of a node that a person cancelled while a batch ran, before the run knew that the call of the node had ended.
"""


@dataclass(frozen=True, slots=True)
class BatchedCall:
    """A call of a batch that may start immediately, because the call depends on no other call of the batch.

    Args:
        task_id: id of the node or item that makes the call.
        activity_id: id of the activity that runs the call if it leaves the batch.
        arguments: JSON object.
        headers: headers of the call, by name, each as a JSON value.
    """

    task_id: str
    activity_id: str
    tool: str
    arguments: Any
    headers: Mapping[str, Any]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class CallBatchInput:
    """Input of a call batch.

    Args:
        calls: calls that may start immediately.
        plan: plan with the followers, and with the calls as unfinished nodes; encoded as for a region batch.
        keys: id of each follower -> its idempotency key.
        max_parallel: maximum number of concurrent calls.
        model: model configuration of the run, if it has one.
    """

    calls: Sequence[BatchedCall]
    plan: Mapping[str, Any]
    keys: Mapping[str, str]
    max_parallel: int
    model: Any = None


@dataclass(frozen=True)
class CallEnd:
    """Result of one call of a batch: the payload that a separate activity for the call would return."""

    task_id: str
    payload: Payload

    @cached_property
    def json_form(self) -> list[Any]:
        """The JSON form, computed once, because each heartbeat of a batch contains all results so far."""
        metadata = {name: value.decode() for name, value in self.payload.metadata.items()}
        return [self.task_id, metadata, self.payload.data.decode()]


@dataclass(frozen=True, slots=True)
class CallBatchResult:
    """Result of a call batch.

    Args:
        call_ends: calls that have ended with a result, in order.
        detached_failures: ID of each call that left the batch without a result, and needs a separate activity ->
            encoded failure of the call; `None` if the call is slow or was not made.
        separate_tools: tools whose next calls should be separate activities.
    """

    call_ends: Sequence[CallEnd] = ()
    detached_failures: Mapping[str, str | None] = field(default_factory=dict)
    separate_tools: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "call_ends": [end.json_form for end in self.call_ends],
            "detached_failures": {**self.detached_failures},
            "separate_tools": [*self.separate_tools],
        }


def encode_call_batch(
    calls: "Sequence[ReadyCall]",
    headers: Sequence[Mapping[str, bytes]],
    *,
    plan: bytes,
    keys: Mapping[str, str],
    max_parallel: int,
    model: Any,
) -> bytes:
    """Encode the input of a call batch.

    Args:
        headers: headers of each of `calls`.
        plan: encoded plan, as in `CallBatchInput`.
        max_parallel: maximum number of concurrent calls.
    """
    encoded_calls = [_encode_call(call, call_headers) for call, call_headers in zip(calls, headers, strict=True)]
    other_fields = pydantic_core.to_json({"keys": keys, "parallel": max_parallel, "model": model})
    return b'{"calls":[' + b",".join(encoded_calls) + b'],"followers":' + plan + b"," + other_fields[1:]


def _encode_call(call: "ReadyCall", headers: Mapping[str, bytes]) -> bytes:
    task = call.task
    call_fields = [task.id, activity_id(task.call_id), task.node.tool, task.node.activity_timeout_s]
    header_fields = b",".join(pydantic_core.to_json(name) + b":" + value for name, value in headers.items())
    return pydantic_core.to_json(call_fields)[:-1] + b"," + call.arguments + b",{" + header_fields + b"}]"


def read_call_batch(message: Any) -> CallBatchInput:
    """Decode the input of a call batch.

    Raises:
        ValueError: the message was not written by `encode_call_batch`.
    """
    try:
        calls = [
            BatchedCall(str(task_id), str(activity), str(tool), arguments, dict(headers), float(timeout_s))
            for task_id, activity, tool, timeout_s, arguments, headers in message["calls"]
        ]
        keys = {str(name): str(key) for name, key in message["keys"].items()}
        return CallBatchInput(calls, message["followers"], keys, int(message["parallel"]), message.get("model"))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a call batch: {error!r}") from None


def call_batch_result_from_json(encoded: Any) -> CallBatchResult:
    """Decode the JSON form of `CallBatchResult`.

    Raises:
        ValueError: the JSON is invalid.
    """
    try:
        call_ends = [
            CallEnd(
                str(task_id),
                Payload(
                    metadata={name: str(metadata_value).encode() for name, metadata_value in metadata.items()},
                    data=str(text).encode(),
                ),
            )
            for task_id, metadata, text in encoded["call_ends"]
        ]
        failures = {str(task_id): failure for task_id, failure in encoded["detached_failures"].items()}
        return CallBatchResult(call_ends, failures, [str(tool) for tool in encoded["separate_tools"]])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the result of a call batch: {error!r}") from None


def read_call_batch_result(payload: Payload) -> CallBatchResult:
    """Return the result of a call batch. An invalid result counts as empty, so that each call is repeated."""
    try:
        return call_batch_result_from_json(json_from_bytes(payload.data))
    except (ValueError, MessageInvalid):
        return CallBatchResult()


def apply_call_batch(
    scheduler: "RunScheduler", result: CallBatchResult, *, calls: Sequence[str], at: float
) -> list[str]:
    """Apply the results of a batch, and return the calls of the batch that still count as running.

    Args:
        calls: IDs of the tasks that the run started as calls of the batch. The run counts these tasks as running.
    """
    started_ids = frozenset(calls)
    # A stopped run ends as soon as its last running task has ended, so the results of followers are applied first.
    call_ends: Sequence[CallEnd] = result.call_ends
    if scheduler.is_stopped:
        call_ends = sorted(call_ends, key=lambda end: end.task_id in started_ids)
    discarded_numbers: set[int] = set()
    for end in call_ends:
        if end.task_id in started_ids:
            apply_result(scheduler, end.task_id, end.payload, at=at)
        elif scheduler.record_of(end.task_id) is not None:
            _apply_follower(scheduler, end, discarded_numbers, at=at)
    running_ids = [task_id for task_id in calls if _is_running(scheduler, task_id)]
    stopping_ids = [
        task_id for task_id in running_ids if scheduler.is_stopped or task_id in scheduler.state.cancel_deadlines
    ]
    for task_id in stopping_ids:
        scheduler.task_cancelled(task_id, at=at)
    return [task_id for task_id in running_ids if _is_running(scheduler, task_id)]


def _is_running(scheduler: "RunScheduler", task_id: str) -> bool:
    record = scheduler.record_of(task_id)
    return record is not None and record.status is NodeStatus.RUNNING


def _apply_follower(scheduler: "RunScheduler", end: CallEnd, discarded_numbers: set[int], *, at: float) -> None:
    """Apply the result of a follower, unless it depends on a discarded result.

    Args:
        discarded_numbers: node numbers of the followers whose result is discarded, because a person cancelled the node
            or set another result meanwhile. This function adds to the set.
    """
    number = scheduler.state.number_of(end.task_id)
    if number is None:
        return
    if discarded_numbers.isdisjoint(scheduler.plan.nodes[number].dependencies):
        if scheduler.mark_running(end.task_id, at=at):
            apply_result(scheduler, end.task_id, end.payload, at=at)
            return
        if _record_late_end(scheduler, end):
            return
    discarded_numbers.add(number)


def _record_late_end(scheduler: "RunScheduler", end: CallEnd) -> bool:
    """Record that the call of a cancelled node had ended; return whether the node now has the result of the call."""
    record = scheduler.record_of(end.task_id)
    if record is None or record.status is not NodeStatus.CANCELLED:
        return False
    try:
        value, attempt = read_result(end.payload, name=f"{end.task_id}.result")
    except ResultInvalid:
        return False
    if not scheduler.is_stopped:
        record.reason = ENDED_IN_BATCH
        return False
    scheduler.complete_late(end.task_id, value, attempt=attempt)
    return True
