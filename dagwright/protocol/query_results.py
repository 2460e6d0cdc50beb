"""What queries answer, for the Temporal UI: whatever a run holds, no answer comes near the 2 MB that the server takes.

Who wants to know all asks the commands, which read the history.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary.limits import DOCUMENT_LIMIT_BYTES
from dagwright.core.expressions.value_refs import with_shown
from dagwright.core.scheduler.run_end import counts_of
from dagwright.features.compensation.compensation import compensated_by
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.documents import (
    compact_value,
    encoded_size,
    graph_document,
    node_document,
    reference_to,
)

GRAPH_PARTS = 10_000
"""Nodes and edges up to which a graph is written at all: of more it takes long to find out that they are too large."""
_KEPT_BYTES = 400_000
"""JSON of a list that is cut because the whole answer would be too large."""


def status_answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the compact document of a run with as many of its open requests as an answer can hold."""
    if encoded_size(document) <= DOCUMENT_LIMIT_BYTES:
        return dict(document)
    kept = _first_of(document["waiting_for"])
    left = len(document["waiting_for"]) - len(kept)
    told = f"{left:,} of {left + len(kept):,} requests are left out, which are too large for a query"
    note = {"code": "too_large", "node_id": None, "message": f"{told}; `dagwright inbox` lists all"}
    return {**document, "waiting_for": kept, "notes": [*_first_of(document["notes"]), *([note] if left else [])]}


def node_answer(scheduler: RunScheduler, task_id: str) -> dict[str, Any] | None:
    """Returns the document of a node or item; `None` if there is none of that id."""
    record = scheduler.record_of(task_id)
    if record is None:
        return None
    document = node_document(scheduler, task_id, node=scheduler.state.node_of(task_id), record=record)
    if (undo := compensated_by(scheduler.state).get(task_id)) is not None:
        document["compensated_by"] = undo
    document["result"] = with_shown(document["result"], lambda part: reference_to(part, ref=task_id))
    if encoded_size(document) <= DOCUMENT_LIMIT_BYTES:
        return document
    lineage = document["lineage"]
    return document | {
        "result": compact_value(document["result"], ref=f"node:{task_id}"),
        "blocked_by": _first_of(document["blocked_by"]),
        "lineage": {**lineage, "inputs": _first_of(lineage["inputs"])},
        "note": f"too large for a query: lists are cut; `dagwright node RUN {task_id[:100]!r} --full` tells all of it",
    }


def graph_answer(scheduler: RunScheduler) -> dict[str, Any]:
    """Returns nodes and edges with their states; of a large plan the counts by state, and a note."""
    steps = scheduler.plan.written_count
    edges = sum(len(node.dependencies) for node, _ in scheduler.state.shown())
    if steps + edges <= GRAPH_PARTS:
        graph = graph_document(scheduler)
        if encoded_size(graph) <= DOCUMENT_LIMIT_BYTES:
            return graph
    counts = {
        status.value: count for status, count in sorted(counts_of(scheduler.plan, scheduler.records).items()) if count
    }
    told = f"{steps:,} nodes and {edges:,} edges are too large for a query"
    message = f"{told}; `dagwright graph RUN` draws them, and `dagwright graph RUN --format json` lists all"
    return {"nodes": [], "edges": [], "counts": counts, "note": message}


def _first_of(values: Sequence[Any]) -> list[Any]:
    """Returns the first of some values, as many as fit into an answer beside another such list."""
    kept: list[Any] = []
    size = 0
    for value in values:
        size += encoded_size(value)
        if size > _KEPT_BYTES:
            break
        kept.append(value)
    return kept
