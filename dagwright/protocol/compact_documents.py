"""Documents of bounded size: large values as references, and many nodes as counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dagwright.core.boundary.limits import DOCUMENT_LIMIT_BYTES, MAX_DOCUMENT_NODES, MAX_INLINE_VALUE_BYTES
from dagwright.core.expressions.projection import PREVIEW_CHARACTERS, preview_of
from dagwright.core.expressions.stored_values import (
    DeferredText,
    StoredValue,
    ValueRef,
    is_inline_value,
    paths_to_json,
)
from dagwright.core.expressions.value_refs import encode, encoded_size, format_value_refs, ref_for_display
from dagwright.core.model.states import NodeStatus
from dagwright.protocol.failures import FIRST_FAILED

_EMPTY_FIELDS: Mapping[str, Any] = {
    **{"title": None, "output": None, "error": None, "nodes": {}},
    **{"waiting_for": [], "usage": {}, "notes": []},
}
"""Fields that a closing document omits if they have these values."""
_ROUNDS_FIELDS = ("phase", "round", "max_rounds", "question", "intention", "planner_reasoning", "final_response")
"""Fields that remain in the shortened `rounds` of a document."""
_FIELDS_KNOWN_TO_READERS = frozenset({"run_id", "execution_id"})


def first_failed_field_of(failed_nodes: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """Return the field of `nodes_ref` that names the first failed node. Lists of runs show no other node."""
    first_failed_node = next(iter(failed_nodes), None)
    if first_failed_node is None:
        return {}
    node_id, message = first_failed_node
    return {FIRST_FAILED: {"node_id": node_id, "message": message}}


def compact_document(document: Mapping[str, Any], *, node_count: int) -> dict[str, Any]:
    """Return the result document of a run in short form: large values by reference, many nodes as counts.

    The values stay in the history of the run under the id of their node, where clients load them.

    Args:
        node_count: number of nodes in the plan as written.
    """
    short_document = dict(document)
    short_document["output"] = compact_value(document["output"], ref="output")
    if node_count > MAX_DOCUMENT_NODES:
        return replace_nodes_by_counts(short_document)
    short_document["nodes"] = {
        name: {**node, "result": compact_value(node["result"], ref=f"node:{name}")}
        for name, node in document["nodes"].items()
    }
    return (
        replace_nodes_by_counts(short_document)
        if encoded_size(short_document) > DOCUMENT_LIMIT_BYTES
        else short_document
    )


def replace_nodes_by_counts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with counts by state instead of its nodes.

    The rounds of a question are shortened if they are too large.
    """
    counts = Counter(document.get("nodes_ref", {}).get("counts", {}))
    counts.update(node["status"] for node in document["nodes"].values())
    failed_nodes = (
        (name, (node.get("error") or {}).get("message"))
        for name, node in document["nodes"].items()
        if node["status"] == NodeStatus.FAILED.value
    )
    first_failed_node = document.get("nodes_ref", {}).get(FIRST_FAILED)
    first_failed_field = (
        {FIRST_FAILED: first_failed_node} if first_failed_node is not None else first_failed_field_of(failed_nodes)
    )
    reference = {"ref": "history", "counts": dict(sorted(counts.items())), **first_failed_field}
    short_document = {**document, "nodes": {}, "nodes_ref": reference}
    if "rounds" in short_document and encoded_size(short_document) > DOCUMENT_LIMIT_BYTES:
        short_document["rounds"] = _without_sub_goals(short_document["rounds"])
    return short_document


def closing_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document for the closing event of a run: without nodes, empty fields and the IDs of the run.

    Readers have the nodes from earlier events, and `full_closing_document` adds the empty fields.
    """
    has_nodes = bool(document["nodes"]) or "nodes_ref" in document
    short_document = replace_nodes_by_counts(document) if has_nodes else document
    short_document = {**short_document, "output": compact_value(short_document["output"], ref="output")}
    return {
        name: value
        for name, value in short_document.items()
        if name not in _FIELDS_KNOWN_TO_READERS and not (name in _EMPTY_FIELDS and value == _EMPTY_FIELDS[name])
    }


def full_closing_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a closing document with the fields that it omits, except the IDs of the run."""
    return {**_EMPTY_FIELDS, **document}


def map_batch_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a map batch: only counts, because the parent's history has hundreds of such documents."""
    short_document = replace_nodes_by_counts(document)
    reference = {name: part for name, part in short_document["nodes_ref"].items() if name != FIRST_FAILED}
    return {**short_document, "nodes_ref": reference}


def compact_value(value: Any, *, ref: str) -> Any:
    """Return a value, or `{"ref", "bytes", "preview"}` if it exceeds 8 KiB.

    Parts of the value that are in the payload store become such references, too.
    """

    def format_ref(part: ValueRef) -> dict[str, Any]:
        return reference_to(part, ref=ref)

    if isinstance(value, StoredValue | DeferredText):
        return format_ref(value)
    encoded, has_refs = encode(value, format_ref)
    if has_refs:
        value = format_value_refs(value, format_ref)
    if len(encoded) <= MAX_INLINE_VALUE_BYTES:
        return value
    preview = value[:PREVIEW_CHARACTERS] if isinstance(value, str) else preview_of(value)
    return {"ref": ref, "bytes": len(encoded), "preview": preview}


def reference_to(part: ValueRef, *, ref: str) -> dict[str, Any]:
    """Return the reference to a value in the payload store, as documents show it.

    Args:
        ref: reference that is returned for a text made of several values.
    """
    if isinstance(part, DeferredText):
        preview = ref_for_display(part)[:PREVIEW_CHARACTERS]
        return {"ref": ref, "bytes": None, "preview": preview}
    shape = part.shape
    document = {
        "ref": part.ref,
        "bytes": shape.size_bytes if shape else None,
        "preview": shape.preview if shape else "",
    }
    return {**document, "path": paths_to_json(part.paths)} if part.paths else document


MAX_INLINE_RESULT_BYTES = 1024 * 1024
"""Maximum size of a value that `omit_large_values` returns in full."""


def omit_large_values(value: Any, *, ref: str) -> Any:
    """Return a value, or its reference if it exceeds 1 MiB or is in the payload store."""
    if encoded_size(value) > MAX_INLINE_RESULT_BYTES:
        return compact_value(value, ref=ref)
    return value if is_inline_value(value) else format_value_refs(value, lambda part: reference_to(part, ref=ref))


def _without_sub_goals(rounds: Mapping[str, Any]) -> dict[str, Any]:
    """Return `rounds`, the progress of a question, without the lists of sub-goals and rounds."""
    return {name: rounds[name] for name in _ROUNDS_FIELDS if name in rounds} | {
        "omitted": "sub-goals and rounds: too large"
    }
