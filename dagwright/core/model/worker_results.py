"""What a worker answers, a WorkerResult, and what becomes of it: the outputs are the result of its node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import ABANDONED, NodeStatus, Record
from dagwright.core.model.worker_cards import WorkerCard

MESSAGE_CHARACTERS = 2_000
"""Of the words of a worker that a run keeps beside its outputs."""

WorkerStatus = Literal["success", "failed", "partial"]
_STATUSES = ("success", "failed", "partial")
SUB_GOAL_PREFIX = "sg"
"""Begins the id of the node of a sub-goal; its number follows."""
NOT_STARTED = "dependency_failed"
"""Code of the error of a node that never began, as one before it failed."""


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """What came of a sub-goal.

    Args:
        sub_goal_id: of the sub-goal; whoever calls the worker fills it in.
        outputs: slot -> value. Of `partial` slots may be left out, which are null then; of `failed` there are none.
        error: why it failed.
        message: what a planner should know to go on, such as which names were meant perhaps.

    Raises:
        ValueError: the status is none of these, or error or message is no text.
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
        for name, words in (("error", self.error), ("message", self.message)):
            if words is not None and not isinstance(words, str):
                raise ValueError(f"the {name} of a WorkerResult is {words!r:.50}, expected a text")

    def to_json(self) -> dict[str, Any]:
        """Returns all five fields; the outputs are those objects themselves."""
        return {
            "sub_goal_id": self.sub_goal_id,
            "status": self.status,
            "outputs": dict(self.outputs),
            "error": self.error,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """What the run takes of a worker's answer: the outputs, or why there are none, and what it said besides."""

    outputs: Any
    is_partial: bool = False
    error: NodeError | None = None
    message: str | None = None


def unwrap_worker_result(value: Any, card: WorkerCard | None = None) -> Unwrapped:
    """Returns what a run takes of the answer of a worker.

    A tool that stands in for a worker may answer its outputs alone; they are taken as they are.

    Args:
        card: of the worker: outputs that are not exactly its slots are a failure.
    """
    found = _unwrapped(value)
    if card is None or found.error is not None or isinstance(found.outputs, StoredValue):
        # What lies in the store was looked at by the worker that put it there.
        return found
    if not isinstance(found.outputs, dict):
        return Unwrapped(None, error=NodeError("invalid_result", "a worker answers its slots, in an object"))
    problem = card.slots_problem(found.outputs, is_partial=found.is_partial)
    if problem is not None:
        return Unwrapped(None, error=NodeError("invalid_result", f"its slots are not those it declares: {problem}"))
    outputs = {slot: found.outputs.get(slot) for slot in card.outputs}
    return Unwrapped(outputs, found.is_partial, message=found.message)


def _unwrapped(value: Any) -> Unwrapped:
    if isinstance(value, StoredValue):
        return _unwrap_stored(value)
    if not isinstance(value, dict) or not isinstance(value.get("outputs", {}), dict):
        return Unwrapped(value)
    match value.get("status"):
        case "failed":
            words = value.get("error") or value.get("message") or "the worker failed and did not say why"
            return Unwrapped(None, error=NodeError("worker_failed", str(words)), message=_message_of(value))
        case "success" | "partial" as status if "outputs" in value:
            return Unwrapped(value["outputs"], status == "partial", message=_message_of(value))
    return Unwrapped(value)


def _unwrap_stored(value: StoredValue) -> Unwrapped:
    """Does the same with a large answer, of which these four were told."""
    status, outputs, error, message = (_told(value, name) for name in ("status", "outputs", "error", "message"))
    is_stored = isinstance(outputs, StoredValue) and outputs.shape is not None and outputs.shape.type == "object"
    if outputs is not None and not (is_stored or isinstance(outputs, dict)):
        return Unwrapped(value)
    if status == "failed":
        return _unwrapped({"status": status, "error": error, "message": message})
    if status in ("success", "partial") and outputs is not None:
        return Unwrapped(outputs, status == "partial", message=_message_of({"message": message}))
    return Unwrapped(value)


def _told(value: StoredValue, name: str) -> Any:
    try:
        found = get_value(value, (name,), start=value.name)
    except MissingValue:
        return None
    is_text = isinstance(found, StoredValue) and found.shape is not None and found.shape.type == "text"
    return found.shape.preview if is_text else found


def _message_of(value: Mapping[str, Any]) -> str | None:
    message = value.get("message")
    if not message or isinstance(message, StoredValue):
        return None
    # A worker in another language may have said it in an object.
    words = message if isinstance(message, str) else to_json(message).decode()
    return words[:MESSAGE_CHARACTERS]


def sub_goal_id_of(node_id: str) -> int | str:
    """Returns the id of the sub-goal that a node does: `sg3` and its second try `sg3#2` do the sub-goal 3."""
    number = node_id.partition("#")[0].removeprefix(SUB_GOAL_PREFIX)
    is_number = node_id.startswith(SUB_GOAL_PREFIX) and number.isascii() and number.isdigit()
    return int(number) if is_number and len(number) <= 15 else node_id


def worker_result_of(node_id: str, record: Record) -> WorkerResult | None:
    """Returns what came of the sub-goal that a node does; `None` if it has not ended, or never began.

    A node that did not complete failed, whether its worker said so, raised, or was not called. One whose place another
    took ended as it had before, and one that waited for what failed never began.
    """
    error, is_replaced = record.error, record.status is NodeStatus.SUPERSEDED
    if not record.status.is_final or record.status is NodeStatus.BLOCKED:
        return None
    if (error is not None and error.code == NOT_STARTED) or (is_replaced and error is None and record.result is None):
        return None
    number = sub_goal_id_of(node_id)
    if record.status is NodeStatus.COMPLETED or (is_replaced and error is None):
        status: WorkerStatus = "partial" if record.partial else "success"
        return WorkerResult(number, status, record.result, message=record.message)
    return WorkerResult(number, "failed", error=error_words(record), message=record.message)


def status_shown(record: Record) -> NodeStatus:
    """Returns the state in which people are shown a node: one that was left behind because it failed has failed."""
    is_left = record.status is NodeStatus.SUPERSEDED and record.reason == ABANDONED
    has_failed = record.error is not None and record.error.code != NOT_STARTED
    return NodeStatus.FAILED if is_left and has_failed else record.status


def error_words(record: Record) -> str:
    """Returns why a node put nothing out, of one that did not."""
    error = record.error
    if error is not None:
        return f"{error.code}: {error.message}"
    return record.reason or ("it was cancelled" if record.status is NodeStatus.CANCELLED else "it was left out")
