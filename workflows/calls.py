"""How a task becomes a command: activity options from the plan, arguments as one payload, headers beside it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import pydantic_core
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import Priority, RawValue
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
from dagwright.core.model.compiled import projections_to_json
from dagwright.core.model.tasks import Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.protocol.idempotency import idempotency_key
from dagwright.protocol.messages import Parent
from dagwright.protocol.outcomes import ReadyCall
from dagwright.protocol.run_labels import task_summary
from dagwright.workflows.retries import FIVE_ATTEMPTS, REGION_BATCH, UNLIMITED, retry_policy_of

_HEARTBEAT_S = {Effects.PURE: 3.0, Effects.READ: 3.0, Effects.IDEMPOTENT: 30.0, Effects.WRITE: 30.0}
"""Shorter than an outage of the server doubles effects; longer delays the next attempt (docs/guards.md F15)."""


_SLICE_TIMEOUT = timedelta(days=1)
"""A slice minds the time itself: it ends soon after its fifth of a second, or at the timeout of the node that runs. One
that cannot reach the store waits and heartbeats; after a day of that another attempt does."""

OWN_ATTEMPT = timedelta(hours=1)
"""Of one attempt of an activity of a run's own, which heartbeats by itself. It only ends what hangs: a worker that died
is noticed by its heartbeats, and a store that does not answer fails the attempt within five minutes. No legal plan
comes near it: the most that such an activity moves is a value of 1 GB, which takes a minute, or half an hour over 5
Mbit/s; 250 MB joined take 15 s on a busy machine, and thousands of lookups some seconds."""

# Most calls of a run have the same options, and making them takes as long as all else of a command.


@lru_cache
def _priority(key: int) -> Priority:
    return Priority(priority_key=key)


class Call(RawValue):
    """The arguments of a call, encoded, with the headers that go beside them."""

    def __init__(self, payload: Payload, headers: Mapping[str, Payload]) -> None:
        super().__init__(payload)
        self.headers = headers


@dataclass(frozen=True, slots=True)
class RunScope:
    """What every key and id of a run is made of: the root's scope, and the path from the root to this run.

    Args:
        notifies: whether the hook is told of what is asked.
        model: which model is asked in the run, and how, as `wire.HEADER_MODEL` has it; `None` if nothing says so.
        parent: the run above, if there is one.
    """

    scope: str
    path: tuple[tuple[str, str], ...]
    task_queue: str
    notifies: bool = False
    model: Any = None
    parent: Parent | None = None

    def key_of(self, scope: str | None, path: Sequence[Sequence[str]]) -> str:
        """Returns the idempotency key of a call of the run.

        Args:
            scope: that of another run, if the call keeps one.
            path: of the call in the run.
        """
        return idempotency_key(scope or self.scope, [*map(list, self.path), *path])


def make_call(ready: ReadyCall, run: RunScope, *, tool: ToolDeclaration) -> Call:
    """Returns the payload and headers of a call."""
    task = ready.task
    if task.node.kind == "region":
        return Call(json_payload(ready.arguments), {})
    key = run.key_of(task.scope, task.path)
    headers = {wire.HEADER_IDEMPOTENCY_KEY: json_payload(pydantic_core.to_json(key))}
    if ready.bindings:
        headers[wire.HEADER_BINDINGS] = json_payload(pydantic_core.to_json(ready.bindings))
    if task.node.wanted:
        headers[wire.HEADER_PROJECTIONS] = json_payload(pydantic_core.to_json(projections_to_json(task.node.wanted)))
    if tool.effects is Effects.WRITE and not tool.is_foreign:
        headers[wire.HEADER_ATTEMPTS] = json_payload(pydantic_core.to_json(task.node.retry.max_attempts))
    if task.node.cache_s is not None:
        headers[wire.HEADER_CACHE] = json_payload(pydantic_core.to_json(task.node.cache_s))
    if tool.is_pinned:
        headers[wire.HEADER_CHECKED_VERSION] = json_payload(pydantic_core.to_json(tool.version))
    if run.model:
        headers[wire.HEADER_MODEL] = json_payload(pydantic_core.to_json(run.model))
    if task.node.effects == Effects.IDEMPOTENT:
        headers[wire.HEADER_EFFECTS] = json_payload(pydantic_core.to_json(task.node.effects))
    if task.answers:
        headers[wire.HEADER_ANSWERS] = json_payload(pydantic_core.to_json(task.answers))
    return Call(json_payload(ready.arguments), headers)


_JSON = Payload(metadata={"encoding": b"json/plain"})


def json_payload(encoded: bytes) -> Payload:
    """Returns JSON as a payload, as it is."""
    # A third of the time of making one from its parts; each call has two or more.
    payload = Payload()
    payload.CopyFrom(_JSON)
    payload.data = encoded
    return payload


def start_call(task: Task, call: Call, *, tool: ToolDeclaration, run: RunScope) -> workflow.ActivityHandle[RawValue]:
    """Starts the activity of a task; its id is the node's id."""
    node = task.node
    if node.kind == "region":
        return _start_slice(task, call, task_queue=tool.task_queue or run.task_queue)
    heartbeat_s = node.heartbeat_s or (None if tool.is_foreign else _HEARTBEAT_S[tool.effects])
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
        priority=_priority(node.priority),
    )


