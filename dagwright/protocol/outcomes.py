"""Outcomes of activities and sub-plans, and their effect on the nodes of a run.

The workflow and the history reader apply outcomes with the same functions, so the reader shows the state of the run.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    RetryState,
    TerminatedError,
    TimeoutError,
    TimeoutType,
)

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import (
    MAX_FAILURE_MESSAGE_BYTES,
    MAX_REF_BYTES,
    STORED_VALUE_LIMIT_BYTES,
)
from dagwright.core.boundary.usage_reports import (
    reported_agent_usage,
    reported_usage,
    started_attempt,
    usage_of_heartbeat,
)
from dagwright.core.expressions.stored_values import stored_from_json
from dagwright.core.model.compiled import CompiledNode, agent_of, tool_of
from dagwright.core.model.requests import RaisedQuestion
from dagwright.core.model.states import NO_ATTEMPT, Attempt, NodeError, RunStatus
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.text import cut_bytes
from dagwright.features.regions.batches import apply_batch
from dagwright.features.regions.offloaded_batches import apply_offloaded_batch
from dagwright.protocol.attempts import attempt_of_details, read_attempt
from dagwright.protocol.lineage import lineage_from_details
from dagwright.protocol.map_batch_messages import map_batch_end_from_json
from dagwright.protocol.messages import MessageInvalid, SubPlanEnd, read_message, sub_plan_end_from_json
from dagwright.protocol.node_paths import sub_plan_task

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


class ResultInvalid(Exception):
    """A result is not JSON that a plan could use."""


def read_result(payload: Payload, *, name: str, is_foreign: bool = False) -> tuple[Any, Attempt]:
    """Return the value of a result, or its reference, and the attempt that produced the result.

    Args:
        name: name of the result in messages, such as `fetch.result`.
        is_foreign: the result is from a worker of another program, which has no access to the payload store.

    Raises:
        ResultInvalid: the result is not JSON.
    """
    encoding = payload.metadata.get("encoding", b"")
    if encoding == b"binary/null":
        return None, read_attempt(payload.metadata)
    if encoding not in (b"json/plain", b"json/protobuf"):
        raise ResultInvalid(f"the result is encoded as {encoding.decode(errors='replace')!r}, not as JSON")
    is_stored = payload.metadata.get(wire.METADATA_STORED) == b"1" and not is_foreign
    try:
        value = json_from_bytes(payload.data)
        return stored_from_json(value, name=name) if is_stored else value, read_attempt(payload.metadata)
    except ValueError as error:
        raise ResultInvalid(f"the result is not JSON: {error}") from None


def is_cancellation(error: BaseException) -> bool:
    """Return whether a task ended because it was cancelled."""
    cause = error.__cause__ if isinstance(error, ActivityError | ChildWorkflowError) else error
    return isinstance(cause, CancelledError | asyncio.CancelledError)


def read_failure(
    error: BaseException, node: CompiledNode, effects: Effects, *, records_starts: bool = True
) -> tuple[NodeError, Attempt]:
    """Return the error of a failed task, and its last attempt.

    Args:
        records_starts: whether the worker records the starts of calls. If so, a timeout without a recorded start proves
            that the tool was not called. Workers of other programs do not record starts.
    """
    cause = error.__cause__ if isinstance(error, ActivityError | ChildWorkflowError) else error
    if isinstance(cause, ApplicationError):
        message = cut_bytes(cause.message or "no message", max_bytes=MAX_FAILURE_MESSAGE_BYTES)
        attempt = _attempt_of(cause, _attempt_count(error, node))
        if _unstored_bytes(error) is not None:
            is_repeatable = effects is not Effects.WRITE
            failure = NodeError(wire.ERROR_STORE_UNAVAILABLE, message, is_repeatable, _full_text_ref_of(cause))
            return failure, _without_failed_loading(error, attempt)
        return NodeError(
            cause.type or "tool_failed", message, not cause.non_retryable, _full_text_ref_of(cause)
        ), attempt
    if isinstance(cause, TimeoutError):
        usage = usage_of_heartbeat(cause.last_heartbeat_details)
        failure = _read_timeout(cause, node, effects, records_starts=records_starts)
        return failure, Attempt(_attempt_count(error, node), usage=usage)
    if isinstance(cause, TerminatedError):
        return NodeError("terminated", "the sub-plan was terminated"), Attempt()
    message = cause.message if isinstance(cause, FailureError) else str(cause)
    return NodeError("tool_failed", cut_bytes(message, max_bytes=MAX_FAILURE_MESSAGE_BYTES)), Attempt()


def _attempt_count(error: BaseException, node: CompiledNode) -> int:
    """Return the maximum number of attempts if the task has failed in all of them; otherwise 1, because the number is
    unknown.
    """
    is_last_attempt = (
        isinstance(error, ActivityError | ChildWorkflowError)
        and error.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED
    )
    return node.retry.max_attempts if is_last_attempt else 1


def _details_of(error: BaseException) -> Any:
    """Return the first detail of a failure; null if there are no details."""
    cause = error.__cause__ if isinstance(error, ActivityError | ChildWorkflowError) else error
    return cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None


def _full_text_ref_of(error: ApplicationError) -> str | None:
    """Return the reference of the full message of a failure whose message was cut."""
    details = error.details[0] if error.details else None
    ref = details.get(wire.DETAIL_FULL_TEXT) if isinstance(details, Mapping) else None
    return ref if isinstance(ref, str) and len(ref) <= MAX_REF_BYTES else None


def _attempt_of(error: ApplicationError, default_attempts: int) -> Attempt:
    details = error.details[0] if error.details else None
    if not isinstance(details, Mapping):
        return Attempt(default_attempts)
    return attempt_of_details(details)


_WORKER_DIED = "its worker died"


def outcome_unknown_message(tool: str, *, event: str = _WORKER_DIED) -> str:
    """Return the message of a `write` call with an unknown outcome.

    Args:
        event: what happened to the call.
    """
    return f"outcome unknown: {event}, so {tool} may or may not have made its change"


def _read_timeout(error: TimeoutError, node: CompiledNode, effects: Effects, *, records_starts: bool) -> NodeError:
    is_lost = error.type in (TimeoutType.START_TO_CLOSE, TimeoutType.HEARTBEAT)
    if effects is Effects.WRITE and is_lost:
        event = _WORKER_DIED if error.type == TimeoutType.HEARTBEAT else f"it took over {node.activity_timeout_s:g} s"
        if records_starts and started_attempt(error.last_heartbeat_details) is None:
            message = f"{node.tool} was not called: {event} before the call started, so nothing was changed"
            return NodeError(wire.ERROR_NOT_STARTED, message, retryable=True)
        return NodeError(wire.ERROR_OUTCOME_UNKNOWN, outcome_unknown_message(node.tool, event=event))
    if error.type == TimeoutType.HEARTBEAT:
        cause = (
            "its worker died, or an async tool blocks the event loop of the worker; "
            "the log of the worker names a tool that blocks for over 3 s"
        )
        return NodeError("timeout", f"{node.tool} stopped heartbeating: {cause}", retryable=True)
    return NodeError("timeout", f"{node.tool} took over {node.activity_timeout_s:g} s", retryable=True)


def apply_loading_failure(scheduler: "RunScheduler", task_id: str, error: BaseException, *, at: float) -> None:
    """Handle the failed or cancelled loading of a call's arguments; the call itself was not made."""
    if is_cancellation(error):
        scheduler.task_cancelled(task_id, at=at, attempt=NO_ATTEMPT)
        return
    failure, _ = read_failure(error, scheduler.state.node_of(task_id), Effects.READ)
    scheduler.fail(task_id, failure, at=at, attempt=NO_ATTEMPT)


