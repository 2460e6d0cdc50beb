"""The dialect `steps`: a list of `{"id", "intent", "tool", "arguments", "depends_on"}`.

The document is the list, or an object with the list under the key `steps` or `plan`. The arguments of a step can refer
to the results of other steps. `intent` and `depends_on` are optional.
"""

from typing import Any

from pydantic import JsonValue

from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool, entry_name, node_ids

_KEYS = frozenset({"id", "intent", "tool", "arguments", "depends_on"})


def read_steps(raw: JsonValue) -> Document:
    """Return the document of a list of steps.

    Raises:
        PlanInvalid: there is no list of steps, or it is empty.
    """
    if isinstance(raw, list):
        draft = DocumentDraft("steps", "")
        steps = draft.entries_of_list(raw, name="the list of steps")
    else:
        key = "plan" if isinstance(raw, dict) and "plan" in raw and "steps" not in raw else "steps"
        draft = DocumentDraft("steps", f"/{key}")
        steps = draft.entries_under_key(raw, key)
    for index, (step, node_id) in enumerate(zip(steps, node_ids(steps, kind="step"), strict=True)):
        entry = draft.entry(step, index, name=entry_name("step", step, index + 1), node_id=node_id)
        # An invalid step still becomes a node, so that each node has the index of its step.
        stand_in_node: dict[str, Any] = {"id": node_id, **STAND_IN_ACTION}
        draft.nodes.append(_node(entry, node_id) if entry is not None else stand_in_node)
    return draft.document(
        additional_pointers=lambda: [
            (f"/nodes/{index}/title", f"{draft.entries_pointer}/{index}/intent") for index in range(len(steps))
        ]
    )


def _node(entry: ObjectReader, node_id: str) -> dict[str, Any]:
    entry.expect_keys(_KEYS)
    entry.nonempty_text("id")
    intent = entry.optional_text("intent")
    node: dict[str, Any] = {"id": node_id, "title": intent} if intent is not None else {"id": node_id}
    node |= action_of_tool(entry.nonempty_text("tool"))
    node["arguments"] = entry.object("arguments")
    if "depends_on" in entry.raw:
        node["depends_on"] = entry.dependencies("depends_on")
    return node
