"""Puts the values of the payload store back into the document of a run, for whoever looks at it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import pydantic_core

from dagwright.core.expressions.hydration import hydrate, stored_refs, value_at_paths
from dagwright.core.expressions.resolution import UnresolvedReference
from dagwright.core.expressions.stored_values import (
    Path,
    StoredValue,
    WorkerText,
    find_value_refs,
    is_whole,
    stored_from_json,
)
from dagwright.core.expressions.value_refs import bindings_of, shown_in_arguments, with_shown
from dagwright.core.model.states import NodeStatus
from dagwright.history.offloaded_regions import InnerNode, Insides, unreadable_note
from dagwright.history.run_reader import RESTORED_BYTES, RunView, shortened
from dagwright.protocol.documents import OUTPUT_OMITTED, compact_value
from dagwright.protocol.failures import FROM_NODES, run_error_of
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore, StoreError, StoreUnavailable

_LOADED_AT_ONCE = 8
INNER_NODES_TOLD = 2_000
"""Nodes inside of large regions up to which a document tells them all, as any other node."""
FAILURES_TOLD = 100
"""Failed nodes inside of large regions that a document tells; those beyond are counted only."""

Members = AsyncIterator[tuple[str, Any]]
"""What stands in an object, one after the other; to be gone through before anything else is asked for."""


async def restored_document(
    view: RunView, store: PayloadStore, *, full: bool = False, only: str | None = None
) -> dict[str, Any]:
    """Returns the result document of a run with its values put back, up to 1 MiB each.

    A value that cannot be had stands as a reference, and a note says why. Where the nodes inside of large regions are
    many, only those are told that the run holds, and those that have failed; `full_document` tells all.

    Args:
        full: put back larger values as well.
        only: put back the result of this node alone, which may be inside of a region.
    """
    document = view.unfilled_document()
    restorer = _Restorer(store, most_bytes=None if full else RESTORED_BYTES)
    await _tell_inner_nodes(document, view, restorer, only=only)
    document["error"] = run_error_of(document)
    if only is None:
        document["output"] = await restorer.restored(document["output"], ref="output", node=None)
    else:
        document["output"] = compact_value(document["output"], ref="output")
    for name, node in document["nodes"].items():
        if only in (None, name):
            node["result"] = await restorer.restored(node["result"], ref=f"node:{name}", node=name)
            if only is not None or full:
                node["error"] = await restorer.whole_error(node["error"], node=name)
        else:
            node["result"] = compact_value(node["result"], ref=f"node:{name}")
    document["notes"] = [*document["notes"], *restorer.notes]
    return document


async def _tell_inner_nodes(
    document: dict[str, Any], view: RunView, restorer: "_Restorer", *, only: str | None
) -> None:
    """Adds nodes inside of large regions to a document: the one that is asked for, all of few, or those that failed."""
    insides = restorer.insides_of(view)
    if not insides or (only in document["nodes"] and only not in insides.held):
        return
    try:
        added = await _inner_nodes(insides, document, only=only)
    except StoreError as error:
        restorer.note_unreadable(error)
        return
    if "nodes_ref" in document:
        _count_off(document, [node for node in added if node.id not in insides.held])
    document["nodes"] |= {node.id: node.document for node in added}


async def error_with_inner_nodes(
    document: Mapping[str, Any], view: RunView, store: PayloadStore
) -> dict[str, Any] | None:
    """Return the error of a run as `restored_document` has it, without adding nodes to the document."""
    shown = {**document, "nodes": dict(document["nodes"])}
    if shown["error"] is not None and shown["error"]["code"] in FROM_NODES:
        await _tell_inner_nodes(shown, view, _Restorer(store, most_bytes=None), only=None)
    return run_error_of(shown)


async def _inner_nodes(insides: Insides, document: Mapping[str, Any], *, only: str | None) -> list[InnerNode]:
    if only is not None:
        found = await insides.find(only)
        return [] if found is None else [found]
    if insides.count <= INNER_NODES_TOLD:
        return [node async for node in insides.nodes()]
    has_failed = NodeStatus.FAILED.value in document.get("nodes_ref", {}).get("counts", {})
    return await insides.failed(most=FAILURES_TOLD) if has_failed else []


def _count_off(document: dict[str, Any], told: Iterable[InnerNode]) -> None:
    """Takes nodes that are told one by one out of the counts of those that are not."""
    counts = Counter(document["nodes_ref"]["counts"])
    counts.subtract(node.document["status"] for node in told)
    left = {status: count for status, count in counts.items() if count > 0}
    if left:
        document["nodes_ref"] = {**document["nodes_ref"], "counts": left}
    else:
        del document["nodes_ref"]


async def full_document(view: RunView, store: PayloadStore) -> AsyncIterator[tuple[str, Any | Members]]:
    """Yields the parts of the result document of a run, with all nodes and all values, however many and large.

    What may be too much for the memory of one process comes as `Members`: the nodes, those inside of large regions
    behind the others; and the output, if the plan names none and ends of it lie in the store.
    """
    document = view.unfilled_document()
    restorer = _Restorer(store, most_bytes=None)
    insides = restorer.insides_of(view)
    document["error"] = await error_with_inner_nodes(document, view, store)
    nodes_ref = document.pop("nodes_ref", None)
    listing = _Listing(document, insides, restorer, counts=nodes_ref["counts"] if nodes_ref else {})
    is_of_ends = any(note["code"] == OUTPUT_OMITTED for note in document["notes"])
    for name, value in document.items():
        if name == "nodes" and insides:
            yield name, listing.nodes()
        elif name == "nodes":
            yield name, listing.held_nodes()
        elif name == "output" and is_of_ends:
            yield name, listing.output()
        elif name == "output":
            yield name, await restorer.restored(value, ref="output", node=None)
        elif name == "notes":
            kept = [note for note in value if note["code"] != OUTPUT_OMITTED or not listing.is_complete]
            yield name, [*kept, *restorer.notes]
        else:
            yield name, value
    if nodes_ref is not None and not listing.is_complete:
        yield "nodes_ref", {**nodes_ref, "counts": listing.omitted()}


async def stored_text(store: PayloadStore, place: Mapping[str, Any]) -> str | None:
    """Returns a text of the payload store; `None` if it is none, or cannot be had.

    Args:
        place: `{"ref", "paths"}`, as `protocol.turn_summaries` tells it.
    """
    try:
        value = stored_from_json(place)
        whole = await asyncio.to_thread(pydantic_core.from_json, await store.get(value.ref))
        found = value_at_paths(whole, value.paths, value.name)
    except (StoreError, UnresolvedReference, ValueError):
        return None
    return found if isinstance(found, str) else None


class _Listing:
    """All nodes of a run, one after the other.

    Args:
        document: of the run, unfilled.
        counts: states of the nodes that it does not tell.
    """

    def __init__(
        self, document: Mapping[str, Any], insides: Insides, restorer: "_Restorer", *, counts: Mapping[str, int]
    ) -> None:
        self._document = document
        self._insides = insides
        self._restorer = restorer
        self._counts = Counter(counts)
        self.is_complete = True

    async def held_nodes(self) -> Members:
        """Yields the nodes that the run itself holds, but for those that are inside of large regions too."""
        for name, node in self._document["nodes"].items():
            if name not in self._insides.held:
                yield name, await self._restored(name, node)

    async def nodes(self) -> Members:
        """Yields all nodes."""
        async for name, node in self.held_nodes():
            yield name, node
        told = set[str]()
        try:
            async for inner in self._insides.nodes():
                if inner.id in self._insides.held:
                    told.add(inner.id)
                else:
                    self._counts[inner.document["status"]] -= 1
                yield inner.id, await self._restored(inner.id, inner.document)
        except StoreError as error:
            self._give_up(error)
            for name, node in self._document["nodes"].items():
                if name in self._insides.held and name not in told:
                    yield name, await self._restored(name, node)

    async def output(self) -> Members:
        """Yields the results of all nodes that nothing waits for."""
        output = self._document["output"] or {}
        for name, value in output.items():
            yield name, await self._restorer.restored(value, ref="output", node=None)
        try:
            async for inner in self._insides.nodes():
                is_completed = inner.document["status"] == NodeStatus.COMPLETED
                if inner.is_end and is_completed and inner.id not in output:
                    self._restorer.forget()
                    yield inner.id, await self._restorer.restored(inner.document["result"], ref="output", node=None)
        except StoreError as error:
            self._give_up(error)

    def omitted(self) -> dict[str, int]:
        """Returns the states of the nodes that could not be told."""
        return {status: count for status, count in sorted(self._counts.items()) if count > 0}

    def _give_up(self, error: StoreError) -> None:
        if self.is_complete:
            self._restorer.note_unreadable(error)
        self.is_complete = False

    async def _restored(self, name: str, node: Mapping[str, Any]) -> dict[str, Any]:
        self._restorer.forget()
        result = await self._restorer.restored(node["result"], ref=f"node:{name}", node=name)
        return {**node, "result": result, "error": await self._restorer.whole_error(node["error"], node=name)}


class _Restorer:
    """Fills the values of one document."""

    def __init__(self, store: PayloadStore, *, most_bytes: int | None) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self.notes: list[dict[str, Any]] = []
        self._loaded: dict[str, Any] = {}
        """Reference -> value: the result of an item stands in the document more than once."""

    async def restored(self, value: Any, *, ref: str, node: str | None) -> Any:
        """Returns a value with everything put back, or what stands for it."""
        if is_whole(value):
            return value if self._most_bytes is None else shortened(value, ref=ref)
        if self._most_bytes is not None and _size_of(value) > self._most_bytes:
            return compact_value(value, ref=ref)
        try:
            filled = await self._filled(value)
        except (PayloadMissing, PayloadDamaged) as error:
            self._note("value_lost", str(error), node)
        except StoreUnavailable as error:
            self._note("store_unavailable", str(error), node)
        except UnresolvedReference as error:
            self._note("missing_data", str(error), node)
        else:
            return filled if self._most_bytes is None else shortened(filled, ref=ref)
        return compact_value(value, ref=ref)

    async def whole_error(self, error: Mapping[str, Any] | None, *, node: str) -> Mapping[str, Any] | None:
        """Returns the error of a node with all of its message, and then with a `traceback`, if that was cut."""
        if error is None or error.get("ref") is None:
            return error
        try:
            told = pydantic_core.from_json(await self._store.get(error["ref"]))
        except StoreError as lost:
            is_passing = isinstance(lost, StoreUnavailable)
            self._note("store_unavailable" if is_passing else "value_lost", f"the whole error: {lost}", node)
            return error
        return {**error, "message": told["message"], "traceback": told["traceback"]}

    async def _filled(self, value: Any) -> Any:
        bindings = [binding for binding in bindings_of(value) if not _holds_secret(binding[1])]
        turns = asyncio.Semaphore(_LOADED_AT_ONCE)

        async def load(ref: str) -> None:
            async with turns:
                content = await self._store.get(ref)
            self._loaded[ref] = await asyncio.to_thread(pydantic_core.from_json, content)

        await asyncio.gather(*(load(ref) for ref in stored_refs(bindings) if ref not in self._loaded))

        def take(ref: str, paths: Sequence[Path], name: str) -> Any:
            return value_at_paths(self._loaded[ref], paths, name)

        filled = [with_shown(value, shown_in_arguments)]
        hydrate(filled, [((0, *path), parts) for path, parts in bindings], secrets={}, take=take)
        return filled[0]

    def insides_of(self, view: RunView) -> Insides:
        """Returns the nodes inside of the large regions of a run."""
        return Insides(view.scheduler, self._store)

    def forget(self) -> None:
        """Keeps no value any longer that was loaded."""
        self._loaded.clear()

    def note_unreadable(self, error: StoreError) -> None:
        """Notes that the nodes inside of large regions cannot be told."""
        self.notes.append(unreadable_note(error))

    def _note(self, code: str, message: str, node: str | None) -> None:
        self.notes.append({"code": code, "node_id": node, "message": f"{node or 'output'}: {message}"})


def _size_of(value: Any) -> int:
    """Returns about how many bytes a value has with everything put back; what is not known counts as nothing."""
    return sum(map(_size_of_part, (part for _, part in find_value_refs(value))))


def _size_of_part(part: Any) -> int:
    if isinstance(part, WorkerText):
        return sum(_size_of_part(inner) for inner in part.parts if isinstance(inner, StoredValue))
    return part.shape.size_bytes if isinstance(part, StoredValue) and part.shape is not None else 0


def _holds_secret(parts: Sequence[Mapping[str, Any]]) -> bool:
    return any("secret" in part for part in parts)