MAX_STORE_WAITS = 5
"""Maximum number of repetitions of one call after payload store failures."""
_STORE_PAUSE_S = 10.0
"""Pause of the second wait of a call. The first wait has no pause; each later wait doubles the pause."""


@dataclass(frozen=True, slots=True)
class StoreWait:
    """A wait for the payload store, after which a call is repeated.

    Args:
        size_bytes: size of the result that could not be stored; 0 if an argument could not be loaded.
        pause_s: pause before the first request to the store.
    """

    size_bytes: int
    pause_s: float


def apply_store_wait(
    scheduler: "RunScheduler", task_id: str, error: BaseException | None, *, at: float
) -> StoreWait | None:
    """If a call ended because the payload store did not respond, record that the call waits for the store.

    Records the usage and lineage of the call. Returns the wait, or `None` if the call ended for another reason, must
    not be repeated, or was repeated too often.
    """
    size_bytes = _unstored_bytes(error)
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if size_bytes is None or not isinstance(cause, ApplicationError):
        return None
    node = scheduler.state.node_of(task_id)
    tool = tool_of(node, scheduler.plan.tools)
    # If the effects depend on the arguments, only the worker knows the effects, so the call does not count as a write.
    is_write = tool.effects is Effects.WRITE and (tool.effects_by is None or node.effects is not None)
    wait_count = scheduler.state.store_waits.get(task_id, (0, 0))[0]
    if tool.is_foreign or (is_write and size_bytes) or wait_count >= MAX_STORE_WAITS:
        return None
    scheduler.record_store_wait(task_id, at=at, attempt=_without_failed_loading(cause, _attempt_of(cause, 1)))
    return StoreWait(size_bytes, _STORE_PAUSE_S * 2 ** (wait_count - 1) if wait_count else 0.0)


