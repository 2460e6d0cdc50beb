"""The rows of `make bench-large`, which take minutes.

Each row compares the cost of a node with its cost in a plan of a tenth of the size.
The worker is restarted for each run, so that its peak memory is the run's peak memory.
"""

import asyncio
import time
from uuid import uuid4

from benchmarks import shapes
from benchmarks.figures import Figure, ratio_figure
from benchmarks.one_queue_worker import one_queue_toolset
from benchmarks.processes import Bench, run_killable_worker, runs_on
from benchmarks.rows import Row
from dagwright.client.starts import StartRequest
from dagwright.plans.preparation import check_plan, prepare_plan

PURE_NODES = 1_000_000
PURE_GOAL_S = 60.0
ORDINARY_NODES = 20_000
MAP_ITEMS = 100_000
COST_RATIO = 1.5
"""Goal of the cost of a node, compared with the cost of a node in a plan of a tenth of the size."""
_SIZE_DIVISOR = 10
_TIMEOUT_S = 3_600.0


async def measure_million_pure_nodes(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure 1,000,000 pure nodes with three dependencies each."""
    return await _compare_with_tenth(
        bench,
        f"{PURE_NODES:,} pure nodes",
        small_plan=shapes.large_plan(PURE_NODES // _SIZE_DIVISOR, tool=shapes.PURE_NO_OP),
        large_plan=shapes.large_plan(PURE_NODES, tool=shapes.PURE_NO_OP),
        count=PURE_NODES,
        goal_s=PURE_GOAL_S,
    )


async def measure_continue_as_new(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure 20,000 ordinary activities, which need several executions of the workflow."""
    return await _compare_with_tenth(
        bench,
        f"{ORDINARY_NODES:,} ordinary nodes",
        small_plan=shapes.large_plan(ORDINARY_NODES // _SIZE_DIVISOR),
        large_plan=shapes.large_plan(ORDINARY_NODES),
        count=ORDINARY_NODES,
    )


async def measure_large_map(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure a `for_each` of 100,000 items."""
    return await _compare_with_tenth(
        bench,
        f"a map of {MAP_ITEMS:,} items",
        small_plan=shapes.map_of_items(MAP_ITEMS // _SIZE_DIVISOR),
        large_plan=shapes.map_of_items(MAP_ITEMS),
        count=MAP_ITEMS,
    )


LARGE_ROWS: dict[str, Row] = {
    "million": measure_million_pure_nodes,
    "continued": measure_continue_as_new,
    "map": measure_large_map,
}


async def _compare_with_tenth(
    bench: Bench,
    name: str,
    *,
    small_plan: shapes.Plan,
    large_plan: shapes.Plan,
    count: int,
    goal_s: float | None = None,
) -> list[Figure]:
    """Run a plan at a tenth of its size and at full size, and compare the costs of a node."""
    small_s, small_gb = await _run(bench, small_plan)
    large_s, large_gb = await _run(bench, large_plan)
    large_costs, small_costs = [large_s / count], [small_s / (count / _SIZE_DIVISOR)]
    return [
        Figure(f"{name}: time", large_s, goal_s, unit="s"),
        ratio_figure(
            f"{name}: cost of a node, compared with a tenth of the nodes", large_costs, small_costs, goal=COST_RATIO
        ),
        Figure(f"{name}: memory of the worker", large_gb, None, unit="GB"),
        Figure(f"{name}: memory of the worker for a tenth of the nodes", small_gb, None, unit="GB"),
    ]


async def _run(bench: Bench, plan: shapes.Plan) -> tuple[float, float]:
    """Return the duration of a run in seconds, and the peak memory of its worker in 10^9 bytes."""
    tools = one_queue_toolset(bench.settings).declarations()
    compiled_plan = await asyncio.to_thread(lambda: prepare_plan(check_plan(plan, tools), {}))
    queue = f"large-{uuid4().hex[:8]}"
    async with run_killable_worker(bench, queue) as worker:
        started_at = time.perf_counter()
        started_run = await runs_on(bench.connection, bench.settings, queue=queue).start(StartRequest(compiled_plan))
        handle = bench.client.get_workflow_handle(started_run.run_id)
        document = await asyncio.wait_for(handle.result(), _TIMEOUT_S)
        seconds = time.perf_counter() - started_at
        memory_gb = worker.peak_gb()
    if document["status"] != "completed":
        raise RuntimeError(f"the run {started_run.run_id} ended as {document['status']}: {document.get('error')}")
    return seconds, memory_gb
