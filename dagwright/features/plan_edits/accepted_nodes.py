"""Accepted nodes: nodes of a plan that were started while the rest of the plan was still being written.

Accepted nodes never change. A later version of the plan contains them whether or not the model repeats them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.errors import Problem, pointer
from dagwright.core.model.document import Document

ACCEPTED_NODE_CHANGED = "accepted_node_changed"


def append_accepted_nodes(document: Document, accepted_nodes: Sequence[Any]) -> Document:
    """Append the accepted nodes that a document does not repeat.

    A node that repeats an accepted node with different content is a problem.

    Args:
        accepted_nodes: nodes in Dagwright's own dialect, as they were written.
    """
    nodes = document.plan.get("nodes")
    if not accepted_nodes or not isinstance(nodes, list):
        return document
    accepted_by_id = {node["id"]: node for node in accepted_nodes}
    problems: list[Problem] = []
    repeated_ids: list[str] = []
    merged_nodes: list[Any] = []
    for index, node in enumerate(nodes):
        node_id = node.get("id") if isinstance(node, dict) else None
        if not isinstance(node_id, str) or node_id not in accepted_by_id:
            merged_nodes.append(node)
            continue
        if node_id not in repeated_ids and _content(node) != _content(accepted_by_id[node_id]):
            node_pointer = document.written_pointer(pointer("nodes", index))
            message = f"{node_id!r} was already started and cannot be changed"
            hint = "leave it unchanged, or give the new node another id, also in references to it"
            problems.append(Problem(ACCEPTED_NODE_CHANGED, message, node_pointer, node_id, hint))
        # A second node with the same id stays in the document, so that validation reports it.
        merged_nodes.append(accepted_by_id[node_id] if node_id not in repeated_ids else node)
        repeated_ids.append(node_id)
    merged_nodes += [node for node_id, node in accepted_by_id.items() if node_id not in repeated_ids]
    return replace(document, plan={**document.plan, "nodes": merged_nodes}, problems=[*document.problems, *problems])


def without_nulls(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node without null fields, which a model writes only because its schema requires all fields."""
    return {name: value for name, value in node.items() if value is not None}


def _content(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a node that affect its execution."""
    fields = {name: value for name, value in without_nulls(node).items() if name != "title"}
    return {name: value for name, value in fields.items() if value not in ([], {})}
