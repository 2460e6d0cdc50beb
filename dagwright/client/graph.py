"""The whole graph of a run, node by node and edge by edge, those inside of large regions with the others."""

from collections.abc import AsyncIterator
from typing import Any

from dagwright.history.offloaded_regions import OffloadedNodes, unreadable_note
from dagwright.history.run_reader import RunView
from dagwright.store import PayloadStore, StoreError


class GraphListing:
    """Nodes and edges of a run, one after the other: they may be too many for the memory.

    Args:
        view: the run.
        store: where the insides of its large regions lie.
    """

    def __init__(self, view: RunView, store: PayloadStore) -> None:
        self._view = view
        self._insides = OffloadedNodes(view.scheduler, store)
        self.notes: list[dict[str, Any]] = []
        """Why something is not told; whole when everything has been gone through."""

    async def nodes(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the nodes as `graph --format json` has them."""
        for node in self._view.graph()["nodes"]:
            yield node
        try:
            async for inner in self._insides.nodes():
                if inner.id not in self._insides.held:
                    yield {"node_id": inner.id, **{name: inner.document[name] for name in ("title", "status", "tool")}}
        except StoreError as error:
            self.notes = [unreadable_note(error)]

    async def edges(self) -> AsyncIterator[list[str]]:
        """Yields the edges, from a node to one that waits for it."""
        for edge in self._view.graph()["edges"]:
            yield edge
        try:
            async for needed, node in self._insides.edges():
                yield [needed, node]
        except StoreError as error:
            self.notes = [unreadable_note(error)]
