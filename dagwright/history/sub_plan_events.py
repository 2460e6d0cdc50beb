"""What the events of a history tell of the ends of sub-plans: the run itself is given them as exceptions."""

from collections.abc import Mapping
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter
from temporalio.exceptions import (
    CancelledError,
    TerminatedError,
    TimeoutError,
    TimeoutType,
    WorkflowAlreadyStartedError,
)

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.protocol.messages import SubPlanEnd
from dagwright.protocol.outcomes import ResultInvalid, read_sub_plan_end, sub_plan_failure

_ENDS = ("completed", "failed", "canceled", "timed_out", "terminated")


async def sub_plan_end_of(
    event: HistoryEvent, calls: Mapping[str, str], *, scheduler: Scheduler, converter: DataConverter
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
    for name in _ENDS:
        if event.HasField(f"child_workflow_execution_{name}_event_attributes"):  # type: ignore[arg-type]  # one of the five is always a field
            attributes = getattr(event, f"child_workflow_execution_{name}_event_attributes")
            call = _Call(calls.get(attributes.workflow_execution.workflow_id), scheduler)
            if call.node is None:
                return None
            if name == "completed":
                return _completed(call.id, attributes.result.payloads, call.node)
            error = await _error_of(name, attributes, converter)
            return sub_plan_failure(call.id, error, call.node)
    return None


class _Call:
    """A call that a sub-plan is, with its node; without one if it was given up and made again."""

    def __init__(self, call: str | None, scheduler: Scheduler) -> None:
        self.id = call or ""
        task_id = scheduler.task_of_call(call) if call is not None else None
        self.node = scheduler.node_of(task_id) if task_id is not None else None


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
