"""What a worker tool of the subgoals dialect answers: a WorkerResult (deterministic-planner seed)."""

from typing import Any

from dagwright.plan.errors import NodeError


def unwrap_worker_result(value: Any) -> tuple[Any, bool, NodeError | None]:
    """Returns the outputs of a worker, whether they are partial, and its error if it failed.

    A tool that stands in for a worker may answer its outputs alone; they are taken as they are.
    """
    if not isinstance(value, dict) or not isinstance(value.get("outputs", {}), dict):
        return value, False, None
    match value.get("status"):
        case "failed":
            message = value.get("error") or value.get("message") or "the worker failed and did not say why"
            return None, False, NodeError("worker_failed", str(message))
        case "success" | "partial" as status if "outputs" in value:
            return value["outputs"], status == "partial", None
    return value, False, None
