"""Results of queries for the Temporal UI, far below the server's limit of 2 MB whatever the size of the run.

Clients that need all data read the history instead.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import DOCUMENT_LIMIT_BYTES
from dagwright.core.expressions.value_refs import encoded_size, format_value_refs
from dagwright.features.compensation.compensation import compensated_by
from dagwright.protocol.compact_documents import compact_value, reference_to
from dagwright.protocol.documents import graph_document, node_counts_of, node_document

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

MAX_GRAPH_PARTS = 10_000
"""Maximum of the nodes plus the edges of a graph in a result: a larger graph takes too long to build and measure."""
_MAX_LIST_BYTES = 400_000
"""JSON size to which a list is cut if the whole result is too large."""


def status_result(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compact document of a run, with as many of its open requests as fit into a query result."""
    if encoded_size(document) <= DOCUMENT_LIMIT_BYTES:
        return dict(document)
    fitting_requests = _fitting_values(document["waiting_for"])
    omitted_count = len(document["waiting_for"]) - len(fitting_requests)
    counts_text = f"{omitted_count:,} of {len(document['waiting_for']):,} requests"
    problem = f"{counts_text} are omitted, because they are too large for a query"
    note = {"code": "too_large", "node_id": None, "message": f"{problem}; `dagwright status RUN --json` lists all"}
    return {
        **document,
        "waiting_for": fitting_requests,
        "notes": [*_fitting_values(document["notes"]), *([note] if omitted_count else [])],
    }


def node_result(scheduler: "RunScheduler", task_id: str) -> dict[str, Any] | None:
    """Return the document of a node or item; `None` if there is no such node."""
    record = scheduler.record_of(task_id)
    if record is None:
        return None
    document = node_document(scheduler, task_id, node=scheduler.state.node_of(task_id), record=record)
    if (compensating_id := compensated_by(scheduler.state).get(task_id)) is not None:
        document["compensated_by"] = compensating_id
    document["result"] = format_value_refs(document["result"], lambda part: reference_to(part, ref=task_id))
    if encoded_size(document) <= DOCUMENT_LIMIT_BYTES:
        return document
    lineage = document["lineage"]
    return document | {
        "result": compact_value(document["result"], ref=f"node:{task_id}"),
        "blocked_by": _fitting_values(document["blocked_by"]),
        "lineage": {**lineage, "inputs": _fitting_values(lineage["inputs"])},
        "note": f"too large for a query: lists are cut; `dagwright node RUN {task_id[:100]!r} --full` shows all of it",
    }


def graph_result(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return nodes and edges with their states; for a large plan the number of nodes by state, and a note."""
    node_count = scheduler.plan.visible_count
    edge_count = sum(len(node.dependencies) for node, _ in scheduler.state.visible_nodes())
    if node_count + edge_count <= MAX_GRAPH_PARTS:
        graph = graph_document(scheduler)
        if encoded_size(graph) <= DOCUMENT_LIMIT_BYTES:
            return graph
    sizes = f"{node_count:,} nodes and {edge_count:,} edges are too large for a query"
    message = f"{sizes}; `dagwright graph RUN` draws them, and `dagwright graph RUN --format json` lists all"
    return {"nodes": [], "edges": [], "node_counts": node_counts_of(scheduler), "note": message}


def _fitting_values(values: Sequence[Any]) -> list[Any]:
    """Return the first values of a list, as many as fit into `_MAX_LIST_BYTES`."""
    fitting_values: list[Any] = []
    size = 0
    for value in values:
        size += encoded_size(value)
        if size > _MAX_LIST_BYTES:
            break
        fitting_values.append(value)
    return fitting_values
