"""The dialect `tasks`: `{"dag": [{"id", "tool", "query", "dependencies"}]}`, all four keys required.

A query may use `{{task.result}}` of any task. If the task is not among the `dependencies`, the edge is added with a
note, because the author may have relied on the reference alone.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Note
from dagwright.core.expressions.reference_parser import BadReferences, contains_reference, parse_template
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool, entry_name, node_ids

_KEYS = frozenset({"id", "tool", "query", "dependencies"})
_ID = re.compile(r"[A-Za-z0-9_-]+")


def read_tasks(raw: JsonValue) -> Document:
    """Return the document of a list of tasks.

    Raises:
        PlanInvalid: there is no list of tasks, or it is empty.
    """
    draft = DocumentDraft("tasks", "/dag")
    tasks = draft.entries_under_key(raw, "dag")
    ids = node_ids(tasks, kind="task")
    known_ids = frozenset(ids)
    for index, (task, node_id) in enumerate(zip(tasks, ids, strict=True)):
        entry = draft.entry(task, index, name=entry_name("task", task, index + 1), node_id=node_id)
        node: dict[str, Any] = {"id": node_id, **STAND_IN_ACTION}
        if entry is not None:
            node = _node(entry, node_id)
            draft.notes += _added_edge_notes(node, known_ids)
        draft.nodes.append(node)
    return draft.document(additional_pointers=lambda: _pointers(len(tasks)))


def _pointers(count: int) -> Iterator[tuple[str, str]]:
    for index in range(count):
        yield f"/nodes/{index}/arguments", f"/dag/{index}"
        yield f"/nodes/{index}/depends_on", f"/dag/{index}/dependencies"


def _node(entry: ObjectReader, node_id: str) -> dict[str, Any]:
    entry.expect_keys(_KEYS)
    task_id = entry.nonempty_text("id")
    if task_id is not None and _ID.fullmatch(task_id) is None:
        hint = re.sub(r"[^A-Za-z0-9_-]+", "_", task_id)
        message = "an id may contain only ASCII letters, ASCII digits, _ and -"
        entry.report("invalid_field", message, "id", hint=f"write {hint!r}")
    tool = entry.nonempty_text("tool")
    query = entry.text("query")
    return {
        "id": node_id,
        **action_of_tool(tool),
        "arguments": {"query": query if query is not None else ""},
        "depends_on": entry.dependencies("dependencies"),
    }


def _added_edge_notes(node: dict[str, Any], known_ids: Collection[str]) -> list[Note]:
    query: str = node["arguments"]["query"]
    if not contains_reference(query):
        return []
    try:
        parts = parse_template(query, known_ids)
    except BadReferences:
        return []
    declared_ids = {node["id"], *node["depends_on"]}
    used_ids = dict.fromkeys(
        part.node_id for part in parts if isinstance(part, ResultOf) and part.node_id not in declared_ids
    )
    return [
        Note(
            "added_edge",
            f"task {node['id']!r} uses the result of {used_id!r}; the edge was added to its dependencies",
            node["id"],
        )
        for used_id in used_ids
    ]
