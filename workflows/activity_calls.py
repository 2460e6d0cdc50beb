"""Start the activity or child workflow of a task, with options from the plan, one payload of arguments, and headers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pydantic_core
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import Priority, RawValue, RetryPolicy
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from dagwright.core.boundary import limits, wire
from dagwright.core.model.states import Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.protocol.idempotency import idempotency_key
from dagwright.protocol.messages import Parent
from dagwright.protocol.run_labels import task_summary
from dagwright.protocol.sent_headers import headers_of_call
from dagwright.workflows.retries import FIVE_ATTEMPTS, REGION_BATCH_RETRIES, UNLIMITED_ATTEMPTS, retry_policy_of

if TYPE_CHECKING:
    from dagwright.protocol.ready_calls import ReadyCall

HEARTBEAT_S = {Effects.PURE: 3.0, Effects.READ: 3.0, Effects.IDEMPOTENT: 30.0, Effects.WRITE: 30.0}
"""Heartbeat timeouts. A timeout that is shorter than an outage of the server causes repeated effects. A long timeout
delays the next attempt after the death of a worker (docs/contributing/guards.md F15).
"""


_REGION_BATCH_TIMEOUT = timedelta(days=1)
"""A region batch normally ends after about 0.2 s, or at the timeout of the running node. A batch that cannot reach the
store waits and sends heartbeats. After a day, another attempt starts.
"""

INTERNAL_ATTEMPT_TIMEOUT = timedelta(hours=1)
"""Timeout of one attempt of an internal activity. The timeout only ends attempts that hang: missing heartbeats reveal a
dead worker, and a store that does not respond fails the attempt within five minutes. Valid attempts take less time: the
largest value has 1 GB, which takes half an hour over 5 Mbit/s. Joining 250 MB takes 15 s on a busy machine.
"""


# Cached, because creating a `Priority` takes as long as the rest of a Temporal command.
@lru_cache
def priority_of(node_priority: int) -> Priority:
    """Return the Temporal priority for the priority of a node."""
    return Priority(priority_key=node_priority)


class EncodedCall(RawValue):
    """Encoded arguments of a call, with its headers."""

    def __init__(self, payload: Payload, headers: Mapping[str, Payload]) -> None:
        super().__init__(payload)
        self.headers = headers


@dataclass(frozen=True, slots=True)
class RunContext:
    """Data of a run that its calls and sub-plans need, such as the parts of idempotency keys.

    Args:
        scope: first part of the idempotency keys; sub-plans have the scope of their root run.
        path: path from the root run to this run.
        task_queue: queue of the run.
        notifies: whether the webhook is notified of requests.
        model: model configuration of the run in the form of `wire.HEADER_MODEL`, if there is one.
        parent: parent run, if there is one.
        execution_id: ID of this execution of the workflow.
    """

    scope: str
    path: tuple[tuple[str, str], ...]
    task_queue: str
    notifies: bool = False
    model: Any = None
    parent: Parent | None = None
    execution_id: str = ""

    def has_derived_key(self, task: Task, tool: ToolDeclaration) -> bool:
        """Return whether the worker derives the idempotency key of a call (`idempotency.derived_key`).

        A derived key depends on the execution ID. A reset run repeats its open calls under another execution ID, so
        calls that may change something do not use a derived key.
        """
        is_repeatable = tool.effects.changes_nothing and tool.effects_by is None and not tool.is_foreign
        is_first_root_execution = task.scope is None and not self.path and self.scope == self.execution_id
        return is_repeatable and is_first_root_execution and task.path == [["node", limits.activity_id(task.call_id)]]

    def key_of(self, scope: str | None, path: Sequence[Sequence[str]]) -> str:
        """Return the idempotency key of a call of the run.

        Args:
            scope: scope of another run, if the call keeps the key from that run.
            path: path of the call in the run.
        """
        return idempotency_key(scope or self.scope, [*map(list, self.path), *path])


def encode_call(
    ready_call: "ReadyCall", run: RunContext, *, tool: ToolDeclaration, failure: str | None = None
) -> EncodedCall:
    """Return the payload and headers of a call.

    Args:
        failure: encoded failure of the first attempt, which was made in a call batch.
    """
    task = ready_call.task
    if task.node.kind == "region":
        return EncodedCall(json_payload(ready_call.arguments), {})
    key = None if run.has_derived_key(task, tool) else run.key_of(task.scope, task.path)
    headers = headers_of_call(ready_call, key=key, tool=tool, model=run.model)
    if failure is not None:
        headers[wire.HEADER_BATCH_FAILURE] = pydantic_core.to_json(failure)
    return EncodedCall(
        json_payload(ready_call.arguments), {name: json_payload(value) for name, value in headers.items()}
    )


_EMPTY_JSON_PAYLOAD = Payload(metadata={"encoding": b"json/plain"})


def json_payload(encoded: bytes) -> Payload:
    """Return encoded JSON as a payload."""
    # Copying takes a third of the time of creating a payload from its parts, and each call has at least two payloads.
    payload = Payload()
    payload.CopyFrom(_EMPTY_JSON_PAYLOAD)
    payload.data = encoded
    return payload


def start_call(
    task: Task, call: EncodedCall, *, tool: ToolDeclaration, run: RunContext
) -> workflow.ActivityHandle[RawValue]:
    """Start the activity of a task. The activity ID is derived from the ID of the call."""
    node = task.node
    if node.kind == "region":
        return _start_region_batch(task, call, task_queue=tool.task_queue or run.task_queue)
    heartbeat_s = node.heartbeat_s or (None if tool.is_foreign else HEARTBEAT_S[tool.effects])
    return workflow.start_activity(
        node.tool,
        call,
        activity_id=limits.activity_id(task.call_id),
        task_queue=tool.task_queue or run.task_queue,
        result_type=RawValue,
        start_to_close_timeout=timedelta(seconds=node.activity_timeout_s),
        heartbeat_timeout=timedelta(seconds=heartbeat_s) if heartbeat_s else None,
        retry_policy=retry_policy_of(task, tool),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=task_summary(task),
        priority=priority_of(node.priority),
    )


def start_workflow(
    task: Task, call: EncodedCall, *, tool: ToolDeclaration, run: RunContext
) -> "asyncio.Task[RawValue]":
    """Start the child workflow of a task. The workflow ID is derived from the IDs of the run and the call."""
    return asyncio.create_task(_run_workflow(task, call, tool=tool, run=run))


async def _run_workflow(task: Task, call: EncodedCall, *, tool: ToolDeclaration, run: RunContext) -> RawValue:
    timeout, retry_policy = timedelta(seconds=task.node.activity_timeout_s), retry_policy_of(task, tool)
    result: RawValue = await workflow.execute_child_workflow(
        str(tool.workflow),
        RawValue(call.payload),
        id=limits.child_workflow_id(workflow.info().workflow_id, task.call_id),
        task_queue=tool.task_queue or run.task_queue,
        result_type=RawValue,
        run_timeout=timeout,
        # Temporal applies an execution timeout to all attempts and all executions together. It fits the timeout of
        # the node only if there is one attempt.
        execution_timeout=timeout if retry_policy.maximum_attempts == 1 else None,
        retry_policy=retry_policy,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        static_summary=task_summary(task),
        priority=priority_of(task.node.priority),
    )
    return result


def _start_region_batch(task: Task, call: EncodedCall, *, task_queue: str) -> workflow.ActivityHandle[RawValue]:
    return workflow.start_activity(
        wire.ACTIVITY_RUN_REGION,
        call,
        activity_id=limits.activity_id(task.call_id),
        task_queue=task_queue,
        result_type=RawValue,
        start_to_close_timeout=_REGION_BATCH_TIMEOUT,
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_S[Effects.PURE]),
        retry_policy=REGION_BATCH_RETRIES,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=task_summary(task),
        priority=priority_of(task.node.priority),
    )


def start_loading(task: Task, message: bytes, *, run: RunContext) -> workflow.ActivityHandle[RawValue]:
    """Start the activity that loads stored values into the arguments of a call."""
    type_and_id = wire.ACTIVITY_LOAD_VALUES, limits.load_id(task.call_id)
    summary = f"loading values for {task_summary(task)}"
    return _start_preparation(type_and_id, task, message, run=run, retry_policy=FIVE_ATTEMPTS, summary=summary)


def start_store_wait(task: Task, message: bytes, *, run: RunContext) -> workflow.ActivityHandle[RawValue]:
    """Start the activity that waits for the payload store, for a call that is repeated afterwards."""
    type_and_id = wire.ACTIVITY_AWAIT_STORE, limits.store_wait_id(task.call_id)
    summary = f"waiting for the payload store for {task_summary(task)}"
    return _start_preparation(type_and_id, task, message, run=run, retry_policy=UNLIMITED_ATTEMPTS, summary=summary)


def _start_preparation(
    type_and_id: tuple[str, str],
    task: Task,
    message: bytes,
    *,
    run: RunContext,
    retry_policy: RetryPolicy,
    summary: str,
) -> workflow.ActivityHandle[RawValue]:
    """Start an internal activity that prepares a call.

    Args:
        type_and_id: activity type and activity ID.
    """
    activity_type, activity_id = type_and_id
    return workflow.start_activity(
        activity_type,
        RawValue(json_payload(message)),
        activity_id=activity_id,
        task_queue=run.task_queue,
        result_type=RawValue,
        start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
        heartbeat_timeout=timedelta(seconds=limits.LARGE_HEARTBEAT_S),
        retry_policy=retry_policy,
        summary=limits.summary_of(summary),
        priority=priority_of(task.node.priority),
    )


class CallInterceptor(Interceptor):
    """Interceptor that adds the headers of an `EncodedCall` to its activity.

    The function `workflow.start_activity` has no parameter for headers.
    """

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 - the SDK's signature
    ) -> type[WorkflowInboundInterceptor] | None:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    """Pass exactly one argument to a run or session, and to each of its signals and updates.

    A client may send no or several arguments. The workflow task would then fail with a `TypeError` and be retried
    without end. A worker with the plugin also has workflows of other types. They receive their arguments unchanged.
    """

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def handle_query(self, input: HandleQueryInput) -> Any:
        result = await super().handle_query(input)
        instance = workflow.instance()
        if isinstance(result, WorkflowMetadata) and isinstance(instance, HasDetails):
            result.current_details = instance.details()
        return result

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if _is_dagwright_workflow():
            input.args = _as_single_argument(input.args)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        instance = workflow.instance()
        if isinstance(instance, CountsSignals):
            instance.count_signal()
        # The dynamic handler receives the name first, and then all arguments as one list.
        if _is_dagwright_workflow() and workflow.get_signal_handler(input.signal) is not None:
            input.args = _as_single_argument(input.args)
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        instance = workflow.instance()
        if isinstance(instance, CountsSignals):
            instance.count_signal()
        if _is_dagwright_workflow():
            input.args = _as_single_argument(input.args)
        return await super().handle_update_handler(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        if _is_dagwright_workflow():
            input.args = _as_single_argument(input.args)
        super().handle_update_validator(input)


def _is_dagwright_workflow() -> bool:
    return workflow.info().workflow_type in wire.KNOWN_WORKFLOWS


def _as_single_argument(arguments: Sequence[Any]) -> Sequence[Any]:
    if len(arguments) == 1:
        return arguments
    # The arguments are not decoded: they may have any content, and an exception here would block the run.
    return [RawValue(json_payload(pydantic_core.to_json([None] * len(arguments) or None)))]


@runtime_checkable
class HasDetails(Protocol):
    """Workflow that computes its current details on request, not in every workflow task."""

    def details(self) -> str:
        """Return Markdown."""


@runtime_checkable
class CountsSignals(Protocol):
    """Workflow that needs the number of its signals and updates."""

    def count_signal(self) -> None:
        """Count a signal or update of any kind."""


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[object]:
        if input.args and isinstance(input.args[0], EncodedCall):
            input.headers = {**input.headers, **input.args[0].headers}
            if (owner := owner_of_run()) is not None:
                input.headers[wire.HEADER_OWNER] = json_payload(pydantic_core.to_json(owner))
            if (template := _text_in_memo(wire.MEMO_TEMPLATE)) is not None:
                input.headers[wire.HEADER_TEMPLATE] = json_payload(pydantic_core.to_json(template))
        return super().start_activity(input)


def memo_of_run() -> Mapping[str, Any]:
    """Return the memo of the run; empty if a field cannot be decoded."""
    try:
        return workflow.memo()
    # Any client may set any memo, and an exception here would block the run.
    except Exception:
        return {}


def owner_of_run() -> str | None:
    """Return the owner of the API key that started the run.

    The owner is `None` if the run was started without a key, and empty if the memo has an invalid value.

    The gateway sets this field of the memo, and sub-plans and next executions inherit it. A plan cannot change it.
    """
    return _text_in_memo(wire.MEMO_OWNER)


def _text_in_memo(name: str) -> str | None:
    """Return a text in the memo; `None` if the memo has no such field, empty if the field has an invalid value."""
    if name not in workflow.info().raw_memo:
        return None
    try:
        value = workflow.memo_value(name)
    # Any client may set any memo, and an exception here would block the run.
    except Exception:
        return ""
    return value if isinstance(value, str) else ""
