"""The dialect `agents`: `{"nodes": [{"id", "agent", "objective", "depends_on"}], "metadata"}`.

The context of an agent has the results of its dependencies, in the order of `depends_on`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Problem
from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, entry_name, node_ids
from dagwright.dialects.json_reader import describe

KEYS = frozenset({"id", "agent", "objective", "depends_on"})
ROOT_KEYS = frozenset({"nodes", "metadata"})


def read_agents(raw: JsonValue) -> Document:
    """Return the document of a graph of agents.

    Raises:
        PlanInvalid: there is no list of nodes, or it is empty.
    """
    draft = DocumentDraft("agents", "/nodes")
    nodes = draft.entries_under_key(raw, "nodes", other_keys=ROOT_KEYS)
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if isinstance(metadata, dict):
        draft.metadata = metadata
    elif metadata is not None:
        message = f"'metadata' must be an object, not {describe(metadata)}"
        draft.problems.append(Problem("invalid_field", message, "/metadata"))
    for index, (node, node_id) in enumerate(zip(nodes, node_ids(nodes, kind="node"), strict=True)):
        entry = draft.entry(node, index, name=entry_name("node", node, index + 1), node_id=node_id)
        draft.nodes.append(_node(entry, node_id) if entry is not None else {"id": node_id, **STAND_IN_ACTION})
    return draft.document()


def _node(entry: ObjectReader, node_id: str) -> dict[str, Any]:
    entry.expect_keys(KEYS)
    entry.nonempty_text("id")
    agent = entry.nonempty_text("agent")
    objective = entry.text("objective")
    action: Mapping[str, Any] = STAND_IN_ACTION
    if agent is not None:
        action = {"agent": agent, "objective": objective if objective is not None else ""}
    depends_on = entry.dependencies("depends_on") if "depends_on" in entry.raw else []
    return {"id": node_id, **action, "depends_on": depends_on}
