"""Runs of plans on the real server, and checks that hold for every run.

Each run that a test starts is checked at the end of the test, with its sub-plans: the run has ended, no workflow task
has failed, and a replay of the history has the same end.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from difflib import unified_diff
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, cast
from unittest.mock import patch
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.common import RawValue, TypedSearchAttributes
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.history.document_hydration import hydrated_document
from dagwright.history.run_reader import RunReader
from dagwright.llm.client import ModelClients
from dagwright.planning.extender_specs import workflow_type_of
from dagwright.plans.pages import split_for_transfer
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.conversion import data_converter
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.settings import Settings
from dagwright.store import PayloadStore
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker import serving as worker
from dagwright.workflows.activity_calls import CallInterceptor
from dagwright.workflows.call_limit import CallLimitWorkflow
from dagwright.workflows.run_plan import RUN_WORKFLOWS, PlanWorkflow
from dagwright.workflows.session import SessionWorkflow
from dagwright.workflows.unknown_type import UnknownTypeWorkflow

Handle = WorkflowHandle[Any, Any]
Document = dict[str, Any]

without_cache = pytest.mark.parametrize("has_workflow_cache", [False], ids=["uncached"], indirect=True)
"""Run a test on a worker without a workflow cache: each workflow task replays the whole history.

Use it for tests of messages, cancellation and continue-as-new in which the order of events depends on eviction. All
other tests run with a cache, because `Runs.check_runs` replays the history of each run."""

_END_EVENTS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "completed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "canceled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "terminated",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "timed out",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "continued",
}
_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"|\b1\d{9}\.\d+')
"""A time in a document, or a number of seconds in the state of a run."""


_HARMLESS_TASK_FAILURES = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
)
"""Causes after which the server repeats a failed workflow task: a signal arrived at the end of the run, or the task had
over 2 MB of results."""


DEADLOCK = "[TMPRL1101]"
"""The SDK's error code for a workflow task of over two seconds.

