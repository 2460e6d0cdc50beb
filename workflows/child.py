"""Plans as child workflows of a user's workflow: `execute_plan` and `start_plan`.

The child is an ordinary run: people can list, watch and control it, and its requests are in the inbox. The worker of
the child compiles the plan in an activity, so that the user's workflow decodes no plan. The user's workflow may run in
the SDK's sandbox. This module imports little, so that it also works if the sandbox passes no modules through.

Replay: each plan issues one Temporal command, which starts the child workflow. If the output of the run is a reference,
a second command starts the activity that loads the output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypedDict, Unpack

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError

from dagwright.core.boundary import wire
from dagwright.core.boundary.arguments import reject_unknown
from dagwright.core.boundary.limits import LARGE_HEARTBEAT_S, WORKFLOW_TASK_S
from dagwright.core.errors import DagwrightError
from dagwright.core.model.times import Duration, format_duration
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.run_labels import TagsInvalid, validate_run_tags

_LOAD_TIMEOUT = timedelta(minutes=10)
_LOAD_RETRY_POLICY = RetryPolicy(maximum_attempts=5)


class BuiltPlan(Protocol):
    """A plan that a program has built."""

    @property
    def _shared_document(self) -> Any:
        """The plan as a JSON value; callers must not change it."""
        ...

    @property
    def title(self) -> str | None:
        """Human-readable title."""
        ...

    @property
    def dialect(self) -> str:
        """Name of the format that the plan is written in."""
        ...


class ChildPlanOptions(TypedDict, total=False):
    """Options of a plan that a workflow starts; all are optional."""

    dialect: str
    """Format of the plan. The default is the format of a built plan, or the detected format of a document."""
    inputs: Mapping[str, Any]
    """Values of the inputs of the plan."""
    context: Mapping[str, Any]
    """Values of the names that the plan reads as `@name`."""
    run_id: str
    """ID of the run; by default `{workflow id}/plan-` and eight characters, which are the same in each replay."""
    task_queue: str
    """Queue of workers that serve plans; by default the queue of the workflow."""
    title: str
    """Title in lists; by default the title of the plan."""
    tags: Mapping[str, str]
    """Tags of the run, by which runs are filtered."""
    deadline: Duration
    """How long the whole run may take."""
    max_parallel: int
    """Maximum number of calls in flight."""
    policy: Mapping[str, Any]
    """Which calls require approval."""
    budget: Mapping[str, Any]
    """Limits of tokens, cost and calls of models."""
    model: str | Mapping[str, Any]
    """Model that agents and planners use."""
    approve_plan: bool
    """Whether a person approves the plan before its first node starts."""
    compensate: bool
    """Whether a failure undoes the completed calls of the run."""
    parent_close_policy: workflow.ParentClosePolicy
    """Effect on the run if the workflow ends first; by default the cancellation of the run is requested."""
    cancellation_type: workflow.ChildWorkflowCancellationType
    """Effect of a cancellation of the workflow; by default the workflow cancels the run and waits for its end."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Result of the run of a plan.

    Args:
        run_id: id of the run, for `dagwright status` and other commands.
        status: `completed`, or `completed_with_failures` if nodes failed that the plan does not require.
        output: output of the plan.
        document: result document of the run, with its nodes; values over 8 KiB are references.
    """

    run_id: str
    status: str
    output: Any
    document: Mapping[str, Any]


class ChildRunFailed(DagwrightError, ApplicationError):
    """The run of a plan failed; a workflow that does not catch this error fails with the same message.

    Attributes:
        run_id: ID of the run.
        document: result document of the run; empty if the run has no document.
        error: `{"code", "message", ...}` of the run.
        problems: problems of a rejected plan, each with `code`, `message`, `pointer`, `node` and `hint`.
    """

    def __init__(self, run_id: str, message: str, *, code: str, document: Mapping[str, Any]) -> None:
        super().__init__(message, dict(document), type=code)
        self.run_id = run_id
        self.document = document
        self.error: Mapping[str, Any] = document.get("error") or {"code": code, "message": message}
        self.problems: Sequence[Mapping[str, Any]] = self.error.get("errors") or ()


class ChildRun:
    """A run that a workflow has started.

    Args:
        handle: handle of the child workflow, for signals.
        task_queue: queue whose workers load a large output.
    """

    def __init__(self, handle: workflow.ChildWorkflowHandle[Any, Any], task_queue: str | None) -> None:
        self.handle = handle
        self._task_queue = task_queue

    @property
    def id(self) -> str:
        """ID of the run."""
        return self.handle.id

    def cancel(self) -> None:
        """Request the cancellation of the run; `result` raises an error when the run has ended."""
        self.handle.cancel()

    async def result(self) -> PlanResult:
        """Wait for the end of the run.

        Raises:
            ChildRunFailed: the run failed, its plan was rejected, or it was terminated or took too long.
            ChildWorkflowError: the run was cancelled. The cause of this error is a `CancelledError`.
        """
        try:
            document: dict[str, Any] = await self.handle
        except ChildWorkflowError as error:
            if isinstance(error.cause, CancelledError):
                raise
            raise _failure_of(self.id, error) from error
        output = document["output"]
        if _has_reference(output):
            output = await self._load_output()
        return PlanResult(self.id, document["status"], output, document)

    async def _load_output(self) -> Any:
        response: dict[str, Any] = await workflow.execute_activity(
            wire.ACTIVITY_LOAD_OUTPUT,
            {"run_id": self.id, "execution_id": self.handle.first_execution_run_id},
            task_queue=self._task_queue,
            start_to_close_timeout=_LOAD_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=LARGE_HEARTBEAT_S),
            retry_policy=_LOAD_RETRY_POLICY,
            result_type=dict[str, Any],
            summary=f"output of {self.id}"[:200],
        )
        return response["output"]


async def start_plan(plan: BuiltPlan | Mapping[str, Any] | str, **options: Unpack[ChildPlanOptions]) -> ChildRun:
    """Start a plan as a child of the current workflow.

    Invalid tags fail the workflow with an `ApplicationError` of the type `TagsInvalid`.

    Args:
        plan: a built plan, or a document in any dialect, as an object or as YAML or JSON text.

    Raises:
        WorkflowAlreadyStartedError: a run with this ID exists.
    """
    reject_unknown(options, ChildPlanOptions.__annotations__, function="start_plan")
    info = workflow.info()
    task_queue = options.get("task_queue")
    handle = await workflow.start_child_workflow(
        wire.WORKFLOW_RUN_PLAN,
        _message_of(plan, options),
        id=options.get("run_id") or _next_run_id(),
        task_queue=task_queue,
        result_type=dict[str, Any],
        memo=_memo_of(plan, options, caller=info.workflow_id),
        task_timeout=timedelta(seconds=WORKFLOW_TASK_S),
        parent_close_policy=options.get("parent_close_policy", workflow.ParentClosePolicy.REQUEST_CANCEL),
        cancellation_type=options.get(
            "cancellation_type", workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED
        ),
    )
    return ChildRun(handle, task_queue)


async def execute_plan(plan: BuiltPlan | Mapping[str, Any] | str, **options: Unpack[ChildPlanOptions]) -> PlanResult:
    """Run a plan as a child of the current workflow and return its result; see `start_plan`.

    Raises:
        WorkflowAlreadyStartedError, ChildRunFailed, ChildWorkflowError: for the reasons that `start_plan` and
            `ChildRun.result` describe.
    """
    return await (await start_plan(plan, **options)).result()


def _next_run_id() -> str:
    info = workflow.info()
    # The random generator of the workflow gives the same ID in each replay.
    return f"{info.workflow_id}/plan-{workflow.uuid4().hex[:8]}"


def _document_of(plan: BuiltPlan | Mapping[str, Any] | str) -> Any:
    # A copy of a large plan could take longer than the two seconds that the SDK allows a workflow.
    return plan if isinstance(plan, str | Mapping) else plan._shared_document


_RUN_OPTIONS = ("max_parallel", "policy", "budget", "model", "approve_plan", "compensate")
"""Options that have the same name and form in the message (docs/reference/messages.md)."""


def _message_of(plan: BuiltPlan | Mapping[str, Any] | str, options: ChildPlanOptions) -> dict[str, Any]:
    all_options: Mapping[str, Any] = {**options}
    encoded_options = {name: all_options[name] for name in _RUN_OPTIONS if name in all_options}
    if (deadline := options.get("deadline")) is not None:
        encoded_options["deadline"] = format_duration(deadline)
    dialect = options.get("dialect") or (None if isinstance(plan, str | Mapping) else plan.dialect)
    return {
        "plan": _document_of(plan),
        **({"dialect": dialect} if dialect is not None else {}),
        "inputs": dict(options.get("inputs") or {}),
        "context": {name.removeprefix("@"): value for name, value in (options.get("context") or {}).items()},
        "options": encoded_options,
    }


def _memo_of(plan: BuiltPlan | Mapping[str, Any] | str, options: ChildPlanOptions, *, caller: str) -> dict[str, Any]:
    title = options.get("title")
    if not title and not isinstance(plan, str):
        title = plan.get("title") if isinstance(plan, Mapping) else plan.title
    return {
        wire.MEMO_PARENT_WORKFLOW: caller,
        **({wire.MEMO_TITLE: title} if isinstance(title, str) else {}),
        **({wire.MEMO_TAGS: _validate_tags(tags)} if (tags := options.get("tags")) else {}),
    }


def _validate_tags(tags: Mapping[str, str]) -> dict[str, str]:
    try:
        return validate_run_tags(tags)
    except TagsInvalid as error:
        # Other exceptions would make the workflow task fail again and again.
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from None


def _has_reference(value: Any) -> bool:
    """Return whether a value in a result document contains a reference to a part that is too large for the document."""
    if isinstance(value, dict):
        return value.keys() == {"ref", "bytes", "preview"} or any(map(_has_reference, value.values()))
    return isinstance(value, list) and any(map(_has_reference, value))


def _failure_of(run_id: str, error: ChildWorkflowError) -> ChildRunFailed:
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        message = getattr(cause, "message", None) or str(cause)
        return ChildRunFailed(run_id, f"the run {run_id!r} ended: {message}", code=type(cause).__name__, document={})
    document = cause.details[0] if cause.details and isinstance(cause.details[0], Mapping) else {}
    error_of_run = run_error_of(document) if document.get("nodes") is not None else None
    message = (error_of_run or {}).get("message") or cause.message
    return ChildRunFailed(run_id, message, code=cause.type or wire.ERROR_PLAN_FAILED, document=document)
