"""Error of a failed run for programs: a code, a message and the node."""

from collections.abc import Mapping
from typing import Any

from dagwright.core.error_codes import FailureCode
from dagwright.core.model.states import NodeStatus, RunStatus

NODE_FAILED = FailureCode.NODE_FAILED.value
NOTHING_COMPLETED = FailureCode.NOTHING_COMPLETED.value
DERIVED_ERROR_CODES = frozenset({NODE_FAILED, NOTHING_COMPLETED})
"""Codes of errors that are derived from the nodes of a run, because the run itself recorded no error."""
FIRST_FAILED = "first_failed"
"""Field of `nodes_ref` in documents with counts instead of nodes: ID and message of the first failed node."""
NOTHING_COMPLETED_MESSAGE = "no required node was completed"
"""Message of a failed run that has no other error, in runs and in documents."""


def run_error_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error of a result document, with the `node_id` of the failed node.

    Args:
        document: status, error, nodes and `nodes_ref` of a run. An error with a derived code is derived again, because
            the document may now have more nodes than when the error was derived.

    Returns:
        `None` for a run without an error. For a failed run whose document has no error, the error of its first failed
        node in plan order; its `node_id` is `None` if the document does not name that node.
    """
    error = document.get("error")
    if isinstance(error, Mapping) and error.get("code") not in DERIVED_ERROR_CODES:
        return {"node_id": None, **error}
    if document.get("status") != RunStatus.FAILED.value:
        return None
    nodes = document.get("nodes")
    failed_nodes = [
        (name, node["error"] if isinstance(node.get("error"), Mapping) else {})
        for name, node in (nodes.items() if isinstance(nodes, Mapping) else ())
        if isinstance(node, Mapping) and node.get("status") == NodeStatus.FAILED.value
    ]
    reference = document.get("nodes_ref") or {}
    failed_count = len(failed_nodes) + int(reference.get("counts", {}).get(NodeStatus.FAILED.value, 0))
    if failed_count == 0:
        return {"code": NOTHING_COMPLETED, "message": NOTHING_COMPLETED_MESSAGE, "node_id": None}
    if not failed_nodes and FIRST_FAILED in reference:
        failed_nodes = [(reference[FIRST_FAILED]["node_id"], reference[FIRST_FAILED])]
    if not failed_nodes:
        message = "1 node failed" if failed_count == 1 else f"{failed_count:,} nodes failed"
        return {"code": NODE_FAILED, "message": message, "node_id": None}
    name, cause = failed_nodes[0]
    more_text = f"; {failed_count - 1:,} more failed" if failed_count > 1 else ""
    return {"code": NODE_FAILED, "message": f"{name!r} failed: {cause.get('message')}{more_text}", "node_id": name}