def _unstored_bytes(error: BaseException | None) -> int | None:
    """Return the size of a result that could not be stored, 0 for an argument that could not be loaded, or `None`.

    A tool can raise an error of any type, but only the worker sets the details.
    """
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if not isinstance(cause, ApplicationError) or cause.type != wire.ERROR_STORE_RETRY:
        return None
    details = cause.details[0] if cause.details else None
    size_bytes = details.get(wire.DETAIL_UNSTORED_BYTES) if isinstance(details, Mapping) else None
    is_size = isinstance(size_bytes, int) and 0 <= size_bytes <= STORED_VALUE_LIMIT_BYTES
    return size_bytes if is_size else None


def _without_failed_loading(error: BaseException, attempt: Attempt) -> Attempt:
    """Return an attempt whose count includes only attempts that called the tool.

    If an argument could not be loaded, the last attempt did not call the tool.
    """
    return attempt if _unstored_bytes(error) else replace(attempt, count=max(0, attempt.count - 1))


def apply_result(scheduler: "RunScheduler", task_id: str, payload: Payload, *, at: float) -> None:
    """Handle the result of a call."""
    node = scheduler.state.node_of(task_id)
    # The batches of a large map are child runs. The only activity of such a map joins the results.
    is_join = node.for_each is not None and scheduler.state.map_batch_of(task_id) is not None
    if node.kind == "region":
        apply_region_batch = apply_batch if node.inner is None else apply_offloaded_batch
        apply_region_batch(scheduler, task_id, _batch_output(payload), at=at)
        return
    tool = scheduler.plan.tools.get(node.tool)
    is_foreign = tool is not None and tool.is_foreign and not is_join
    try:
        name = f"{node.id if is_join else task_id}.result"
        value, attempt = read_result(payload, name=name, is_foreign=is_foreign)
    except ResultInvalid as invalid:
        scheduler.fail(task_id, NodeError("invalid_result", f"{node.tool}: {invalid}"), at=at)
        return
    scheduler.complete(task_id, value, at=at, attempt=attempt)


def _batch_output(payload: Payload) -> Any:
    """Return the output of a region batch; null if the output cannot be decoded."""
    try:
        return json_from_bytes(payload.data)
    except ValueError:
        return None


def apply_failure(scheduler: "RunScheduler", task_id: str, error: BaseException, *, at: float) -> NodeError | None:
    """Handle the failure or cancellation of a call; return the error of a failure."""
    if is_cancellation(error):
        scheduler.task_cancelled(task_id, at=at)
        return None
    node = scheduler.state.node_of(task_id)
    if node.kind == "region":
        # The failure ends only the batch. If the region is not offloaded (`inner` is `None`), its nodes end separately.
        failure, _ = read_failure(error, node, Effects.PURE)
        scheduler.features.regions.handle_batch_end(task_id, at=at, has_progress=False, error=failure)
        return failure if node.inner is not None else None
    tool = scheduler.plan.tools.get(node.tool)
    records_starts = tool is not None and not tool.is_foreign
    effects = tool_of(node, scheduler.plan.tools).effects
    failure, attempt = read_failure(error, node, effects, records_starts=records_starts)
    question = _question_of(error)
    if question is not None:
        problem = scheduler.features.feedback.ask(task_id, question, at=at, attempt=attempt)
        return None if problem is None else NodeError(wire.ERROR_ASK_PERSON, problem)
    if tool is not None and tool.workflow is not None and isinstance(error.__cause__, TerminatedError):
        failure = _termination_error(tool)
    if tool is None or tool.is_foreign:
        # A worker of another program has no access to the payload store.
        failure = replace(failure, ref=None)
    scheduler.fail(task_id, failure, at=at, attempt=attempt)
    return failure


def _termination_error(tool: ToolDeclaration) -> NodeError:
    event = "its workflow was terminated"
    if tool.effects is Effects.WRITE:
        return NodeError(wire.ERROR_OUTCOME_UNKNOWN, outcome_unknown_message(tool.name, event=event))
    return NodeError("terminated", f"{tool.name}: {event}", retryable=True)


