"""Decoding of history events: the start of a run, its calls, and the ends of its sub-plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import (
    ActivityTaskFailedEventAttributes,
    ActivityTaskTimedOutEventAttributes,
    HistoryEvent,
)
from temporalio.converter import DataConverter
from temporalio.exceptions import (
    ActivityError,
    CancelledError,
    ChildWorkflowError,
    RetryState,
    TerminatedError,
    TimeoutError,
    TimeoutType,
    WorkflowAlreadyStartedError,
)

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import unpack
from dagwright.core.compiler.node_columns import nodes_from_columns, plan_from_columns
from dagwright.core.expressions.value_refs import value_from_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.history.task_batches import read_argument
from dagwright.protocol.map_batch_messages import MapBatchInput
from dagwright.protocol.map_batch_runs import with_items
from dagwright.protocol.messages import SubPlanEnd, read_message
from dagwright.protocol.outcomes import ResultInvalid, read_sub_plan_end, sub_plan_failure
from dagwright.protocol.run_input import RunInput, page_refs_from_json, plan_from_pages, run_input_from_json
from dagwright.protocol.run_snapshot import RunSnapshot

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

FailedCall = ActivityTaskFailedEventAttributes | ActivityTaskTimedOutEventAttributes


async def error_of_call(failed_call: FailedCall, activity_id: str, *, converter: DataConverter) -> ActivityError:
    """Return the error of a failed call, with the retry state that shows whether the call used up its attempts."""
    error = ActivityError(
        "",
        scheduled_event_id=failed_call.scheduled_event_id,
        started_event_id=failed_call.started_event_id,
        identity="",
        activity_type="",
        activity_id=activity_id,
        retry_state=RetryState(failed_call.retry_state) if failed_call.retry_state else None,
    )
    error.__cause__ = await converter.decode_failure(failed_call.failure)
    return error


class PagedPlan:
    """Pages of one plan.

    Args:
        count: number of pages.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._pages: dict[int, Any] = {}
        """Id of the event that requested a page -> the page, in plan order; `None` until it is loaded."""

    def expect(self, event_id: int) -> None:
        """Record the request of the next page."""
        self._pages[event_id] = None

    def add(self, event_id: int, page: Any) -> CompiledPlan | None:
        """Add a page.

        Returns:
            The plan after the last page was added; `None` while pages are missing, or if a page is invalid. The
            workflow itself reports an invalid page.
        """
        self._pages[event_id] = page
        if len(self._pages) < self.count or None in self._pages.values():
            return None
        try:
            head, *pages = map(unpack, self._pages.values())
            plan = plan_from_pages(head, [node for page in pages for node in nodes_from_columns(page)])
        except ValueError:
            return None
        self._pages = {}
        return plan


_END_KINDS = ("completed", "failed", "canceled", "timed_out", "terminated")


async def sub_plan_end_of(
    event: HistoryEvent, call_id_by_workflow: Mapping[str, str], *, scheduler: "RunScheduler", converter: DataConverter
) -> SubPlanEnd | None:
    """Return the end of a sub-plan that sent no report; `None` if the event is not about a sub-plan in flight.

    Args:
        call_id_by_workflow: workflow id of a sub-plan -> id of the call that started the sub-plan.
        converter: converter that decodes failures.
    """
    if event.HasField("start_child_workflow_execution_failed_event_attributes"):
        rejected_start = event.start_child_workflow_execution_failed_event_attributes
        call = _Call(call_id_by_workflow.get(rejected_start.workflow_id), scheduler)
        error: BaseException = WorkflowAlreadyStartedError(
            rejected_start.workflow_id, rejected_start.workflow_type.name
        )
        return sub_plan_failure(call.id, error, call.node) if call.node is not None else None
    if (end := _end_in(event)) is None:
        return None
    kind, attributes = end
    call = _Call(call_id_by_workflow.get(attributes.workflow_execution.workflow_id), scheduler)
    if call.node is None:
        return None
    if kind == "completed":
        return _read_end(call.id, attributes.result.payloads, call.node)
    return sub_plan_failure(call.id, await _error_of(kind, attributes, converter), call.node)


