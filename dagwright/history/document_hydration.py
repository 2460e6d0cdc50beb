"""Loading of stored values into the document of a run.

Inner nodes are the nodes of offloaded regions.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.expressions.hydration import hydrate, stored_refs, value_at_paths
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.expressions.stored_values import (
    DeferredText,
    Path,
    StoredValue,
    find_value_refs,
    is_inline_value,
    stored_from_json,
)
from dagwright.core.expressions.value_refs import bindings_of, format_value_refs, ref_for_display
from dagwright.core.model.states import NodeStatus
from dagwright.history.offloaded_regions import InnerNode, OffloadedNodes, unreadable_note
from dagwright.protocol.compact_documents import MAX_INLINE_RESULT_BYTES, compact_value, omit_large_values
from dagwright.protocol.documents import OUTPUT_OMITTED
from dagwright.protocol.failures import DERIVED_ERROR_CODES, run_error_of
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

_MAX_CONCURRENT_LOADS = 8
MAX_INNER_NODES = 2_000
"""Maximum number of nodes of offloaded regions that a document includes in full."""
MAX_INNER_FAILURES = 100
"""Maximum number of failed nodes of offloaded regions in a document; other failed nodes are only counted."""

NOT_LOADED = frozenset({"value_lost", "store_unavailable", "missing_data"})
"""Codes of the notes on values that could not be loaded."""

Members = AsyncIterator[tuple[str, Any]]
"""Names and values of the members of a JSON object, one after the other. All members must be read before the next part
of the document."""


async def hydrated_document(
    view: "RunView", store: PayloadStore, *, full: bool = False, only_node: str | None = None
) -> dict[str, Any]:
    """Return the result document of a run with its stored values, up to 1 MiB each.

    A value that cannot be loaded stays a reference, and a note has the reason. If there are too
    many inner nodes, only failed inner nodes are included; `full_document` has all of them.

    Args:
        full: also load larger values.
        only_node: load only the result of the node with this ID, which may be in an offloaded region.
    """
    document = view.document_with_refs()
    hydrator = _Hydrator(store, max_bytes=None if full else MAX_INLINE_RESULT_BYTES)
    await _add_inner_nodes(document, view, hydrator, only_node=only_node)
    document["error"] = run_error_of(document)
    if only_node is None:
        document["output"] = await hydrator.hydrate(document["output"], ref="output", node_id=None)
    else:
        document["output"] = compact_value(document["output"], ref="output")
    for node_id, node in document["nodes"].items():
        if only_node in (None, node_id):
            node["result"] = await hydrator.hydrate(node["result"], ref=f"node:{node_id}", node_id=node_id)
            if only_node is not None or full:
                node["error"] = await hydrator.full_error(node["error"], node_id=node_id)
        else:
            node["result"] = compact_value(node["result"], ref=f"node:{node_id}")
    document["notes"] = [*document["notes"], *hydrator.notes]
    return document


async def _add_inner_nodes(
    document: dict[str, Any], view: "RunView", hydrator: "_Hydrator", *, only_node: str | None
) -> None:
    """Add nodes of offloaded regions to a document: the requested node, all nodes if they are few, or the failed
    nodes.
    """
    offloaded_nodes = hydrator.offloaded_nodes(view)
    if not offloaded_nodes or (only_node in document["nodes"] and only_node not in offloaded_nodes.ids_in_run):
        return
    try:
        added_nodes = await _inner_nodes(offloaded_nodes, document, only_node=only_node)
    except StoreError as error:
        hydrator.note_unreadable(error)
        return
    if "nodes_ref" in document:
        _subtract_included_nodes(document, [node for node in added_nodes if node.id not in offloaded_nodes.ids_in_run])
    document["nodes"] |= {node.id: node.document for node in added_nodes}


async def error_with_inner_nodes(
    document: Mapping[str, Any], view: "RunView", store: PayloadStore
) -> dict[str, Any] | None:
    """Return the error of a run as in `hydrated_document`, without adding nodes to the document."""
    error_document = {**document, "nodes": dict(document["nodes"])}
    if error_document["error"] is not None and error_document["error"]["code"] in DERIVED_ERROR_CODES:
        await _add_inner_nodes(error_document, view, _Hydrator(store, max_bytes=None), only_node=None)
    return run_error_of(error_document)


async def _inner_nodes(
    offloaded_nodes: OffloadedNodes, document: Mapping[str, Any], *, only_node: str | None
) -> list[InnerNode]:
    if only_node is not None:
        inner_node = await offloaded_nodes.find(only_node)
        return [] if inner_node is None else [inner_node]
    if offloaded_nodes.count <= MAX_INNER_NODES:
        return [node async for node in offloaded_nodes.nodes()]
    has_failed_nodes = NodeStatus.FAILED.value in document.get("nodes_ref", {}).get("counts", {})
    return await offloaded_nodes.find_failed_nodes(limit=MAX_INNER_FAILURES) if has_failed_nodes else []


def _subtract_included_nodes(document: dict[str, Any], included_nodes: Iterable[InnerNode]) -> None:
    """Subtract the included nodes from the counts of the omitted nodes."""
    counts = Counter(document["nodes_ref"]["counts"])
    counts.subtract(node.document["status"] for node in included_nodes)
    remaining_counts = {status: count for status, count in counts.items() if count > 0}
    if remaining_counts:
        document["nodes_ref"] = {**document["nodes_ref"], "counts": remaining_counts}
    else:
        del document["nodes_ref"]


async def full_document(view: "RunView", store: PayloadStore) -> AsyncIterator[tuple[str, Any | Members]]:
    """Yield the parts of the result document of a run, with all nodes and values.

    Parts that may not fit into memory are `Members`: the nodes, and an output that consists of results in the store.
    The nodes of offloaded regions come last.
    """
    document = view.document_with_refs()
    hydrator = _Hydrator(store, max_bytes=None)
    offloaded_nodes = hydrator.offloaded_nodes(view)
    document["error"] = await error_with_inner_nodes(document, view, store)
    nodes_ref = document.pop("nodes_ref", None)
    listing = _NodeListing(document, offloaded_nodes, hydrator, counts=nodes_ref["counts"] if nodes_ref else {})
    is_output_omitted = any(note["code"] == OUTPUT_OMITTED for note in document["notes"])
    for name, value in document.items():
        if name == "nodes" and offloaded_nodes:
            yield name, listing.nodes()
        elif name == "nodes":
            yield name, listing.run_nodes()
        elif name == "output" and is_output_omitted:
            yield name, listing.output()
        elif name == "output":
            yield name, await hydrator.hydrate(value, ref="output", node_id=None)
        elif name == "notes":
            notes = [note for note in value if note["code"] != OUTPUT_OMITTED or not listing.is_complete]
            yield name, [*notes, *hydrator.notes]
        else:
            yield name, value
    if nodes_ref is not None and not listing.is_complete:
        yield "nodes_ref", {**nodes_ref, "counts": listing.omitted_counts()}


def output_loss_reason(notes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why the output of a run could not be loaded, or `None` if it was loaded."""
    return next((note["message"] for note in notes if note["code"] in NOT_LOADED and note["node_id"] is None), None)