def _question_of(error: BaseException) -> RaisedQuestion | None:
    """If a call ended with a question to a person, return the question, otherwise `None`."""
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if not isinstance(cause, ApplicationError) or cause.type != wire.ERROR_ASK_PERSON:
        return None
    details = cause.details[0] if cause.details else None
    details = details if isinstance(details, Mapping) else {}
    return RaisedQuestion(
        details.get("request") or cause.message or "A person has to decide", details.get("checkpoint")
    )


def read_sub_plan_end(call: str, payload: Payload) -> SubPlanEnd:
    """Return the end of a sub-plan from its result, for the call that started the sub-plan.

    Raises:
        ResultInvalid: the result is not the end of a sub-plan.
    """
    document, _ = read_result(payload, name=call)
    if not isinstance(document, Mapping):
        raise ResultInvalid("the result of a sub-plan must be an object")
    try:
        return sub_plan_end_from_json({**document, "task": call})
    except MessageInvalid as invalid:
        raise ResultInvalid(str(invalid)) from None


def sub_plan_failure(call: str, error: BaseException, node: CompiledNode) -> SubPlanEnd:
    """Return the end of a sub-plan that did not report its end."""
    if is_cancellation(error):
        return SubPlanEnd(call, RunStatus.CANCELLED, None, None)
    failure, _ = read_failure(error, node, Effects.READ)
    details = _details_of(error)
    usage, agents, lineage = reported_usage(details), reported_agent_usage(details), lineage_from_details(details)
    child_snapshot = details.get("child_snapshot") if isinstance(details, Mapping) else None
    return SubPlanEnd(
        call,
        RunStatus.FAILED,
        None,
        failure.to_json(),
        usage=usage,
        agents=agents,
        lineage=lineage,
        child_snapshot=child_snapshot,
    )


def sub_plan_ends_from_payload(payload: Payload, calls: Mapping[str, str]) -> list[SubPlanEnd]:
    """Return the ends that the activity `find_ended_sub_plans` found.

    Args:
        calls: run ID of a sub-plan -> the call that started the sub-plan.

    Raises:
        MessageInvalid: the message is not a result of that activity.
    """
    message = read_message(payload)
    if not isinstance(message, Mapping):
        raise MessageInvalid("the ends of sub-plans must be an object")
    return [
        sub_plan_end_from_json({**end, "task": calls[run_id]})
        for run_id, end in message.items()
        if run_id in calls and isinstance(end, Mapping)
    ]


def apply_sub_plan_end(scheduler: "RunScheduler", end: SubPlanEnd, *, at: float) -> None:
    """Handle the end of a sub-plan; ignore an end whose call has ended or is not the last call of its task."""
    task_id = sub_plan_task(scheduler, end.call_id)
    if task_id is None:
        return
    if (record := scheduler.record_of(task_id)) is not None and not record.status.is_final:
        record.child_snapshot = end.child_snapshot
    attempt = Attempt(usage=end.usage, agents=end.agents, lineage=end.lineage)
    map_batch = scheduler.state.map_batch_of(task_id)
    if map_batch is not None and end.map_batch is not None:
        try:
            scheduler.end_map_batch(task_id, map_batch_end_from_json(end.map_batch, map_batch), at=at, attempt=attempt)
        except ValueError as error:
            scheduler.fail(task_id, NodeError("sub_plan_failed", str(error)), at=at, attempt=attempt)
    elif map_batch is not None and end.status not in (RunStatus.CANCELLED, RunStatus.FAILED):
        problem = NodeError("sub_plan_failed", "the run of a map batch did not report its items")
        scheduler.fail(task_id, problem, at=at, attempt=attempt)
    elif end.status in (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES):
        is_partial = end.status == RunStatus.COMPLETED_WITH_FAILURES
        scheduler.complete(task_id, end.output, at=at, attempt=attempt, is_partial=is_partial)
    elif end.status == RunStatus.CANCELLED:
        scheduler.task_cancelled(task_id, at=at, attempt=attempt, reason="the sub-plan was cancelled")
    else:
        message = (end.error or {}).get("message") or "it reported no reason"
        agent = agent_of(scheduler.state.node_of(task_id))
        subject = "the sub-plan" if agent is None else f"the agent {agent!r}"
        problem = NodeError("sub_plan_failed", f"{subject} failed: {message}")
        scheduler.fail(task_id, problem, at=at, attempt=attempt)
