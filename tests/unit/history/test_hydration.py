"""The nodes of a document with a region that the payload store does not return."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

from dagwright.history.document_hydration import _Hydrator, _Listing
from dagwright.history.offloaded_regions import OffloadedNodes
from dagwright.store import StoreUnavailable
from tests.support.memory_store import MemoryStore

NAMES = [f"n{number}" for number in range(40)]


class SilentInsides(AsyncIterator[Any]):
    """Insides in a store that does not answer; the run itself holds every second node."""

    held = frozenset(NAMES[::2])

    def nodes(self) -> AsyncIterator[Any]:
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        raise StoreUnavailable("the payload store is down")


async def test_held_nodes_come_in_the_order_of_the_document_where_the_store_is_away() -> None:
    document = {"nodes": {name: {"result": 1, "error": None} for name in NAMES}}
    restorer = _Hydrator(MemoryStore(), most_bytes=None)
    listing = _Listing(document, cast(OffloadedNodes, SilentInsides()), restorer, counts=Counter())
    entries = [name async for name, _ in listing.nodes()]
    assert entries == [*NAMES[1::2], *NAMES[::2]]
