"""Reading of messages and sub-plan reports, and the targets of reports (docs/reference/messages.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.common.v1 import Payload

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.usage_reports import NO_USAGE, Usage, reported_agent_usage, reported_usage
from dagwright.core.errors import Problem
from dagwright.core.expressions.value_refs import value_from_json
from dagwright.core.model.lineage import NO_LINEAGE, LineageEntries
from dagwright.core.model.times import parse_duration
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.protocol.lineage import lineage_from_details


class MessageInvalid(Exception):
    """A message is invalid; the text describes the expected form.

    Args:
        code: error code of a run that ends because of the message.
        problems: the individual problems, if they are known.
    """

    def __init__(self, message: str, *, code: str = "invalid", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.problems = problems


def read_message(payload: Payload) -> Any:
    """Return the JSON value of a payload; an empty payload is null.

    Raises:
        MessageInvalid: the payload is not JSON, or contains values that cannot be encoded again.
    """
    if payload.metadata.get("encoding") == b"binary/null":
        return None
    try:
        return json_from_bytes(payload.data)
    except ValueError as error:
        raise MessageInvalid(f"the payload is not JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class Parent:
    """Parent run of a sub-plan, and the task in it to which the sub-plan reports."""

    run_id: str
    task: str


@dataclass(frozen=True, slots=True)
class ParentSession:
    """Session to which the run of a turn reports its end.

    Args:
        workflow_id: workflow id of the session.
        turn: id of the turn, which is the id of its first run.
    """

    workflow_id: str
    turn: str

    def to_json(self) -> dict[str, str]:
        return {"session_workflow_id": self.workflow_id, "turn": self.turn}


def max_in_flight_from_json(value: Any) -> int:
    """Decode the limit of tasks in flight.

    Raises:
        ValueError: the value is invalid. The caller puts the name of the field before the message.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a number from 1 to {MAX_IN_FLIGHT}, not {value!r:.60}")
    return min(value, MAX_IN_FLIGHT)


def deadline_from_json(value: Any) -> float:
    """Decode a deadline, in seconds.

    Raises:
        ValueError: the value is invalid. The caller puts the name of the field before the message.
    """
    if not isinstance(value, str):
        raise ValueError(f"must be a duration such as 2h, not {value!r:.60}")
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise ValueError(f"must be a duration: {error}") from None


@dataclass(frozen=True, slots=True)
class SubPlanEnd:
    """Report of a sub-plan: the payload of `sub_plan_ended`.

    Args:
        call_id: id of the call that started the sub-plan: `archive`, or `archive#2` after a retry.
        map_batch: for the run of a map batch, the end of its items, as decoded by `map_batch_runs`.
        usage: usage of models by the sub-plan; `agents` is the part of each agent.
        lineage: lineage of the sub-plan; for the run of an agent, with its calls.
        child_snapshot: for a run that compensates, JSON of the snapshot from which another run can compensate the calls
            of the sub-plan; `{}` if the sub-plan has no effects, `None` if its effects are unknown.
    """

    call_id: str
    status: str
    output: Any
    error: Mapping[str, Any] | None
    map_batch: Any = None
    usage: Usage = NO_USAGE
    agents: Mapping[str, Usage] = field(default_factory=dict)
    lineage: LineageEntries = NO_LINEAGE
    child_snapshot: Any = None


def sub_plan_end_from_json(message: Any) -> SubPlanEnd:
    """Decode the report of a sub-plan.

    Raises:
        MessageInvalid: the report is invalid.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("task"), str):
        raise MessageInvalid("a report of a sub-plan must be an object with the id of its task")
    error = message.get("error")
    try:
        output = value_from_json(message.get("output"), message.get("stored_output"))
    except ValueError as unreadable:
        raise MessageInvalid(f"invalid output of a sub-plan: {unreadable}") from None
    return SubPlanEnd(
        call_id=message["task"],
        status=str(message.get("status")),
        output=output,
        error=error if isinstance(error, Mapping) else None,
        map_batch=message.get("map_batch"),
        usage=reported_usage(message),
        agents=reported_agent_usage(message),
        lineage=lineage_from_details(message),
        child_snapshot=message.get("child_snapshot"),
    )