def start_workflow(task: Task, call: Call, *, tool: ToolDeclaration, run: RunScope) -> "asyncio.Task[RawValue]":
    """Start the child workflow of a task, as `start_call` starts an activity; its ID follows from run and node."""
    return asyncio.create_task(_run_workflow(task, call, tool=tool, run=run))


async def _run_workflow(task: Task, call: Call, *, tool: ToolDeclaration, run: RunScope) -> RawValue:
    timeout, retry_policy = timedelta(seconds=task.node.activity_timeout_s), retry_policy_of(task, tool)
    ended: RawValue = await workflow.execute_child_workflow(
        str(tool.workflow),
        RawValue(call.payload),
        id=limits.child_workflow_id(workflow.info().workflow_id, task.call_id),
        task_queue=tool.task_queue or run.task_queue,
        result_type=RawValue,
        run_timeout=timeout,
        # All attempts share an execution timeout; without a second attempt it also covers a workflow that continues
        # as new.
        execution_timeout=timeout if retry_policy.maximum_attempts == 1 else None,
        retry_policy=retry_policy,
        cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        static_summary=task_summary(task),
        priority=_priority(task.node.priority),
    )
    return ended


def _start_slice(task: Task, call: Call, *, task_queue: str) -> workflow.ActivityHandle[RawValue]:
    return workflow.start_activity(
        wire.ACTIVITY_RUN_REGION,
        call,
        activity_id=limits.activity_id(task.call_id),
        task_queue=task_queue,
        result_type=RawValue,
        start_to_close_timeout=_SLICE_TIMEOUT,
        heartbeat_timeout=timedelta(seconds=_HEARTBEAT_S[Effects.PURE]),
        retry_policy=REGION_BATCH,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=task_summary(task),
        priority=Priority(priority_key=task.node.priority),
    )


def start_loading(task: Task, message: bytes, *, run: RunScope) -> workflow.ActivityHandle[RawValue]:
    """Starts the activity that puts stored values into the arguments of a call."""
    return workflow.start_activity(
        wire.ACTIVITY_LOAD_VALUES,
        RawValue(json_payload(message)),
        activity_id=limits.load_id(task.call_id),
        task_queue=run.task_queue,
        result_type=RawValue,
        start_to_close_timeout=OWN_ATTEMPT,
        heartbeat_timeout=timedelta(seconds=limits.LARGE_HEARTBEAT_S),
        retry_policy=FIVE_ATTEMPTS,
        summary=limits.summary_of(f"loading values for {task_summary(task)}"),
        priority=Priority(priority_key=task.node.priority),
    )


