"""Large plans: store a compiled plan as pages in the payload store, and load it.

The input of a run has a plan of at most 256 KiB. A larger plan is stored in pages, and its run receives the
references of the pages. The activity `load_plan` loads the plan page by page, because a workflow task cannot read a
large plan at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import (
    MAX_INLINE_PLAN_BYTES,
    MAX_INLINE_PLAN_NODES,
    MAX_PLAN_PAGE_BYTES,
    MAX_PLAN_PAGE_NODES,
)
from dagwright.core.compiler.node_columns import nodes_from_columns, nodes_to_columns, plan_to_columns
from dagwright.core.compiler.offloaded_regions import (
    OffloadedRegion,
    RegionDocument,
    offload_regions,
    offloaded_region_from_json,
)
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_to_json
from dagwright.store import PayloadStore

REGION_PAGE_NODES = 5_000
"""Maximum number of nodes in a page of an offloaded region. Parsing it blocks other threads for about 20 ms."""


@dataclass(frozen=True, slots=True)
class PlanForTransfer:
    """A plan in the format for the input of a run.

    Args:
        plan: plan as the run will have it; its large regions are offloaded to the store.
        pages: references of the plan's pages; empty for an inline plan.
        encoded: JSON form of an inline plan.
    """

    plan: CompiledPlan
    pages: tuple[str, ...] = ()
    encoded: Mapping[str, Any] | None = None


async def split_for_transfer(plan: CompiledPlan, store: PayloadStore) -> PlanForTransfer:
    """Prepare a plan for the input of a run: parts that are too large are stored in the payload store.

    Large regions (groups of pure nodes that one activity runs) are offloaded first, because the run never loads their
    nodes. If the plan is still too large, it is stored in pages. The first page is the plan without its nodes. Each
    other page has nodes as columns, in plan order.

    Raises:
        StoreUnavailable: the plan cannot be stored now.
    """
    plan = await _with_offloaded_regions(plan, store)
    encoded = plan_to_columns(plan) if len(plan.nodes) <= MAX_INLINE_PLAN_NODES else None
    if encoded is not None and encoded_size(encoded) <= MAX_INLINE_PLAN_BYTES:
        return PlanForTransfer(plan, encoded=encoded)
    head = plan_to_json(replace(plan, nodes=()))
    pages = [await store.put(pydantic_core.to_json(head))]
    for page, _ in _pages(plan.nodes, {}, page_nodes=MAX_PLAN_PAGE_NODES):
        pages.append(await store.put(page))
    return PlanForTransfer(plan, tuple(pages))


async def _with_offloaded_regions(plan: CompiledPlan, store: PayloadStore) -> CompiledPlan:
    """Offload the large regions of a plan and its sub-plans to the store; return the plan without them."""
    split_plan = offload_regions(plan)
    nodes = list(split_plan.plan.nodes)
    for number, region in split_plan.region_documents.items():
        nodes[number] = replace(nodes[number], inner=await _put_region(region, store))
    for number, node in enumerate(nodes):
        if node.sub_plan is not None:
            nodes[number] = replace(node, sub_plan=await _with_offloaded_regions(node.sub_plan, store))
    return replace(split_plan.plan, nodes=tuple(nodes))


async def _put_region(region: RegionDocument, store: PayloadStore) -> str:
    pages = [
        (await store.put(page), count)
        for page, count in _pages(region.nodes, region.replacements, page_nodes=REGION_PAGE_NODES)
    ]
    head = {**region.head, "pages": [ref for ref, _ in pages], "counts": [count for _, count in pages]}
    return await store.put(pydantic_core.to_json(head))


async def load_region_pages(ref: str, store: PayloadStore) -> tuple[Mapping[str, Any], list[bytes]]:
    """Return an offloaded region without its nodes, and the encoded pages of its nodes.

    Raises:
        PayloadMissing, PayloadDamaged: the store does not have the region.
        StoreUnavailable: the store does not respond.
    """
    head = pydantic_core.from_json(await store.get(ref))
    return head, [await store.get(page) for page in head["pages"]]


def parse_region(head: Mapping[str, Any], pages: Sequence[bytes]) -> OffloadedRegion:
    """Parse an offloaded region loaded by `load_region_pages`.

    Parsing takes about 10 us per node. Other threads can run between the pages.

    Raises:
        ValueError: the pages are not those of a region.
    """
    nodes: list[CompiledNode] = []
    for page in pages:
        nodes += nodes_from_columns(pydantic_core.from_json(page))
    return offloaded_region_from_json(head, nodes)


def _pages(
    nodes: Sequence[CompiledNode], replacements: Mapping[str, Sequence[Any]], *, page_nodes: int
) -> Iterator[tuple[bytes, int]]:
    """Yield each page of nodes as JSON, with the number of its nodes."""
    start = 0
    while start < len(nodes):
        end = start + page_nodes
        page = pydantic_core.to_json(
            nodes_to_columns(nodes[start:end], {name: column[start:end] for name, column in replacements.items()})
        )
        if len(page) > MAX_PLAN_PAGE_BYTES and page_nodes > 1:
            # The following nodes probably have a similar size.
            page_nodes //= 2
            continue
        yield page, len(nodes[start:end])
        start = end
