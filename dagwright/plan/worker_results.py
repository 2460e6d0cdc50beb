"""What a worker tool of the subgoals dialect answers: a WorkerResult (deterministic-planner seed)."""

from typing import Any

from dagwright.plan.errors import NodeError
from dagwright.plan.paths import MissingValue, get_value
from dagwright.plan.stored import StoredValue


def unwrap_worker_result(value: Any) -> tuple[Any, bool, NodeError | None]:
    """Returns the outputs of a worker, whether they are partial, and its error if it failed.

    A tool that stands in for a worker may answer its outputs alone; they are taken as they are.
    """
    if isinstance(value, StoredValue):
        return _unwrap_stored(value)
    if not isinstance(value, dict) or not isinstance(value.get("outputs", {}), dict):
        return value, False, None
    match value.get("status"):
        case "failed":
            message = value.get("error") or value.get("message") or "the worker failed and did not say why"
            return None, False, NodeError("worker_failed", str(message))
        case "success" | "partial" as status if "outputs" in value:
            return value["outputs"], status == "partial", None
    return value, False, None


def _unwrap_stored(value: StoredValue) -> tuple[Any, bool, NodeError | None]:
    """Does the same with a large answer, of which these four were told."""
    status, outputs, error, message = (_told(value, name) for name in ("status", "outputs", "error", "message"))
    is_stored = isinstance(outputs, StoredValue) and outputs.shape is not None and outputs.shape.type == "object"
    if outputs is not None and not (is_stored or isinstance(outputs, dict)):
        return value, False, None
    if status == "failed":
        return unwrap_worker_result({"status": status, "error": error, "message": message})
    if status in ("success", "partial") and outputs is not None:
        return outputs, status == "partial", None
    return value, False, None


def _told(value: StoredValue, name: str) -> Any:
    try:
        found = get_value(value, (name,), start=value.name)
    except MissingValue:
        return None
    is_text = isinstance(found, StoredValue) and found.shape is not None and found.shape.type == "text"
    return found.shape.preview if is_text else found