def start_store_wait(task: Task, message: bytes, *, run: RunScope) -> workflow.ActivityHandle[RawValue]:
    """Start the activity that waits for the payload store, for a call that is made again afterwards."""
    return workflow.start_activity(
        wire.ACTIVITY_AWAIT_STORE,
        RawValue(json_payload(message)),
        activity_id=limits.store_wait_id(task.call_id),
        task_queue=run.task_queue,
        result_type=RawValue,
        start_to_close_timeout=OWN_ATTEMPT,
        heartbeat_timeout=timedelta(seconds=limits.LARGE_HEARTBEAT_S),
        retry_policy=UNLIMITED,
        summary=limits.summary_of(f"waiting for the payload store for {task_summary(task)}"),
        priority=Priority(priority_key=task.node.priority),
    )


class CallInterceptor(Interceptor):
    """Puts the headers of a `Call` into the command, which `workflow.start_activity` alone cannot."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 - the SDK's signature
    ) -> type[WorkflowInboundInterceptor] | None:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    """Pass exactly one argument to a run or session, and to each of its signals and updates.

    A client may send none or several; the call would end in a `TypeError`, retried without end. Workflows of other
    types, which share the worker if it has the plugin, receive their arguments unchanged.
    """

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def handle_query(self, input: HandleQueryInput) -> Any:
        answer = await super().handle_query(input)
        running = workflow.instance()
        if isinstance(answer, WorkflowMetadata) and isinstance(running, HasDetails):
            answer.current_details = running.details()
        return answer

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        if _is_own_workflow():
            input.args = _one_argument(input.args)
        return await super().execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        running = workflow.instance()
        if isinstance(running, CountsSignals):
            running.count_signal()
        # The handler of all other signals is given the name first, and then what came, as one list.
        if _is_own_workflow() and workflow.get_signal_handler(input.signal) is not None:
            input.args = _one_argument(input.args)
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        running = workflow.instance()
        if isinstance(running, CountsSignals):
            running.count_signal()
        if _is_own_workflow():
            input.args = _one_argument(input.args)
        return await super().handle_update_handler(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        if _is_own_workflow():
            input.args = _one_argument(input.args)
        super().handle_update_validator(input)


def _is_own_workflow() -> bool:
    return workflow.info().workflow_type in wire.KNOWN_WORKFLOWS


def _one_argument(arguments: Sequence[Any]) -> Sequence[Any]:
    if len(arguments) == 1:
        return arguments
    # Only that they are several is of use: they may be anything, and an exception here would wedge the run.
    return [RawValue(json_payload(pydantic_core.to_json([None] * len(arguments) or None)))]


@runtime_checkable
class HasDetails(Protocol):
    """A workflow that makes its current details when somebody looks at them, and not in every workflow task."""

    def details(self) -> str:
        """Returns Markdown."""


@runtime_checkable
class CountsSignals(Protocol):
    """A workflow that has to know how many signals and updates came."""

    def count_signal(self) -> None:
        """Takes note of a signal or an update, whatever it is."""


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[object]:
        if input.args and isinstance(input.args[0], Call):
            input.headers = {**input.headers, **input.args[0].headers}
            if (owner := owner_of_run()) is not None:
                input.headers[wire.HEADER_OWNER] = json_payload(pydantic_core.to_json(owner))
        return super().start_activity(input)


def owner_of_run() -> str | None:
    """Return the owner of the key that the run was started with; empty if its memo holds something else there.

    A plan has no way to change the memo: the gateway sets it, and sub-plans and later executions inherit it.
    """
    if wire.MEMO_OWNER not in workflow.info().raw_memo:
        return None
    try:
        owner = workflow.memo_value(wire.MEMO_OWNER)
    # The process edge: the caller of a workflow may give any memo, and an exception here would wedge it.
    except Exception:
        return ""
    return owner if isinstance(owner, str) else ""
