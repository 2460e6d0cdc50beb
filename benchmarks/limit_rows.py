"""The rows of the engine at its limits: many pure nodes, pure and slow nodes, a killed worker, many watchers."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowFailureError, WorkflowHandle

from benchmarks import shapes
from benchmarks.figures import Figure, median_figure, ratio_figure
from benchmarks.one_queue_worker import one_queue_toolset
from benchmarks.processes import Bench, run_killable_worker, runs_on
from benchmarks.rows import RUN_TIMEOUT_S, Row, Sample, alternate, event_time, run_compiled_plan, seconds_of
from dagwright.client.starts import StartRequest
from dagwright.core.boundary import wire
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.preparation import check_plan, prepare_plan

PURE_LARGE = 100_000
PURE_SMALL = 10_000
"""Numbers of pure nodes whose costs are compared."""
PURE_LARGE_GOAL_S = 5.0
PURE_LARGE_GOAL_EVENTS = 500
PURE_COST_RATIO = 1.5
"""Goal of the cost of a node, compared with the cost of a node in the smaller plan."""
ACTIVATION_GOAL_S = 0.5
MIXED_RATIO = 1.2
"""Goal of the makespan of slow nodes next to pure nodes, compared with the slow nodes alone."""
SIGNAL_GOAL_S = 0.5
RECOVERY_GOAL_S = 5.0
WATCHERS = 100
WATCHERS_RATIO = 1.2
"""Goal of the time of a run with `WATCHERS` watchers, compared with one watcher."""
_REPETITIONS = 3

Tools = Mapping[str, ToolDeclaration]


async def measure_pure_large(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure 100,000 pure nodes with three dependencies each, and the cost of a node compared with a run of 10,000."""
    tools = one_queue_toolset(bench.settings).declarations()
    large_runs, small_runs = [], []
    for _ in range(_REPETITIONS):
        large_runs.append(await _run_plan(bench, shapes.large_plan(PURE_LARGE, tool=shapes.PURE_NO_OP), tools))
        small_runs.append(await _run_plan(bench, shapes.large_plan(PURE_SMALL, tool=shapes.PURE_NO_OP), tools))
    activations = [await _longest_activation_s(sample.handle) for sample in large_runs]
    name = f"{PURE_LARGE:,} pure nodes"
    large_costs = [sample.seconds / PURE_LARGE for sample in large_runs]
    small_costs = [sample.seconds / PURE_SMALL for sample in small_runs]
    return [
        median_figure(f"{name}: time", seconds_of(large_runs), goal=PURE_LARGE_GOAL_S, unit="s"),
        median_figure(
            f"{name}: events", [sample.event_count for sample in large_runs], goal=PURE_LARGE_GOAL_EVENTS, unit="events"
        ),
        ratio_figure(f"{name}: cost of a node", large_costs, small_costs, goal=PURE_COST_RATIO),
        median_figure(f"{name}: longest activation", activations, goal=ACTIVATION_GOAL_S, unit="s"),
    ]