def _end_in(event: HistoryEvent) -> tuple[str, Any] | None:
    """Return how a child workflow ended and the attributes of the event; `None` for any other event."""
    for kind in _END_KINDS:
        field = f"child_workflow_execution_{kind}_event_attributes"
        if event.HasField(field):  # type: ignore[arg-type]  # each of the five names is a field
            return kind, getattr(event, field)
    return None


@dataclass(frozen=True, slots=True)
class WorkflowEnd:
    """End of a child workflow that a node calls.

    Args:
        workflow_id: workflow id of the child workflow.
        result: `None` if the child workflow failed.
        error: exception that the run received.
    """

    workflow_id: str
    result: Payload | None = None
    error: BaseException | None = None


async def workflow_end_of(event: HistoryEvent, *, converter: DataConverter) -> WorkflowEnd | None:
    """Return the end of a child workflow as the run received it; `None` for any other event."""
    if event.HasField("start_child_workflow_execution_failed_event_attributes"):
        rejected_start = event.start_child_workflow_execution_failed_event_attributes
        error = WorkflowAlreadyStartedError(rejected_start.workflow_id, rejected_start.workflow_type.name)
        return WorkflowEnd(rejected_start.workflow_id, error=error)
    if (end := _end_in(event)) is None:
        return None
    kind, attributes = end
    workflow_id = attributes.workflow_execution.workflow_id
    if kind == "completed":
        payloads = attributes.result.payloads
        return WorkflowEnd(workflow_id, payloads[0] if payloads else Payload(metadata={"encoding": b"binary/null"}))
    retry_state = attributes.retry_state if kind in ("failed", "timed_out") else 0
    child_error = ChildWorkflowError(
        "",
        namespace="",
        workflow_id=workflow_id,
        run_id="",
        workflow_type="",
        initiated_event_id=0,
        started_event_id=0,
        retry_state=RetryState(retry_state) if retry_state else None,
    )
    child_error.__cause__ = await _error_of(kind, attributes, converter)
    return WorkflowEnd(workflow_id, error=child_error)


class _Call:
    """Call of a sub-plan, and the node that made the call. The node is `None` if the call was abandoned and retried."""

    def __init__(self, call_id: str | None, scheduler: "RunScheduler") -> None:
        self.id = call_id or ""
        task_id = task_of_call(scheduler.state, call_id) if call_id is not None else None
        self.node = scheduler.state.node_of(task_id) if task_id is not None else None


def _read_end(call: str, payloads: Any, node: CompiledNode) -> SubPlanEnd:
    payload = payloads[0] if payloads else Payload(metadata={"encoding": b"binary/null"})
    try:
        return read_sub_plan_end(call, payload)
    except ResultInvalid as invalid:
        return sub_plan_failure(call, invalid, node)


async def _error_of(kind: str, attributes: Any, converter: DataConverter) -> BaseException:
    """Return the exception that the workflow received for an end without a result."""
    if kind == "failed":
        return await converter.decode_failure(attributes.failure)
    if kind == "canceled":
        return CancelledError()
    if kind == "terminated":
        return TerminatedError("")
    return TimeoutError("", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=())


COMPILE_PLAN, LOAD_PLAN = (
    f"{wire.INTERNAL_ID_PREFIX}{name}" for name in (wire.ACTIVITY_COMPILE_PLAN, wire.ACTIVITY_LOAD_PLAN)
)
PREPARATION_ID_BY_TYPE = {id_.removeprefix(wire.INTERNAL_ID_PREFIX): id_ for id_ in (COMPILE_PLAN, LOAD_PLAN)}
"""Type of an activity that prepares a plan -> id of this activity in the replay. No node can have this id."""


