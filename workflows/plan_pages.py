"""Load a large plan page by page. `dagwright.plans.pages` has stored the pages."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import unpack
from dagwright.core.boundary.limits import INTERNAL_HEARTBEAT_S, MAX_RUN_NODES
from dagwright.core.compiler.node_columns import nodes_from_columns
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.protocol.run_input import plan_from_pages
from dagwright.workflows.activity_calls import INTERNAL_ATTEMPT_TIMEOUT
from dagwright.workflows.retries import PLAN_PAGE_RETRIES

MAX_CONCURRENT_PAGES = 4
"""Maximum number of pages that one workflow task decodes. Decoding a page takes about 20 ms."""


async def load_plan(pages: Sequence[str], *, time_left: timedelta | None) -> CompiledPlan:
    """Return the plan of the pages.

    Args:
        pages: references; the first page is the plan without its nodes.
        time_left: time until the deadline of the run.

    Raises:
        ActivityError: a page cannot be loaded.
        PlanTooLarge: the plan is too large for a run.
        ValueError: the pages are not a plan.
    """
    (head,) = await _load(pages[:1], time_left)
    nodes: list[CompiledNode] = []
    for start in range(1, len(pages), MAX_CONCURRENT_PAGES):
        for page in await _load(pages[start : start + MAX_CONCURRENT_PAGES], time_left):
            nodes += nodes_from_columns(page)
        if len(nodes) > MAX_RUN_NODES:
            break
    return plan_from_pages(head, nodes)


async def _load(pages: Sequence[str], time_left: timedelta | None) -> list[Any]:
    loads = [
        workflow.execute_activity(
            wire.ACTIVITY_LOAD_PLAN,
            {"ref": page},
            start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
            schedule_to_close_timeout=time_left,
            heartbeat_timeout=timedelta(seconds=INTERNAL_HEARTBEAT_S),
            retry_policy=PLAN_PAGE_RETRIES,
            summary="reading a page of the plan",
            result_type=dict[str, Any],
        )
        for page in pages
    ]
    return [unpack(packed_page) for packed_page in await asyncio.gather(*loads)]