The SDK measures elapsed time: on a busy machine, a task with half a second of work may fail. A task that always takes
longer is retried without end, so its run never ends."""

_STUCK_AFTER_S = 300.0
"""Much longer than any run takes on a busy machine."""


class Runs:
    """Client for runs whose tools and workflows are served by the workers of this process."""

    def __init__(
        self, client: Client, *, task_queue: str, tools: Mapping[str, ToolDeclaration], store: PayloadStore
    ) -> None:
        self.client = client
        self.store = store
        self.task_queue = task_queue
        self.tools = tools
        self.versions = {name: tool.version for name, tool in tools.items()}
        self._unchecked_handles: list[Handle] = []

    async def start(
        self,
        plan: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        memo: Mapping[str, Any] | None = None,
        tools: Mapping[str, ToolDeclaration] | None = None,
        context: Mapping[str, Any] | None = None,
        dialect: str | None = None,
        **options: Any,
    ) -> Handle:
        checked_plan = check_plan(plan, tools or self.tools, dialect=dialect, context=context)
        transfer = await split_for_transfer(prepare_plan(checked_plan, inputs or {}), self.store)
        run_input = RunInput(compiled=transfer.plan, pages=transfer.pages, inputs=inputs or {}, **options)
        return await self.start_raw(run_input_to_json(run_input), memo=memo)

    async def start_compiled_plan(
        self, plan: CompiledPlan, *, inputs: Mapping[str, Any] | None = None, **options: Any
    ) -> Handle:
        encoded_input = run_input_to_json(RunInput(compiled=plan, inputs=inputs or {}, **options))
        return await self.start_raw(encoded_input, workflow=workflow_type_of(plan))

    async def start_raw(
        self, *arguments: Any, workflow_id: str | None = None, workflow: str = wire.WORKFLOW_RUN_PLAN, **options: Any
    ) -> Handle:
        handle = await self.client.start_workflow(
            workflow, args=arguments, id=workflow_id or f"run-{uuid4().hex}", task_queue=self.task_queue, **options
        )
        self._unchecked_handles.append(handle)
        return handle

    async def run(self, plan: Any, **options: Any) -> Document:
        return bare_document(await document_of(await self.start(plan, **options)))

    async def run_raw(self, *arguments: Any, **options: Any) -> Document:
        """Run the workflow with these arguments, wait for its end, and return the bare document."""
        return bare_document(await document_of(await self.start_raw(*arguments, **options)))

    async def read_document(self, handle: Handle, *, full: bool = False) -> Document:
        """Return the document of a run as commands show it, with large values loaded."""
        view = await RunReader(self.client, handle.id).read()
        return await hydrated_document(view, self.store, full=full)

    def include_in_checks(self, handle: Handle) -> None:
        """Include a run or session that was started elsewhere in `check_runs`."""
        self._unchecked_handles.append(handle)

    def exclude_from_checks(self, handle: Handle) -> None:
        """Exclude a run from `check_runs`, because the test terminates a part of it."""
        self._unchecked_handles.remove(handle)

    async def check_runs(self, *, allowed_failure: str | None = None) -> None:
        """Check all runs that were started since the last check.

        Args:
            allowed_failure: a workflow task may fail if its failure contains this text.
        """
        handles, self._unchecked_handles = self._unchecked_handles, []
        for handle in handles:
            await check_histories(self.client, handle, allowed_failure=allowed_failure)


@asynccontextmanager
async def serving_runs(
    client: Client,
    registry: ToolRegistry,
    *,
    settings: Settings,
    has_workflow_cache: bool = True,
    detects_deadlocks: bool = False,
    queue: str | None = None,
) -> AsyncIterator[Runs]:
    """Serve the tools of `registry` and plans on separate queues.

    Args:
        has_workflow_cache: whether the workers cache workflows; if not, each workflow task replays the whole execution.
        detects_deadlocks: whether a workflow task of over two seconds fails. The default is False, because the SDK
            measures elapsed time, and half a second of work may take two seconds on a busy machine.
        queue: name of the task queue, which successive workers may share; by default a new name.
    """
    task_queue = queue or f"test-{uuid4().hex}"
    toolset = with_tools(load_toolset(settings), registry, queue=f"{task_queue}-tools")
    worker_class = partial(Worker, debug_mode=not detects_deadlocks)
    if not has_workflow_cache:
        worker_class = partial(worker_class, max_cached_workflows=0)
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(ModelClients(toolset.models))
        stack.push_async_callback(toolset.environment.resources.close)
        with patch.object(worker, "Worker", worker_class):
            workers = worker.create_workers(client, toolset, task_queue=task_queue, models=models)
        for running_worker in workers:
            await stack.enter_async_context(running_worker)
        yield Runs(client, task_queue=task_queue, tools=toolset.declarations(), store=toolset.store)


@asynccontextmanager
async def checked_runs(client: Client, registry: ToolRegistry, **options: Any) -> AsyncIterator[Runs]:
    """Serve runs as `serving_runs` does. At the end of the block, check and replay each run."""
    async with serving_runs(client, registry, **options) as runs:
        yield runs
        await runs.check_runs()


def with_tools(toolset: Toolset, registry: ToolRegistry, *, queue: str) -> Toolset:
    """Return a toolset with the tools of `registry` as if they came from `--tools`."""
    return replace(toolset, user_tools=registry.with_queue(queue))


# Values for comparisons.


async def document_of(handle: Handle) -> Document:
    """Return the document of a run with any outcome, including nodes.

    A run that was terminated, or whose timeout has expired, has no document.
    """
    try:
        await _result_of(handle)
    except WorkflowFailureError as failure:
        cause = failure.cause
        if not isinstance(cause, CancelledError):
            assert isinstance(cause, ApplicationError), f"{cause!r} is not the end of a plan"
            assert cause.type == wire.ERROR_PLAN_FAILED, f"{cause.type}: {cause.message}"
    return cast("Document", await handle.query(wire.QUERY_STATUS))


def with_run_error(document: Document) -> Document:
    """Return the document of a run as readers show it: a missing error is derived from the nodes."""
    return {**document, "error": run_error_of(document)}


def bare_document(document: Document) -> Document:
    """Return a document without parts that vary between runs, and without empty parts."""
    bare_fields = {
        "status": document["status"],
        "output": document["output"],
        "nodes": {name: bare_node(node) for name, node in document["nodes"].items()},
    }
    for name in ("error", "notes"):
        if document[name]:
            bare_fields[name] = bare_error(document[name]) if name == "error" else document[name]
    return {**bare_fields, "rounds": document["rounds"]} if "rounds" in document else bare_fields


def bare_node(node: Mapping[str, Any]) -> Document:
    """Return the fields of a node that tests compare: no empty fields, and attempts only if they are not 1."""
    bare_fields: Document = {"status": node["status"]}
    if node["status"] == "completed":
        bare_fields["result"] = node["result"]
    if node["error"]:
        bare_fields["error"] = bare_error(node["error"])
    for name in ("blocked_by", "partial", "reason"):
        if node[name]:
            bare_fields[name] = node[name]
    if node["attempts"] > 1:
        bare_fields["attempts"] = node["attempts"]
    return bare_fields


def bare_error(error: Mapping[str, Any]) -> str:
    """Return an error as `code: message`."""
    return f"{error['code']}: {error['message']}"


def completed_node(result: Any, **fields: Any) -> Document:
    return {"status": "completed", "result": result, **fields}


def failed_node(error: str, **fields: Any) -> Document:
    return {"status": "failed", "error": error, **fields}


def blocked_node(*blocking_ids: str, verb: str = "failed") -> Document:
    message = f"dependency_failed: Waiting for dependency: {', '.join(blocking_ids)} {verb}"
    return {"status": "blocked", "error": message, "blocked_by": list(blocking_ids)}


SKIPPED: Document = {"status": "skipped"}


def cancelled_node(reason: str | None = None) -> Document:
    return {"status": "cancelled", **({"reason": reason} if reason else {})}


# Checks of every run.


async def histories_of(client: Client, handle: Handle) -> list[WorkflowHistory]:
    """Wait for the end of a run, and return the history of each execution of the run and its sub-plans."""
    histories = await chain_of(client, handle)
    for event in [event for history in histories for event in history.events]:
        if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
            start_attributes = event.child_workflow_execution_started_event_attributes
            if start_attributes.workflow_type.name not in wire.WORKFLOWS:
                # A node calls a workflow of a worker without Dagwright.
                continue
            child = start_attributes.workflow_execution
            child_handle = client.get_workflow_handle(child.workflow_id, run_id=child.run_id)
            histories += await histories_of(client, child_handle)
    return histories


async def chain_of(client: Client, handle: Handle) -> list[WorkflowHistory]:
    """Wait for the end of a run, and return the histories of its executions. The execution of the handle is first."""
    await _wait_for_end(handle)
    run_id = handle.run_id or handle.first_execution_run_id
    histories: list[WorkflowHistory] = []
    while run_id or not histories:
        histories.append(await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history())
        continuation = histories[-1].events[-1].workflow_execution_continued_as_new_event_attributes
        run_id = continuation.new_execution_run_id or None
    return histories


async def _wait_for_end(handle: Handle) -> None:
    try:
        await _result_of(handle)
    except WorkflowFailureError:
        return


async def _result_of(handle: Handle) -> Any:
    """Return the result of a run; terminate a stuck run, and fail the test with the reason."""
    try:
        async with asyncio.timeout(_STUCK_AFTER_S):
            return await handle.result()
    except TimeoutError:
        history = await handle.fetch_history()
        await handle.terminate("stuck")
        raise AssertionError(f"{handle.id} is stuck: {_task_failures(history)}") from None


def assert_clean(history: WorkflowHistory, *, allowed_failure: str | None = None) -> None:
    """Check that no workflow task failed, except for `allowed_failure`, and that the run ended by itself."""
    failures = [
        failure for failure in _task_failures(history) if allowed_failure is None or allowed_failure not in failure
    ]
    assert not failures, f"{history.workflow_id}: {failures}"
    assert end_of(history) in ("completed", "failed", "canceled", "continued")


async def check_history(history: WorkflowHistory, *, allowed_failure: str | None = None) -> None:
    """Check that a history is clean and replays."""
    assert_clean(history, allowed_failure=allowed_failure)
    await assert_replays(history)


async def check_histories(client: Client, handle: Handle, *, allowed_failure: str | None = None) -> None:
    """Check all histories of a run and its sub-plans."""
    for history in await histories_of(client, handle):
        await check_history(history, allowed_failure=allowed_failure)


def _task_failures(history: WorkflowHistory) -> list[str]:
    failures = []
    for event in events_of(history, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED):
        failed_event = event.workflow_task_failed_event_attributes
        if failed_event.cause not in _HARMLESS_TASK_FAILURES:
            cause = WorkflowTaskFailedCause.Name(failed_event.cause)
            failures.append(f"{cause}: {failed_event.failure.message}")
    return failures


def end_of(history: WorkflowHistory) -> str:
    return _END_EVENTS.get(history.events[-1].event_type, "open")


def result_of(history: WorkflowHistory) -> Any:
    """Return the content of the last event of an execution: the document, or the input of the next execution."""
    last_event = history.events[-1]
    if last_event.HasField("workflow_execution_completed_event_attributes"):
        payloads: Sequence[Payload] = last_event.workflow_execution_completed_event_attributes.result.payloads
    elif last_event.HasField("workflow_execution_failed_event_attributes"):
        failure = last_event.workflow_execution_failed_event_attributes.failure
        payloads = failure.application_failure_info.details.payloads
    elif last_event.HasField("workflow_execution_continued_as_new_event_attributes"):
        payloads = last_event.workflow_execution_continued_as_new_event_attributes.input.payloads
    else:
        payloads = []
    return data_converter.payload_converter.from_payloads(payloads)


class _ReplayRecorder(Interceptor):
    """Record the end of each replayed execution (result, error details or snapshot), and the documents of the run."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self.documents: list[Document] = []

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        ends, documents = self.ends, self.documents

        class Outbound(WorkflowOutboundInterceptor):
            def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
                ends.append([json.loads(input.args[0].payload.data)])
                super().continue_as_new(input)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                try:
                    ends.append([await super().execute_workflow(input)])
                except ApplicationError as error:
                    ends.append(list(error.details))
                    raise
                finally:
                    if isinstance(run := workflow.instance(), PlanWorkflow):
                        documents.append(run.status())
                return ends[-1][0]

        return Inbound


