"""Decoded history events: the start of a run, its calls, and the ends of its sub-plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.expressions.value_refs import value_from_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_from_json
from dagwright.core.scheduler.task_creation import task_of_call
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.map_batch_inputs import ChunkInput
from dagwright.protocol.map_batch_runs import with_items
from dagwright.protocol.messages import RunInput, SubPlanEnd, pages_of, plan_of_pages, read_message, run_input_from_json
from dagwright.protocol.outcomes import ResultInvalid, read_sub_plan_end, sub_plan_failure
from dagwright.protocol.run_snapshot import RunCarry
from dagwright.protocol.run_start import scheduler_for_run

FailedCall = ActivityTaskFailedEventAttributes | ActivityTaskTimedOutEventAttributes


def read_argument(payloads: Sequence[Payload]) -> Any:
    """Returns the one argument of a run or of a message: of several only how many.

    Raises:
        MessageInvalid: it is no JSON.
    """
    return read_message(payloads[0]) if len(payloads) == 1 else [None] * len(payloads) or None


async def error_of_call(ended: FailedCall, activity_id: str, *, converter: DataConverter) -> ActivityError:
    """Returns why a call failed: why there is no other attempt says how many there were."""
    error = ActivityError(
        "",
        scheduled_event_id=ended.scheduled_event_id,
        started_event_id=ended.started_event_id,
        identity="",
        activity_type="",
        activity_id=activity_id,
        retry_state=RetryState(ended.retry_state) if ended.retry_state else None,
    )
    error.__cause__ = await converter.decode_failure(ended.failure)
    return error


class PagedPlan:
    """The pages of one plan.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._pages: dict[int, Any] = {}
        """Under the events that asked for them, in plan order; `None` until they are here."""

    def expect(self, event_id: int) -> None:
        """Takes note that the next page was asked for."""
        self._pages[event_id] = None

    def take(self, event_id: int, page: Any) -> CompiledPlan | None:
        """Takes a page; returns the plan if it was the last one, and if they are one: the run says why if not."""
        self._pages[event_id] = page
        if len(self._pages) < self.count or None in self._pages.values():
            return None
        try:
            head, *pages = map(unpack, self._pages.values())
            plan = plan_of_pages(head, [node for page in pages for node in nodes_from_columns(page)])
        except ValueError:
            return None
        self._pages = {}
        return plan


_ENDS = ("completed", "failed", "canceled", "timed_out", "terminated")


async def sub_plan_end_of(
    event: HistoryEvent, calls: Mapping[str, str], *, scheduler: RunScheduler, converter: DataConverter
) -> SubPlanEnd | None:
    """Returns how a sub-plan ended that sent no report; `None` if the event is about none that the run waits for.

    Args:
        calls: workflow id -> id of the call that started it.
        converter: decodes failures.
    """
    if event.HasField("start_child_workflow_execution_failed_event_attributes"):
        refused = event.start_child_workflow_execution_failed_event_attributes
        call = _Call(calls.get(refused.workflow_id), scheduler)
        error: BaseException = WorkflowAlreadyStartedError(refused.workflow_id, refused.workflow_type.name)
        return sub_plan_failure(call.id, error, call.node) if call.node is not None else None
    if (end := _end_in(event)) is None:
        return None
    name, attributes = end
    call = _Call(calls.get(attributes.workflow_execution.workflow_id), scheduler)
    if call.node is None:
        return None
    if name == "completed":
        return _completed(call.id, attributes.result.payloads, call.node)
    return sub_plan_failure(call.id, await _error_of(name, attributes, converter), call.node)


def _end_in(event: HistoryEvent) -> tuple[str, Any] | None:
    """Return how a child workflow ended and the attributes of the event; `None` for any other event."""
    for name in _ENDS:
        field = f"child_workflow_execution_{name}_event_attributes"
        if event.HasField(field):  # type: ignore[arg-type]  # one of the five is always a field
            return name, getattr(event, field)
    return None


@dataclass(frozen=True, slots=True)
class WorkflowEnd:
    """The end of the child workflow that a node is.

    Args:
        workflow_id: of the child workflow.
        result: `None` if it failed.
        error: as the run was given it.
    """

    workflow_id: str
    result: Payload | None = None
    error: BaseException | None = None


async def workflow_end_of(event: HistoryEvent, *, converter: DataConverter) -> WorkflowEnd | None:
    """Return the end of a child workflow, as the run was given it; `None` for any other event."""
    if event.HasField("start_child_workflow_execution_failed_event_attributes"):
        refused = event.start_child_workflow_execution_failed_event_attributes
        error = WorkflowAlreadyStartedError(refused.workflow_id, refused.workflow_type.name)
        return WorkflowEnd(refused.workflow_id, error=error)
    if (end := _end_in(event)) is None:
        return None
    name, attributes = end
    workflow_id = attributes.workflow_execution.workflow_id
    if name == "completed":
        payloads = attributes.result.payloads
        return WorkflowEnd(workflow_id, payloads[0] if payloads else Payload(metadata={"encoding": b"binary/null"}))
    retry_state = attributes.retry_state if name in ("failed", "timed_out") else 0
    ended = ChildWorkflowError(
        "",
        namespace="",
        workflow_id=workflow_id,
        run_id="",
        workflow_type="",
        initiated_event_id=0,
        started_event_id=0,
        retry_state=RetryState(retry_state) if retry_state else None,
    )
    ended.__cause__ = await _error_of(name, attributes, converter)
    return WorkflowEnd(workflow_id, error=ended)


