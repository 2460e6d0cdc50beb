"""The dialect `nestful`: `[{"name", "arguments", "label"}]`, where `$var1.field$` is a field of the result of `var1`.

`$var1$` is the whole result. If the last call is named `var_result`, it calls no tool: its arguments are the output of
the plan.

Source: Basu et al., "NESTFUL: A Benchmark for Evaluating LLMs on Nested Sequences of API Calls" (2024), and its
data.
"""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.core.name_hints import suggestion
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool
from dagwright.dialects.foreign import key_problems, map_texts, translate_references
from dagwright.dialects.json_reader import describe

KEYS = frozenset({"name", "arguments", "label"})
OUTPUT_CALL = "var_result"
"""Name of the last call, whose arguments are the output of the plan."""

_REFERENCE = re.compile(r"\$([A-Za-z_]\w*)((?:\.[^$.\[\]\n]+|\[[0-9]{1,9}\])*)\$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")


def read_nestful(raw: JsonValue) -> Document:
    """Return the document of a list of calls.

    Raises:
        PlanInvalid: `raw` is not a list, or it is an empty list.
    """
    draft = DocumentDraft("nestful", "")
    calls = draft.entries_of_list(raw, name="a plan in the dialect nestful")
    has_output = len(calls) > 1 and isinstance(calls[-1], dict) and calls[-1].get("name") == OUTPUT_CALL
    call_count = len(calls) - 1 if has_output else len(calls)
    ids = _ids(calls[:call_count])
    known_ids = frozenset(ids)
    for index, (call, node_id) in enumerate(zip(calls, ids, strict=False)):
        entry = draft.entry(call, index, name=f"call {node_id}", node_id=node_id)
        stand_in_node: dict[str, Any] = {"id": node_id, **STAND_IN_ACTION}
        draft.nodes.append(_node(entry, known_ids=known_ids) if entry is not None else stand_in_node)
    output: JsonValue = None
    if has_output:
        output_call = ObjectReader(calls[-1], f"/{call_count}", OUTPUT_CALL, None, draft.problems)
        output_call.expect_keys(KEYS)
        output = _arguments(output_call, known_ids=known_ids)
    document = draft.document(
        additional_pointers=lambda: [*_pointers(call_count), ("/output", f"/{call_count}/arguments")]
    )
    return document if output is None else _set_output(document, output)


def _set_output(document: Document, output: JsonValue) -> Document:
    document.plan["output"] = output
    return document


def _pointers(count: int) -> Sequence[tuple[str, str]]:
    return [
        pair
        for index in range(count)
        for pair in ((f"/nodes/{index}/tool", f"/{index}/name"), (f"/nodes/{index}/id", f"/{index}/label"))
    ]


def _label_of(value: Any) -> str | None:
    """Return the name in a label, which may be written `$var1` instead of `var1`."""
    name = value.strip("$") if isinstance(value, str) else ""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else None


def _ids(calls: Sequence[Any]) -> list[str]:
    labels = [_label_of(call.get("label")) if isinstance(call, dict) else None for call in calls]
    taken_labels = set(labels)
    ids: list[str] = []
    for number, label in enumerate(labels, start=1):
        generated_id = f"call {number}"
        while label is None and generated_id in taken_labels:
            generated_id += "'"
        ids.append(label if label is not None else generated_id)
    return ids


def _node(entry: ObjectReader, *, known_ids: frozenset[str]) -> dict[str, Any]:
    entry.expect_keys(KEYS)
    name = entry.nonempty_text("name")
    label = entry.raw.get("label")
    if label is not None and _label_of(label) is None:
        message = f"'label' must be a name of letters, digits and _, not {describe(label)}"
        entry.report("invalid_field", message, "label")
    return {"id": entry.node_id, **action_of_tool(name), "arguments": _arguments(entry, known_ids=known_ids)}


def _arguments(entry: ObjectReader, *, known_ids: frozenset[str]) -> Any:
    def replace_references(text: str, at: tuple[str | int, ...]) -> str:
        def resolve(match: re.Match[str]) -> ResultOf | None:
            if match[1] in known_ids:
                steps = _STEP.findall(match[2])
                return ResultOf(match[1], "result", tuple(name or int(index) for name, index in steps))
            message = f"Invalid reference: there is no call with the label {match[1]!r}"
            entry.report("invalid_reference", message, "arguments", *at, hint=suggestion(match[1], known_ids))
            return None

        try:
            return translate_references(text, _REFERENCE, resolve)
        except ValueError as error:
            entry.report("invalid_reference", str(error), "arguments", *at)
            return ""

    arguments = dict(entry.optional_object("arguments"))
    for message, path, hint in key_problems(arguments, _REFERENCE):
        entry.report("invalid_reference", message, "arguments", *path, hint=hint)
    return map_texts(arguments, replace_references)
