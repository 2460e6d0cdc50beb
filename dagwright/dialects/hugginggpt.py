"""The dialect `hugginggpt`: `[{"task", "id", "dep", "args"}]`, where `<GENERATED>-0` is the result of task 0.

`dep` lists the IDs of the dependencies, and is `[-1]` if there are none. `<GENERATED>` without an ID is the result
of the only task in `dep`. A reference to a task that is not in `dep` adds the edge, with a note.

Source: Shen et al., "HuggingGPT: Solving AI Tasks with ChatGPT and its Friends in Hugging Face" (2023), and the
prompts of its repository JARVIS.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Note
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool
from dagwright.dialects.foreign import key_problems, map_texts, translate_references
from dagwright.dialects.json_reader import describe

KEYS = frozenset({"task", "id", "dep", "args"})
NO_DEPENDENCY = -1
"""Entry of `dep` for a task without dependencies."""

_REFERENCE = re.compile(r"<GENERATED>(?:-([0-9]{1,9}))?")


def read_hugginggpt(raw: JsonValue) -> Document:
    """Return the document of a list of tasks.

    Raises:
        PlanInvalid: there is no such list, or it is empty.
    """
    draft = DocumentDraft("hugginggpt", "")
    tasks = draft.entries_of_list(raw, name="a plan in the dialect hugginggpt")
    ids = _ids(tasks)
    known_ids = frozenset(ids)
    for index, (task, node_id) in enumerate(zip(tasks, ids, strict=True)):
        entry = draft.entry(task, index, name=f"task {node_id}", node_id=node_id)
        stand_in_node: dict[str, Any] = {"id": node_id, **STAND_IN_ACTION}
        draft.nodes.append(_node(entry, draft, known_ids=known_ids) if entry is not None else stand_in_node)
    return draft.document(
        additional_pointers=lambda: [pair for index in range(len(tasks)) for pair in _pointers(index)]
    )


def _pointers(index: int) -> Sequence[tuple[str, str]]:
    return [
        (f"/nodes/{index}/tool", f"/{index}/task"),
        (f"/nodes/{index}/arguments", f"/{index}/args"),
        (f"/nodes/{index}/depends_on", f"/{index}/dep"),
    ]


def _id_of(value: Any) -> str | None:
    """Return the node ID for an ID as written: a number from 0, or its digits as a string."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    return value if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else None


def _ids(tasks: Sequence[Any]) -> list[str]:
    ids = [_id_of(task.get("id")) if isinstance(task, dict) else None for task in tasks]
    return [node_id if node_id is not None else f"number {number}" for number, node_id in enumerate(ids, start=1)]


def _node(entry: ObjectReader, draft: DocumentDraft, *, known_ids: frozenset[str]) -> dict[str, Any]:
    entry.expect_keys(KEYS)
    if "id" not in entry.raw:
        entry.report("invalid_field", "the key 'id' is missing")
    elif _id_of(entry.raw["id"]) is None:
        entry.report("invalid_field", f"'id' must be a number from 0, not {describe(entry.raw['id'])}", "id")
    task = entry.nonempty_text("task")
    depends_on = _dependencies(entry)
    used_ids: dict[str, None] = {}
    arguments = _arguments(entry, depends_on, known_ids=known_ids, used_ids=used_ids)
    for used_id in used_ids:
        if used_id not in depends_on and used_id != entry.node_id:
            message = (
                f"task {entry.node_id} uses the result of task {used_id}, which is not in its 'dep'; the edge was added"
            )
            draft.notes.append(Note("added_edge", message, entry.node_id))
    return {"id": entry.node_id, **action_of_tool(task), "arguments": arguments, "depends_on": depends_on}


def _dependencies(entry: ObjectReader) -> list[str]:
    dep = entry.raw.get("dep", [NO_DEPENDENCY])
    if not isinstance(dep, list):
        entry.report("invalid_field", f"'dep' must be a list of ids, not {describe(dep)}", "dep")
        return []
    ids: list[str] = []
    for index, value in enumerate(dep):
        if value == NO_DEPENDENCY and not isinstance(value, bool):
            if len(dep) > 1:
                entry.report(
                    "invalid_field", "'dep' may contain -1 (no dependency) only as its single entry", "dep", index
                )
        elif (node_id := _id_of(value)) is None:
            entry.report("invalid_field", f"'dep' must contain ids, not {describe(value)}", "dep", index)
        else:
            entry.moved_pointers[f"/nodes/{entry.index}/depends_on/{len(ids)}"] = f"{entry.at}/dep/{index}"
            ids.append(node_id)
    return ids


def _arguments(
    entry: ObjectReader, depends_on: Sequence[str], *, known_ids: frozenset[str], used_ids: dict[str, None]
) -> Mapping[str, Any]:
    """Return the arguments in Dagwright's syntax, and add the IDs of the tasks that they use to `used_ids`."""

    def replace_references(text: str, at: tuple[str | int, ...]) -> str:
        def resolve(match: re.Match[str]) -> ResultOf | None:
            if match[1] is None and len(depends_on) != 1:
                message = f"<GENERATED> without an id is ambiguous: 'dep' holds {len(depends_on)} ids"
                entry.report("invalid_reference", message, "args", *at, hint="write <GENERATED>-0 for task 0")
                return None
            task_id = str(int(match[1])) if match[1] is not None else depends_on[0]
            if task_id in known_ids:
                used_ids[task_id] = None
                return ResultOf(task_id, "result")
            # If `dep` has the ID too, validation reports the unknown dependency.
            if task_id not in depends_on:
                entry.report("invalid_reference", f"Invalid reference: there is no task {task_id}", "args", *at)
            return None

        try:
            return translate_references(text, _REFERENCE, resolve)
        except ValueError as error:
            entry.report("invalid_reference", str(error), "args", *at)
            return ""

    raw_arguments = dict(entry.optional_object("args"))
    for message, path, hint in key_problems(raw_arguments, _REFERENCE):
        entry.report("invalid_reference", message, "args", *path, hint=hint)
    arguments = map_texts(raw_arguments, replace_references)
    assert isinstance(arguments, dict)
    return arguments
