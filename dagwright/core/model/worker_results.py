"""WorkerResult: the result of a worker tool, and its conversion to the result of the node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.states import ABANDONED, NodeError, NodeStatus, Record
from dagwright.core.model.tools import WorkerCard

MESSAGE_CHARACTERS = 2_000
"""Longest message of a worker tool that a run stores in addition to the outputs."""

WorkerStatus = Literal["success", "failed", "partial"]
_STATUSES = ("success", "failed", "partial")
SUB_GOAL_PREFIX = "sg"
"""Prefix of the node id of a sub-goal; the number of the sub-goal follows."""
DEPENDENCY_FAILED = "dependency_failed"
"""Error code of a node that never started because a node it depends on failed."""


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """Result of a sub-goal.

    Args:
        sub_goal_id: id of the sub-goal; the caller of the worker tool sets it.
        outputs: slot -> value. With `partial`, missing slots are null; with `failed`, there are no outputs.
        error: reason of the failure.
        message: information for the planner, such as names that may have been meant.

    Raises:
        ValueError: the status is unknown, or error or message is not a text.
    """

    sub_goal_id: int | str | None = None
    status: WorkerStatus = "success"
    outputs: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(
                f"the status of a WorkerResult is {self.status!r:.50}, expected success, failed or partial"
            )
        for name, text in (("error", self.error), ("message", self.message)):
            if text is not None and not isinstance(text, str):
                raise ValueError(f"the {name} of a WorkerResult is {text!r:.50}, expected a text")

    def to_json(self) -> dict[str, Any]:
        """Return all five fields. The outputs are not copied deeply."""
        return {
            "sub_goal_id": self.sub_goal_id,
            "status": self.status,
            "outputs": dict(self.outputs),
            "error": self.error,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class UnwrappedResult:
    """Content of a worker tool's result: the outputs or the error, and the message."""

    outputs: Any
    is_partial: bool = False
    error: NodeError | None = None
    message: str | None = None


def unwrap_worker_result(value: Any, card: WorkerCard | None = None) -> UnwrappedResult:
    """Return the outputs, the error and the message of a worker tool's result.

    A tool that replaces a worker tool may return only the outputs, without a `WorkerResult`.

    Args:
        card: card with the slots of the worker tool. A result with other slots is returned as an error.
    """
    unwrapped = _unwrap(value)
    if card is None or unwrapped.error is not None or isinstance(unwrapped.outputs, StoredValue):
        # The worker process that stored the value has checked it.
        return unwrapped
    if not isinstance(unwrapped.outputs, dict):
        return UnwrappedResult(
            None, error=NodeError("invalid_result", "a worker tool must return an object of its slots")
        )
    problem = card.slots_problem(unwrapped.outputs, is_partial=unwrapped.is_partial)
    if problem is not None:
        return UnwrappedResult(
            None,
            error=NodeError("invalid_result", f"the slots of the result differ from the declared slots: {problem}"),
        )
    outputs = {slot: unwrapped.outputs.get(slot) for slot in card.outputs}
    return UnwrappedResult(outputs, unwrapped.is_partial, message=unwrapped.message)


def _unwrap(value: Any) -> UnwrappedResult:
    if isinstance(value, StoredValue):
        return _unwrap_stored_result(value)
    if not isinstance(value, dict) or not isinstance(value.get("outputs", {}), dict):
        return UnwrappedResult(value)
    match value.get("status"):
        case "failed":
            text = value.get("error") or value.get("message") or "the worker tool failed without a reason"
            return UnwrappedResult(None, error=NodeError("worker_failed", str(text)), message=_message_of(value))
        case "success" | "partial" as status if "outputs" in value:
            return UnwrappedResult(value["outputs"], status == "partial", message=_message_of(value))
    return UnwrappedResult(value)


def _unwrap_stored_result(value: StoredValue) -> UnwrappedResult:
    """Return the content of a large result, of which four fields were projected."""
    status, outputs, error, message = (
        _projected_field(value, name) for name in ("status", "outputs", "error", "message")
    )
    is_stored = isinstance(outputs, StoredValue) and outputs.shape is not None and outputs.shape.type == "object"
    if outputs is not None and not (is_stored or isinstance(outputs, dict)):
        return UnwrappedResult(value)
    if status == "failed":
        return _unwrap({"status": status, "error": error, "message": message})
    if status in ("success", "partial") and outputs is not None:
        return UnwrappedResult(outputs, status == "partial", message=_message_of({"message": message}))
    return UnwrappedResult(value)


def _projected_field(value: StoredValue, name: str) -> Any:
    try:
        field_value = get_value(value, (name,), name=value.name)
    except MissingValue:
        return None
    is_text = (
        isinstance(field_value, StoredValue) and field_value.shape is not None and field_value.shape.type == "text"
    )
    return field_value.shape.preview if is_text else field_value


def _message_of(value: Mapping[str, Any]) -> str | None:
    message = value.get("message")
    if not message or isinstance(message, StoredValue):
        return None
    # A worker tool in another language may return its message as an object.
    text = message if isinstance(message, str) else to_json(message).decode()
    return text[:MESSAGE_CHARACTERS]


def sub_goal_id_of(node_id: str) -> int | str:
    """Return the sub-goal id of a node: `sg3` and its second attempt `sg3#2` belong to the sub-goal 3."""
    number = node_id.partition("#")[0].removeprefix(SUB_GOAL_PREFIX)
    is_number = node_id.startswith(SUB_GOAL_PREFIX) and number.isascii() and number.isdigit()
    return int(number) if is_number and len(number) <= 15 else node_id


def worker_result_of(node_id: str, record: Record) -> WorkerResult | None:
    """Return the result of a node's sub-goal; `None` if the node has not ended, or a failed dependency blocked it.

    Every other node that did not complete counts as failed, even if its worker tool was not called. For a node that was
    replaced, the result is the outcome before the replacement.
    """
    error, is_replaced = record.error, record.status is NodeStatus.SUPERSEDED
    if not record.status.is_final or record.status is NodeStatus.BLOCKED:
        return None
    if (error is not None and error.code == DEPENDENCY_FAILED) or (
        is_replaced and error is None and record.result is None
    ):
        return None
    number = sub_goal_id_of(node_id)
    if record.status is NodeStatus.COMPLETED or (is_replaced and error is None):
        status: WorkerStatus = "partial" if record.partial else "success"
        return WorkerResult(number, status, record.result, message=record.message)
    return WorkerResult(number, "failed", error=reason_for_missing_outputs(record), message=record.message)


def displayed_status(record: Record) -> NodeStatus:
    """Return the state of a node for display: `failed` for a superseded node that was abandoned after a failure."""
    is_abandoned = record.status is NodeStatus.SUPERSEDED and record.reason == ABANDONED
    has_failed = record.error is not None and record.error.code != DEPENDENCY_FAILED
    return NodeStatus.FAILED if is_abandoned and has_failed else record.status


def reason_for_missing_outputs(record: Record) -> str:
    """Return why a node that has ended has no outputs."""
    error = record.error
    if error is not None:
        return f"{error.code}: {error.message}"
    return record.reason or ("it was cancelled" if record.status is NodeStatus.CANCELLED else "it was skipped")