class ExecutionStart:
    """Data with which an execution of a run starts. A field is `None` until its data is known.

    Attributes:
        run_input: `None` until it is decoded.
        plan: `None` until it is complete.
        map_batch: input of the map batch, if the run processes a map batch.
        state: state of the previous execution; `None` in the first execution, and until all of it is loaded.
    """

    def __init__(self) -> None:
        self.run_input: RunInput | None = None
        self.plan: CompiledPlan | None = None
        self.map_batch: MapBatchInput | None = None
        self.state: str | None = None
        self._pages = PagedPlan()
        self._pieces: dict[str, str] = {}
        """Id of the activity that loads a piece of the state -> the piece."""

    @property
    def snapshot(self) -> RunSnapshot | None:
        """Snapshot of the previous execution."""
        return self.run_input.snapshot if self.run_input is not None else None

    @property
    def has_plan(self) -> bool:
        """Whether the plan is complete."""
        return self.plan is not None

    @property
    def can_start_run(self) -> bool:
        """Whether the run can start: this execution is its first, and the plan and the items are loaded."""
        return self.snapshot is None and self.has_plan and (self.map_batch is None or self.map_batch.source is None)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs of the run, with the items of a map batch."""
        inputs: Mapping[str, Any] = self.run_input.inputs if self.run_input is not None else {}
        return inputs if self.map_batch is None else with_items(inputs, self.map_batch.items)

    # Events.

    def read_input(self, payloads: Sequence[Payload]) -> None:
        """Decode the input of the run.

        Raises:
            MessageInvalid: the input is invalid.
        """
        self.run_input = run_input_from_json(read_argument(payloads))
        self._pages.count = len(self.run_input.pages)
        self.map_batch, self.plan = self.run_input.map_batch, self.run_input.compiled
        if (snapshot := self.snapshot) is not None:
            self.state = snapshot.state or None

    def expect_page(self, event_id: int) -> None:
        """Record the request of the next page of a large plan."""
        self._pages.expect(event_id)

    def handle(self, activity_id: str, event_id: int, payload: Payload) -> bool:
        """Handle the result of an activity; return whether the activity loads start data.

        Args:
            activity_id: id of the activity, or a value of `PREPARATION_ID_BY_TYPE`.
            event_id: id of the event that scheduled the activity.
        """
        if activity_id == COMPILE_PLAN:
            self._handle_compiled_plan(read_message(payload)["compiled"])
        elif activity_id == LOAD_PLAN:
            if (plan := self._pages.add(event_id, read_message(payload))) is not None:
                self.plan = plan
        elif activity_id == wire.ID_LOAD_ITEMS:
            self._handle_items(read_message(payload))
        elif activity_id.startswith(wire.ID_GET_STATE):
            self._add_piece(activity_id, str(read_message(payload)["text"]))
        else:
            return False
        return True

    def _handle_compiled_plan(self, plan_columns: Any) -> None:
        self._pages.count = len(page_refs_from_json(plan_columns))
        if not self._pages.count:
            self.plan = plan_from_columns(plan_columns)

    def _handle_items(self, loaded_items: Mapping[str, Any]) -> None:
        """Add the items of a map batch. An activity loads them if they are too large for the input of the batch."""
        if self.map_batch is not None:
            self.map_batch = MapBatchInput(
                self.map_batch.node_ends, value_from_json(loaded_items["value"], loaded_items.get("stored"))
            )

    def _add_piece(self, activity_id: str, piece: str) -> None:
        """Add a piece of the state. A state that is too large for the input is loaded in pieces.

        Args:
            activity_id: id of the activity that loaded the piece.
        """
        self._pieces[activity_id] = piece
        snapshot = self.snapshot
        if snapshot is not None and len(self._pieces) == len(snapshot.refs):
            activity_ids = [f"{wire.ID_GET_STATE} {number}" for number in range(1, len(snapshot.refs) + 1)]
            self.state, self._pieces = "".join(self._pieces[activity_id] for activity_id in activity_ids), {}