async def stored_text(store: PayloadStore, answer_ref: Mapping[str, Any]) -> str | None:
    """Return a text from the payload store; `None` if the stored value is not a text or cannot be loaded.

    Args:
        answer_ref: `{"ref", "paths"}` from `protocol.turn_summaries`.
    """
    try:
        value = stored_from_json(answer_ref)
        value_of_ref = await asyncio.to_thread(pydantic_core.from_json, await store.get(value.ref))
        text = value_at_paths(value_of_ref, value.paths, value.name)
    except (StoreError, UnresolvedReference, ValueError):
        return None
    return text if isinstance(text, str) else None


class _NodeListing:
    """All nodes of a run, one after the other.

    Args:
        document: document of the run with references.
        counts: state -> number of nodes in this state that the document omits.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        offloaded_nodes: OffloadedNodes,
        hydrator: "_Hydrator",
        *,
        counts: Mapping[str, int],
    ) -> None:
        self._document = document
        self._offloaded_nodes = offloaded_nodes
        self._hydrator = hydrator
        self._counts = Counter(counts)
        self.is_complete = True

    async def run_nodes(self) -> Members:
        """Yield the nodes that are in no offloaded region."""
        for node_id, node in self._document["nodes"].items():
            if node_id not in self._offloaded_nodes.ids_in_run:
                yield node_id, await self._hydrate_node(node_id, node)

    async def nodes(self) -> Members:
        """Yield all nodes."""
        async for node_id, node in self.run_nodes():
            yield node_id, node
        included_ids = set[str]()
        try:
            async for inner_node in self._offloaded_nodes.nodes():
                if inner_node.id in self._offloaded_nodes.ids_in_run:
                    included_ids.add(inner_node.id)
                else:
                    self._counts[inner_node.document["status"]] -= 1
                yield inner_node.id, await self._hydrate_node(inner_node.id, inner_node.document)
        except StoreError as error:
            self._stop_reading(error)
            for node_id, node in self._document["nodes"].items():
                if node_id in self._offloaded_nodes.ids_in_run and node_id not in included_ids:
                    yield node_id, await self._hydrate_node(node_id, node)

    async def output(self) -> Members:
        """Yield the results of all completed nodes without dependents."""
        output = self._document["output"] or {}
        for node_id, value in output.items():
            yield node_id, await self._hydrator.hydrate(value, ref="output", node_id=None)
        try:
            async for inner_node in self._offloaded_nodes.nodes():
                is_completed = inner_node.document["status"] == NodeStatus.COMPLETED
                if inner_node.is_end_node and is_completed and inner_node.id not in output:
                    self._hydrator.drop_loaded_values()
                    yield (
                        inner_node.id,
                        await self._hydrator.hydrate(inner_node.document["result"], ref="output", node_id=None),
                    )
        except StoreError as error:
            self._stop_reading(error)

    def omitted_counts(self) -> dict[str, int]:
        """Return the counts by state of the nodes that could not be read."""
        return {status: count for status, count in sorted(self._counts.items()) if count > 0}

    def _stop_reading(self, error: StoreError) -> None:
        if self.is_complete:
            self._hydrator.note_unreadable(error)
        self.is_complete = False

    async def _hydrate_node(self, node_id: str, node: Mapping[str, Any]) -> dict[str, Any]:
        self._hydrator.drop_loaded_values()
        result = await self._hydrator.hydrate(node["result"], ref=f"node:{node_id}", node_id=node_id)
        return {**node, "result": result, "error": await self._hydrator.full_error(node["error"], node_id=node_id)}


class _Hydrator:
    """Loader of the stored values of one document."""

    def __init__(self, store: PayloadStore, *, max_bytes: int | None) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self.notes: list[dict[str, Any]] = []
        self._value_cache: dict[str, Any] = {}
        """Store reference -> loaded value. The cache avoids repeated loads: a document contains the result of an item
        more than once."""

    async def hydrate(self, value: Any, *, ref: str, node_id: str | None) -> Any:
        """Return a value with its stored parts; return a reference if the value is too large or cannot be loaded.

        Args:
            ref: reference to the value in the document, such as `output` or `node:a`.
        """
        if is_inline_value(value):
            return value if self._max_bytes is None else omit_large_values(value, ref=ref)
        if self._max_bytes is not None and _size_of(value) > self._max_bytes:
            return compact_value(value, ref=ref)
        try:
            loaded_value = await self._loaded_value(value)
        except (PayloadMissing, PayloadDamaged) as error:
            self._note("value_lost", str(error), node_id)
        except StoreUnavailable as error:
            self._note("store_unavailable", str(error), node_id)
        except UnresolvedReference as error:
            self._note("missing_data", str(error), node_id)
        else:
            return loaded_value if self._max_bytes is None else omit_large_values(loaded_value, ref=ref)
        return compact_value(value, ref=ref)

    async def full_error(self, error: Mapping[str, Any] | None, *, node_id: str) -> Mapping[str, Any] | None:
        """Return the error of a node with the full message and a `traceback`, if the message was cut."""
        if error is None or error.get("ref") is None:
            return error
        try:
            stored_error = pydantic_core.from_json(await self._store.get(error["ref"]))
        except StoreError as store_error:
            is_temporary = isinstance(store_error, StoreUnavailable)
            self._note("store_unavailable" if is_temporary else "value_lost", f"the full error: {store_error}", node_id)
            return error
        return {**error, "message": stored_error["message"], "traceback": stored_error["traceback"]}

    async def _loaded_value(self, value: Any) -> Any:
        bindings = [binding for binding in bindings_of(value) if not _contains_secret(binding[1])]
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT_LOADS)

        async def load(store_ref: str) -> None:
            async with semaphore:
                content = await self._store.get(store_ref)
            self._value_cache[store_ref] = await asyncio.to_thread(pydantic_core.from_json, content)

        await asyncio.gather(*(load(ref) for ref in stored_refs(bindings) if ref not in self._value_cache))

        def part_of(ref: str, paths: Sequence[Path], name: str) -> Any:
            return value_at_paths(self._value_cache[ref], paths, name)

        loaded_value = [format_value_refs(value, ref_for_display)]
        hydrate(loaded_value, [((0, *path), parts) for path, parts in bindings], secrets={}, load=part_of)
        return loaded_value[0]

    def offloaded_nodes(self, view: "RunView") -> OffloadedNodes:
        """Return the nodes of the offloaded regions of a run."""
        return OffloadedNodes(view.scheduler, self._store)

    def drop_loaded_values(self) -> None:
        """Free the memory of the loaded values."""
        self._value_cache.clear()

    def note_unreadable(self, error: StoreError) -> None:
        """Add a note that the nodes of offloaded regions cannot be read."""
        self.notes.append(unreadable_note(error))

    def _note(self, code: str, message: str, node_id: str | None) -> None:
        self.notes.append({"code": code, "node_id": node_id, "message": f"{node_id or 'output'}: {message}"})


def _size_of(value: Any) -> int:
    """Return the approximate size of a value with its stored parts, in bytes; unknown sizes count as 0."""
    return sum(map(_size_of_part, (part for _, part in find_value_refs(value))))


def _size_of_part(part: Any) -> int:
    if isinstance(part, DeferredText):
        return sum(_size_of_part(inner_part) for inner_part in part.parts if isinstance(inner_part, StoredValue))
    return part.shape.size_bytes if isinstance(part, StoredValue) and part.shape is not None else 0


def _contains_secret(parts: Sequence[Mapping[str, Any]]) -> bool:
    return any("secret" in part for part in parts)
