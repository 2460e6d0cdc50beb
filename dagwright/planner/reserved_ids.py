"""Rename nodes of a model's plan whose ids are reserved for the run, where the change is unambiguous.

A model may name a node `read` or `answer` by chance. The node and its references are renamed. If the id may also occur
elsewhere, such as in a condition, the plan goes back to the model.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from dagwright.core.model.document import Document
from dagwright.dialects.written_values import Repair
from dagwright.planning.plan_and_execute.goal_spec import is_reserved

_FIELDS_WITHOUT_REFERENCES = ("id", "depends_on", "plan", "tool", "title")
"""Fields of a node in which references in braces are not renamed. A sub-plan (`plan`) has separate ids."""


def rename_reserved_ids(document: Document) -> tuple[dict[str, Any], list[Repair]] | None:
    """Return a plan without reserved node ids, and the repairs; `None` if the change is ambiguous.

    Args:
        document: a plan that is valid except for the reserved ids.
    """
    nodes = document.plan["nodes"]
    ids = [node["id"] for node in nodes]
    reserved_ids = [node_id for node_id in ids if is_reserved(node_id)]
    is_ambiguous = any(_is_ambiguous(node_id, nodes) for node_id in reserved_ids)
    if document.bindings or document.worker_tool_nodes or document.sub_documents or is_ambiguous:
        return None
    new_ids: dict[str, str] = {}
    for node_id in reserved_ids:
        new_ids[node_id] = _free_id(node_id, {*ids, *new_ids.values()})
    plan = {**document.plan, "nodes": [_with_new_ids(node, new_ids) for node in nodes]}
    repairs = [
        Repair(
            "reserved_id",
            f"the id {old_id!r}, which is reserved for the run, was changed to {new_id!r}",
            node_id=new_id,
        )
        for old_id, new_id in new_ids.items()
    ]
    return plan, repairs


def _is_ambiguous(node_id: str, nodes: list[Any]) -> bool:
    """Return whether an id occurs in a place where it may mean something other than the node."""
    word = re.compile(rf"(?<!\w){re.escape(node_id)}(?!\w)")
    escaped_reference = re.compile(rf"\\\{{\{{\s*{re.escape(node_id)}\b")
    return any(
        word.search(str(node.get("when") or ""))
        or node["id"].startswith(f"{node_id}.")
        or any(escaped_reference.search(text) for text in _texts_of(node))
        for node in nodes
    )


def _free_id(node_id: str, taken_ids: Collection[str]) -> str:
    base_id = f"{node_id.replace('#', '_')}_step"
    number = 1
    while (candidate := base_id if number == 1 else f"{base_id}_{number}") in taken_ids:
        number += 1
    return candidate


def _with_new_ids(node: Mapping[str, Any], new_ids: Mapping[str, str]) -> dict[str, Any]:
    id_pattern = "|".join(re.escape(node_id) for node_id in sorted(new_ids, key=len, reverse=True))
    reference = re.compile(rf"(\{{\{{\s*)({id_pattern})(?=\.(?:result|status|error)\b)")

    def replace_ids(value: Any) -> Any:
        if isinstance(value, str):
            return reference.sub(lambda match: match[1] + new_ids[match[2]], value)
        if isinstance(value, list):
            return [replace_ids(part) for part in value]
        return {name: replace_ids(part) for name, part in value.items()} if isinstance(value, dict) else value

    document = {
        name: value if name in _FIELDS_WITHOUT_REFERENCES else replace_ids(value) for name, value in node.items()
    }
    document["id"] = new_ids.get(node["id"], node["id"])
    if node.get("depends_on"):
        document["depends_on"] = [new_ids.get(node_id, node_id) for node_id in node["depends_on"]]
    return document


def _texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts_of(part)]
