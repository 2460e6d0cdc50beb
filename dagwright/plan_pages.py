"""Large plans: a compiled plan as pages in the payload store, and back.

A run's input holds a plan of at most 256 KiB. A larger one is put into the store in pages, and its run is given their
references: the activity `load_plan` brings it page by page, so that no workflow task reads more than it can.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pydantic_core

from dagwright.contracts.documents import encoded_size
from dagwright.contracts.limits import INLINE_PLAN_BYTES, INLINE_PLAN_NODES, PLAN_PAGE_BYTES, PLAN_PAGE_NODES
from dagwright.plan.compiled import CompiledPlan, plan_to_json
from dagwright.store import PayloadStore


async def pages_for(plan: CompiledPlan, store: PayloadStore) -> tuple[str, ...]:
    """Returns the references of a large plan's pages, which are put into the store; none for one that travels whole.

    The first page is the plan without its nodes, each other one a list of nodes, in plan order.

    Raises:
        StoreUnavailable: the store cannot keep them now.
    """
    encoded = plan_to_json(plan)
    if len(plan.nodes) <= INLINE_PLAN_NODES and encoded_size(encoded) <= INLINE_PLAN_BYTES:
        return ()
    head = {name: value for name, value in encoded.items() if name != "nodes"}
    pages = [await store.put(pydantic_core.to_json(head))]
    for page in _pages(encoded["nodes"]):
        pages.append(await store.put(page))
    return tuple(pages)


def _pages(nodes: Sequence[Any]) -> Iterator[bytes]:
    page: list[bytes] = []
    size = 0
    for node in nodes:
        encoded = pydantic_core.to_json(node)
        if page and (len(page) == PLAN_PAGE_NODES or size + len(encoded) > PLAN_PAGE_BYTES):
            yield b"[" + b",".join(page) + b"]"
            page, size = [], 0
        page.append(encoded)
        size += len(encoded)
    if page:
        yield b"[" + b",".join(page) + b"]"