async def replay(history: WorkflowHistory) -> tuple[Exception | None, list[Any]]:
    """Replay a history without a server; return the failure, and the end of each execution."""
    recorder = _ReplayRecorder()
    return await _replay(history, recorder), recorder.ends


async def replayed_document(history: WorkflowHistory) -> Document:
    """Return the document of a run at the end of its replay, including the nodes that the result omits."""
    recorder = _ReplayRecorder()
    assert await _replay(history, recorder) is None
    return recorder.documents[-1]


async def _replay(history: WorkflowHistory, recorder: _ReplayRecorder) -> Exception | None:
    replayer = Replayer(
        workflows=[*RUN_WORKFLOWS, SessionWorkflow, CallLimitWorkflow, UnknownTypeWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        interceptors=[CallInterceptor(), recorder],
        data_converter=data_converter,
        # Disable the timeout of workflow tasks, which a replay may exceed on a busy machine.
        debug_mode=True,
    )
    outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return outcome.replay_failure


async def assert_replays(history: WorkflowHistory) -> None:
    """Check that a history replays to the same document.

    A workflow task with an update may directly follow a workflow task without commands. A worker without a cache then
    receives both as one task, with the time of the second task. A replay receives two tasks, because the history
    contains the accepted update (the SDK's `find_end_index_of_next_wft_seq`). In such a history, only the times may
    differ.
    """
    failure, ends = await replay(history)
    assert failure is None, f"{history.workflow_id} does not replay: {failure}"
    if end_of(history) != "canceled":
        with_times = not _has_adjacent_tasks(history)
        result, actual = (_as_text(value, with_times=with_times) for value in ([result_of(history)], ends))
        difference = "\n".join(unified_diff(result, actual, "run", "replay", lineterm="", n=2))
        assert not difference, f"{history.workflow_id} replays to a different end:\n{difference}"


def _has_adjacent_tasks(history: WorkflowHistory) -> bool:
    event_types = [event.event_type for event in history.events]
    adjacent_types = (EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED)
    return adjacent_types in pairwise(event_types)


def _as_text(value: Any, *, with_times: bool) -> list[str]:
    text = json.dumps(value, indent=1, sort_keys=True)
    return (text if with_times else _TIME.sub("(a time)", text)).splitlines()


def events_of(history: WorkflowHistory, kind: EventType.ValueType) -> list[HistoryEvent]:
    return [event for event in history.events if event.event_type == kind]


def scheduled_calls(history: WorkflowHistory) -> list[ActivityTaskScheduledEventAttributes]:
    """Return the attributes of all activities that were scheduled, in order."""
    events = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    return [event.activity_task_scheduled_event_attributes for event in events]


def raw_value(data: bytes, encoding: str = "json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding.encode()}, data=data))


def search_attributes(description: Any) -> TypedSearchAttributes:
    return cast("TypedSearchAttributes", description.typed_search_attributes)