class _Call:
    """A call that a sub-plan is, with its node; without one if it was given up and made again."""

    def __init__(self, call: str | None, scheduler: RunScheduler) -> None:
        self.id = call or ""
        task_id = task_of_call(scheduler.state, call) if call is not None else None
        self.node = scheduler.state.node_of(task_id) if task_id is not None else None


def _completed(call: str, payloads: Any, node: CompiledNode) -> SubPlanEnd:
    payload = payloads[0] if payloads else Payload(metadata={"encoding": b"binary/null"})
    try:
        return read_sub_plan_end(call, payload)
    except ResultInvalid as invalid:
        return sub_plan_failure(call, invalid, node)


async def _error_of(name: str, attributes: Any, converter: DataConverter) -> BaseException:
    """Returns what the workflow is given for an end that is no result."""
    if name == "failed":
        return await converter.decode_failure(attributes.failure)
    if name == "canceled":
        return CancelledError()
    if name == "terminated":
        return TerminatedError("")
    return TimeoutError("", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=())


COMPILE_PLAN, LOAD_PLAN = (
    f"{wire.INTERNAL_ID_PREFIX}{name}" for name in (wire.ACTIVITY_COMPILE_PLAN, wire.ACTIVITY_LOAD_PLAN)
)
PREPARING = {name.removeprefix(wire.INTERNAL_ID_PREFIX): name for name in (COMPILE_PLAN, LOAD_PLAN)}
"""What a run does before its first node: type of the activity -> what no node can be called."""


class Beginning:
    """What has come so far of what one execution of a run begins with.

    Args:
        run_input: `None` as long as it has not been read.
        plan: `None` as long as it is not there as a whole.
        chunk: of a large map that the run does.
        state: what the execution before handed on; `None` if none did, or not all of it is there.
    """

    def __init__(self) -> None:
        self.run_input: RunInput | None = None
        self.plan: CompiledPlan | None = None
        self.chunk: ChunkInput | None = None
        self.state: str | None = None
        self._pages = PagedPlan()
        self._pieces: dict[str, str] = {}
        """Of the state, under the ids of the activities that fetch them."""

    @property
    def carry(self) -> RunCarry | None:
        """Returns what the execution before this one handed on."""
        return self.run_input.carry if self.run_input is not None else None

    @property
    def has_plan(self) -> bool:
        """Tells whether the whole plan is there."""
        return self.plan is not None

    @property
    def is_whole(self) -> bool:
        """Tells whether a run that goes on from no other execution has all to begin."""
        return self.carry is None and self.has_plan and (self.chunk is None or self.chunk.source is None)

    def new_scheduler(self, *, began_at: float) -> RunScheduler:
        """Returns the scheduler of the run, with nothing done yet.

        Args:
            began_at: in seconds since the epoch.
        """
        assert self.plan is not None
        assert self.run_input is not None
        given = self.run_input.inputs
        inputs = given if self.chunk is None else with_items(given, self.chunk.items)
        return scheduler_for_run(self.plan, self.run_input, began_at=began_at, inputs=inputs)

    # Events.

    def read_input(self, payloads: Sequence[Payload]) -> None:
        """Reads the input of the run.

        Raises:
            MessageInvalid: it is none.
        """
        self.run_input = run_input_from_json(read_argument(payloads))
        self._pages.count = len(self.run_input.pages)
        self.chunk, self.plan = self.run_input.chunk, self.run_input.compiled
        if (carry := self.carry) is not None:
            self.state = carry.state or None

    def expect_page(self, event_id: int) -> None:
        """Takes note that the next page of a large plan was asked for."""
        self._pages.expect(event_id)

    def take(self, name: str, event_id: int, payload: Payload) -> bool:
        """Takes the result of an activity; tells whether it was one of those before the first node.

        Args:
            name: id of the activity, or one of `PREPARING`.
            event_id: of the event that scheduled it.
        """
        if name == COMPILE_PLAN:
            self._take_compiled(read_message(payload)["compiled"])
        elif name == LOAD_PLAN:
            if (plan := self._pages.take(event_id, read_message(payload))) is not None:
                self.plan = plan
        elif name == wire.ID_LOAD_ITEMS:
            self._take_items(read_message(payload))
        elif name.startswith(wire.ID_GET_STATE):
            self._take_piece(name, str(read_message(payload)["text"]))
        else:
            return False
        return True

    def _take_compiled(self, compiled: Any) -> None:
        """Takes what the activity made of a plan as it was written."""
        self._pages.count = len(pages_of(compiled))
        if not self._pages.count:
            self.plan = plan_from_json(compiled)

    def _take_items(self, loaded: Mapping[str, Any]) -> None:
        """Takes the items of a chunk that were too large for its input."""
        if self.chunk is not None:
            self.chunk = ChunkInput(self.chunk.given, value_from_json(loaded["value"], loaded.get("stored")))

    def _take_piece(self, name: str, piece: str) -> None:
        """Takes a piece of the state that was too large for the input.

        Args:
            name: id of the activity that has fetched it.
        """
        self._pieces[name] = piece
        carry = self.carry
        if carry is not None and len(self._pieces) == len(carry.refs):
            names = [f"{wire.ID_GET_STATE} {number}" for number in range(1, len(carry.refs) + 1)]
            self.state, self._pieces = "".join(self._pieces[name] for name in names), {}
