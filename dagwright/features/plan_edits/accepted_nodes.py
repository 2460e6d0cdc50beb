"""Nodes of a plan that stand already, because they were run while the rest of it was still being written.

They never change: a later writing of the plan may repeat them or leave them out, and has them either way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.model.document import Document
from dagwright.core.model.errors import Problem, pointer

ACCEPTED_CHANGED = "accepted_changed"


def with_accepted(document: Document, accepted: Sequence[Any]) -> Document:
    """Returns a document with the nodes that stand already, behind its own, as far as it does not repeat them.

    One that it repeats in another way is a problem.

    Args:
        accepted: nodes in Dagwright's own dialect, as they were written.
    """
    nodes = document.plan.get("nodes")
    if not accepted or not isinstance(nodes, list):
        return document
    standing = {node["id"]: node for node in accepted}
    problems: list[Problem] = []
    repeated: list[str] = []
    own: list[Any] = []
    for index, node in enumerate(nodes):
        node_id = node.get("id") if isinstance(node, dict) else None
        if not isinstance(node_id, str) or node_id not in standing:
            own.append(node)
            continue
        if node_id not in repeated and _content(node) != _content(standing[node_id]):
            at = document.written_pointer(pointer("nodes", index))
            message = f"{node_id!r} was started already, and cannot be another node now"
            hint = "leave it as it was, or give the new one another id, in its references too"
            problems.append(Problem(ACCEPTED_CHANGED, message, at, node_id, hint))
        # A second one of that id stays, for the check to find.
        own.append(standing[node_id] if node_id not in repeated else node)
        repeated.append(node_id)
    own += [node for node_id, node in standing.items() if node_id not in repeated]
    return replace(document, plan={**document.plan, "nodes": own}, problems=[*document.problems, *problems])


def without_nulls(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a node as a model wrote it without the fields that it was only made to write."""
    return {name: value for name, value in node.items() if value is not None}


def _content(node: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what of a node decides what it does."""
    told = {name: value for name, value in without_nulls(node).items() if name != "title"}
    return {name: value for name, value in told.items() if value not in ([], {})}