async def measure_slow_beside_pure(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure slow nodes next to many pure nodes against the same slow nodes alone, and the latency of a signal."""
    tools = one_queue_toolset(bench.settings).declarations()
    mixed_samples, alone_samples = await alternate(
        min(pair_count, _REPETITIONS),
        partial(_run_plan, bench, shapes.slow_and_pure(shapes.MIXED_PURE_NODES), tools),
        partial(_run_plan, bench, shapes.slow_and_pure(0), tools),
    )
    title = "slow nodes beside pure nodes: makespan of the slow nodes"
    mixed_makespans_s, alone_makespans_s = [
        [await _slow_makespan_s(sample.handle) for sample in samples] for samples in (mixed_samples, alone_samples)
    ]
    latencies = [await _signal_latency_s(bench, tools) for _ in range(_REPETITIONS)]
    return [
        ratio_figure(title, mixed_makespans_s, alone_makespans_s, goal=MIXED_RATIO),
        median_figure("slow nodes beside pure nodes: latency of a signal", latencies, goal=SIGNAL_GOAL_S, unit="s"),
    ]


async def measure_recovery(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Kill the worker and start it again at once; measure the time from the kill until every chain has progressed."""
    tools = one_queue_toolset(bench.settings).declarations()
    samples = []
    for _ in range(_REPETITIONS):
        queue = f"recovery-{uuid4().hex[:8]}"
        runs = runs_on(bench.connection, bench.settings, queue=queue)
        async with run_killable_worker(bench, queue) as worker:
            started_run = await runs.start(StartRequest(prepare_plan(check_plan(shapes.slow_chains(), tools), {})))
            handle = bench.client.get_workflow_handle(started_run.run_id)
            await _wait_for_completions(handle, shapes.SLOW_CHAINS * 3)
            killed_at = time.time()
            await worker.kill_and_start_again()
            await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
            document = await handle.query(wire.QUERY_STATUS)
        _assert_all_ones(document)
        samples.append(recovery_time_s(await _events(handle), killed_at))
    return [median_figure("killed worker: time until every chain continues", samples, goal=RECOVERY_GOAL_S, unit="s")]


async def measure_watchers(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure a run with a hundred watchers in one process against the same run with one watcher."""
    tools = one_queue_toolset(bench.settings).declarations()
    samples_of_many_watchers, samples_of_one_watcher = await alternate(
        min(pair_count, 5),
        partial(_run_watched_layers, bench, tools, WATCHERS),
        partial(_run_watched_layers, bench, tools, 1),
    )
    title = f"{WATCHERS} watchers in one process"
    return [
        ratio_figure(
            title, seconds_of(samples_of_many_watchers), seconds_of(samples_of_one_watcher), goal=WATCHERS_RATIO
        )
    ]


async def _run_plan(bench: Bench, plan: shapes.Plan, tools: Tools) -> Sample:
    """Check and compile a plan, then run it; only the run is measured."""
    return await run_compiled_plan(bench.one_queue_runs, prepare_plan(check_plan(plan, tools), {}), client=bench.client)


async def _events(handle: WorkflowHandle[Any, Any]) -> Sequence[HistoryEvent]:
    return (await handle.fetch_history()).events


async def _longest_activation_s(handle: WorkflowHandle[Any, Any]) -> float:
    """Return the longest time between the start and completion of a workflow task, including the network."""
    longest, started_at = 0.0, 0.0
    for event in await _events(handle):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            started_at = event_time(event)
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            longest = max(longest, event_time(event) - started_at)
    return longest


async def _slow_makespan_s(handle: WorkflowHandle[Any, Any]) -> float:
    """Return the time from the run's start to the end of its last slow node."""
    events = await _events(handle)
    slow_event_ids = {
        event.event_id
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == shapes.PAUSE
    }
    end_times = [
        event_time(event)
        for event in events
        if event.activity_task_completed_event_attributes.scheduled_event_id in slow_event_ids
    ]
    return max(end_times) - event_time(events[0])


async def _signal_latency_s(bench: Bench, tools: Tools) -> float:
    """Return the time from sending `cancel` among pure nodes to the first reaction of the workflow."""
    compiled_plan = prepare_plan(check_plan(shapes.slow_and_pure(shapes.MIXED_PURE_NODES), tools), {})
    started_run = await bench.one_queue_runs.start(StartRequest(compiled_plan))
    handle = bench.client.get_workflow_handle(started_run.run_id)
    await _wait_for_completions(handle, 1)
    sent_at = time.time()
    await handle.signal(wire.CANCEL, {"reason": "measured"})
    # `result` raises this error for a cancelled run.
    with suppress(WorkflowFailureError):
        await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    events = await _events(handle)
    signal_event_id = next(
        event.event_id for event in events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    )
    reaction_types = (
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    )
    reaction_times = [
        event_time(event) for event in events if event.event_id > signal_event_id and event.event_type in reaction_types
    ]
    return min(reaction_times) - sent_at


async def _wait_for_completions(handle: WorkflowHandle[Any, Any], count: int) -> None:
    """Wait until the given number of activities has completed."""
    async with asyncio.timeout(RUN_TIMEOUT_S):
        completed_count = 0
        while completed_count < count:
            events = await _events(handle)
            completed_count = sum(event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED for event in events)
            await asyncio.sleep(0.05)


def recovery_time_s(events: Sequence[HistoryEvent], killed_at: float) -> float:
    """Return the time from the kill until every chain has completed a node.

    Raises:
        RuntimeError: a chain completed no node after the kill, or the run scheduled a node twice.
    """
    node_ids: dict[int, str] = {}
    first_completions: dict[str, float] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            node_ids[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED and event_time(event) > killed_at:
            chain = node_ids[event.activity_task_completed_event_attributes.scheduled_event_id].partition("-")[0]
            first_completions.setdefault(chain, event_time(event))
    repeated_nodes = [name for name, count in Counter(node_ids.values()).items() if count > 1]
    if repeated_nodes:
        raise RuntimeError(f"nodes were scheduled twice: {repeated_nodes[:5]}")
    if len(first_completions) != shapes.SLOW_CHAINS:
        raise RuntimeError(f"of {shapes.SLOW_CHAINS} chains only {sorted(first_completions)} continued after the kill")
    return max(first_completions.values()) - killed_at


def _assert_all_ones(document: Mapping[str, Any]) -> None:
    wrong_nodes = [name for name, node in document["nodes"].items() if node["result"] != 1]
    if document["status"] != "completed" or wrong_nodes:
        raise RuntimeError(f"the run ended as {document['status']}; wrong values: {wrong_nodes[:5]}")


async def _run_watched_layers(bench: Bench, tools: Tools, watcher_count: int) -> Sample:
    """Run layers of nodes while the given number of watchers follows the run."""
    compiled_plan = prepare_plan(check_plan(shapes.layers(), tools), {})
    started_at = time.perf_counter()
    started_run = await bench.one_queue_runs.start(StartRequest(compiled_plan))
    handle = bench.client.get_workflow_handle(started_run.run_id)
    watch_tasks = [asyncio.create_task(watch(bench, started_run.run_id)) for _ in range(watcher_count)]
    await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    seconds = time.perf_counter() - started_at
    statuses = await asyncio.wait_for(asyncio.gather(*watch_tasks), RUN_TIMEOUT_S)
    if set(statuses) != {"completed"}:
        raise RuntimeError(f"the watchers saw {sorted(set(statuses))}")
    return Sample(seconds, 0, handle)


async def watch(bench: Bench, run_id: str) -> str:
    """Follow a run to its end and return its final status."""
    status = "unknown"
    async for update in bench.one_queue_runs.subscriptions.subscribe(run_id):
        status = update.view.status
    return status


LIMIT_ROWS: dict[str, Row] = {
    "pure-large": measure_pure_large,
    "mixed": measure_slow_beside_pure,
    "recovery": measure_recovery,
    "watchers": measure_watchers,
}
