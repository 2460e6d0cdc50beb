"""The complete graph of a run as a stream of nodes and edges.

The graph includes offloaded regions: parts of a plan whose nodes are in the payload store, not in the run.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from dagwright.history.offloaded_regions import OffloadedNodes, unreadable_note
from dagwright.store import PayloadStore, StoreError

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView


class GraphListing:
    """Streams the nodes and edges of a run. A run may have too many of them to hold in memory.

    Args:
        view: the run.
        store: store of the run's offloaded regions.
    """

    def __init__(self, view: "RunView", store: PayloadStore) -> None:
        self._view = view
        self._offloaded_nodes = OffloadedNodes(view.scheduler, store)
        self.notes: list[dict[str, Any]] = []
        """Notes about omitted parts of the graph; complete when all nodes and edges have been read."""

    async def nodes(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the nodes in the format of `graph --format json`."""
        for node in self._view.graph()["nodes"]:
            yield node
        try:
            async for offloaded_node in self._offloaded_nodes.nodes():
                if offloaded_node.id not in self._offloaded_nodes.ids_in_run:
                    yield {
                        "node_id": offloaded_node.id,
                        **{name: offloaded_node.document[name] for name in ("title", "status", "tool")},
                    }
        except StoreError as error:
            self.notes = [unreadable_note(error)]

    async def edges(self) -> AsyncIterator[list[str]]:
        """Yield the edges, each as `[dependency, dependent]`."""
        for edge in self._view.graph()["edges"]:
            yield edge
        try:
            async for dependency, node_id in self._offloaded_nodes.edges():
                yield [dependency, node_id]
        except StoreError as error:
            self.notes = [unreadable_note(error)]
