"""Names of runs and sessions in API documents: `run_id` and `session_id`.

Commands write `workflow_id` for a run, and `run_id` for Temporal's run ID of one execution, here `execution_id`. Values
of plans are not changed.
"""

from collections.abc import Mapping
from typing import Any

_NAMES = {"workflow_id": "run_id", "run_id": "execution_id", "session": "session_id"}
_MADE = ("cached", "reused")
"""Parts of a lineage that name the run that produced a result."""


def named(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of a run with the names of the API; nested documents are not changed."""
    return {_NAMES.get(name, name): value for name, value in document.items()}


def named_run(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a run with the names of the API, also in its nodes."""
    nodes = {name: named_node(node) for name, node in document["nodes"].items()}
    return {**named(document), "nodes": nodes, "waiting_for": [named(each) for each in document["waiting_for"]]}


def named_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a node with the names of the API."""
    told = named(node)
    if lineage := node.get("lineage"):
        told["lineage"] = {name: named(value) if name in _MADE else value for name, value in lineage.items()}
    if failed := node.get("failed_items"):
        told["failed_items"] = [named(each) for each in failed]
    return told
