"""The rows of the table: each row measures its pairs and returns its figures.

Each pair measures both sides, in alternating order, so that other load on the machine affects both. The first pair of
each row is a warm-up and is not counted.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy

from benchmarks import shapes
from benchmarks.commands import run_to_end
from benchmarks.figures import Figure, median_figure, ratio_figure
from benchmarks.one_queue_worker import one_queue_toolset
from benchmarks.processes import BASELINE_QUEUE, TOOLS_FILE, Bench, cpu_s, python_command
from dagwright.client.runs import Runs
from dagwright.client.starts import StartRequest
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.toolset.toolset import load_toolset

# Goals. A ratio compares Dagwright with the hand-written workflow.
TIME_RATIO = 1.10
SMALL_TIME_RATIO = 1.15
"""Goal for small graphs, in which the work before the first call matters."""
PURE_WIDE_RATIO = 20.0
PURE_CHAIN_RATIO = 10.0
EVENTS_RATIO = 1.05
MAKESPAN_RATIO = 1.35
"""Goal of the makespan, compared with the critical path."""
SERVER_RATIO = 3.0
"""Goal of the time on a default server, compared with the time on Dagwright's server."""
SERVER_CPU_RATIO = 1.2
START_UP_GOAL_S = 1.5
CHECK_GOAL_S = 5.0
CHECK_GOAL_GB = 1.0

CHECKED_NODES = 100_000
FEW_SAMPLES = 3
"""Maximum number of samples of slow measurements."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph as a plan and as a hand-written workflow.

    Args:
        make_plan: returns the plan.
        workflow_type: type of the hand-written workflow.
        size: arguments of that workflow; empty for its default size.
    """

    make_plan: Callable[[], shapes.Plan]
    workflow_type: str
    size: tuple[int, ...] = ()


_CHAIN = "chain of 50"
_SHAPES = {
    "fan-out 1-200-1": (Shape(shapes.fan_out, "FanOutBaseline"), SMALL_TIME_RATIO),
    _CHAIN: (Shape(shapes.chain, "ChainBaseline"), TIME_RATIO),
    "10 layers x 20": (Shape(shapes.layers, "LayersBaseline"), SMALL_TIME_RATIO),
}
"""Name of a graph -> the graph, and the goal of the ratio of times."""
_WIDE_FAN, _WIDE_LAYER = shapes.WIDE_FAN_WIDTH, shapes.WIDE_LAYER_WIDTH
_WIDE_SHAPES = {
    "fan-out 1-1000-1": Shape(lambda: shapes.fan_out(_WIDE_FAN), "FanOutBaseline", (_WIDE_FAN,)),
    "10 layers x 50": Shape(lambda: shapes.layers(width=_WIDE_LAYER), "LayersBaseline", (_WIDE_LAYER,)),
}
_PURE_TOOL = shapes.PURE_NO_OP
_PURE_SHAPES = {
    "fan-out 1-1000-1": (
        Shape(lambda: shapes.fan_out(_WIDE_FAN, tool=_PURE_TOOL), "FanOutBaseline", (_WIDE_FAN,)),
        PURE_WIDE_RATIO,
    ),
    _CHAIN: (Shape(lambda: shapes.chain(tool=_PURE_TOOL), "ChainBaseline"), PURE_CHAIN_RATIO),
    "10 layers x 50": (
        Shape(lambda: shapes.layers(width=_WIDE_LAYER, tool=_PURE_TOOL), "LayersBaseline", (_WIDE_LAYER,)),
        PURE_WIDE_RATIO,
    ),
}
_BATCH_TOOL = shapes.SHORT_NO_OP
_BATCH_SHAPES = {
    _CHAIN: (Shape(lambda: shapes.chain(tool=_BATCH_TOOL), "ChainBaseline"), 0.12),
    "fan-out 1-200-1": (Shape(lambda: shapes.fan_out(tool=_BATCH_TOOL), "FanOutBaseline"), 0.2),
}
"""Name of a graph -> the graph, and the goal of Dagwright's time in seconds."""
_STRAGGLERS_WORKFLOW = "StragglersBaseline"

_MANY_RUNS = 300
_MANY_RUNS_WIDTH = 18
"""Width of a fan-out of 20 nodes, which also has a first and a last node."""

RUN_TIMEOUT_S = 120.0
"""Timeout of a run; no run takes this long unless it has lost its worker."""

Row = Callable[[Bench, int], Awaitable[list[Figure]]]
"""Function that measures a row of the table: servers and clients, number of pairs -> figures."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: seconds from before its start to its result, and the number of its history events."""

    seconds: float
    event_count: int
    handle: WorkflowHandle[Any, Any]


async def compare_with_baseline(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure Dagwright, including the check, against the hand-written graph, on one server and queue."""
    figures = []
    for name, (shape, goal) in _SHAPES.items():
        dagwright_samples, baseline_samples = await _alternate_checked(bench, pair_count, shape)
        figures += [
            ratio_figure(f"{name}: time", seconds_of(dagwright_samples), seconds_of(baseline_samples), goal=goal),
            ratio_figure(
                f"{name}: events", _event_counts(dagwright_samples), _event_counts(baseline_samples), goal=EVENTS_RATIO
            ),
        ]
    return figures


async def compare_wide_with_baseline(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure wide graphs against the hand-written workflows, from the start of the run to its result.

    The time with check and compilation, which a hand-written workflow does not have, is reported separately.
    """
    figures = []
    for name, shape in _WIDE_SHAPES.items():
        prepared_samples, baseline_samples = await _alternate_prepared(bench, pair_count, shape)
        figures += [
            ratio_figure(f"{name}: time", seconds_of(prepared_samples), seconds_of(baseline_samples), goal=TIME_RATIO),
            ratio_figure(
                f"{name}: events", _event_counts(prepared_samples), _event_counts(baseline_samples), goal=EVENTS_RATIO
            ),
        ]
        checked_samples, baseline_samples = await _alternate_checked(bench, min(pair_count, FEW_SAMPLES), shape)
        figures.append(
            ratio_figure(
                f"{name}: time with check and compilation", seconds_of(checked_samples), seconds_of(baseline_samples)
            )
        )
    return figures


async def _alternate_prepared(bench: Bench, pair_count: int, shape: Shape) -> tuple[list[Sample], list[Sample]]:
    """Run a compiled plan and the hand-written workflow alternately; return the samples of each."""
    tools = one_queue_toolset(bench.settings).declarations()
    compiled_plan = prepare_plan(check_plan(shape.make_plan(), tools), {})
    run_dagwright = partial(run_compiled_plan, bench.one_queue_runs, compiled_plan, client=bench.client)
    return await alternate(
        pair_count, run_dagwright, partial(_run_baseline, bench.client, shape.workflow_type, shape.size)
    )


async def _alternate_checked(bench: Bench, pair_count: int, shape: Shape) -> tuple[list[Sample], list[Sample]]:
    """Alternately run a plan as the command `run` does, and the hand-written workflow; return the samples of each."""
    tools = one_queue_toolset(bench.settings).declarations()
    run_dagwright = partial(run_checked_plan, bench.one_queue_runs, shape.make_plan(), tools=tools, client=bench.client)
    return await alternate(
        pair_count, run_dagwright, partial(_run_baseline, bench.client, shape.workflow_type, shape.size)
    )


async def measure_pure_graphs(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure nodes per second of pure tools against the same graph of hand-written activities.

    The time is from the start of the run to its result; the time with check and compilation is reported separately.
    """
    figures = []
    for name, (shape, goal) in _PURE_SHAPES.items():
        dagwright_samples, baseline_samples = await _alternate_prepared(bench, pair_count, shape)
        title = f"{name}, pure: nodes per second"
        figures.append(
            ratio_figure(title, seconds_of(baseline_samples), seconds_of(dagwright_samples), goal=goal, is_floor=True)
        )
        dagwright_samples, baseline_samples = await _alternate_checked(bench, min(pair_count, FEW_SAMPLES), shape)
        figures.append(
            ratio_figure(
                f"{title}, with check and compilation",
                seconds_of(baseline_samples),
                seconds_of(dagwright_samples),
                is_floor=True,
            )
        )
    return figures


async def measure_short_calls(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure graphs of `batch` tools, whose short calls share activities, against the hand-written graphs.

    The time is from the start of the run to its result, as for the hand-written workflow.
    """
    figures = []
    for name, (shape, goal_s) in _BATCH_SHAPES.items():
        dagwright_samples, baseline_samples = await _alternate_prepared(bench, pair_count, shape)
        figures += [
            median_figure(f"{name}, batch tools: time", seconds_of(dagwright_samples), goal=goal_s, unit="s"),
            ratio_figure(
                f"{name}, batch tools: time against hand-written",
                seconds_of(dagwright_samples),
                seconds_of(baseline_samples),
            ),
        ]
    return figures


async def measure_own_queue(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure the chain with tools of `--tools`, which have their own queue.

    Activities of another queue are never started eagerly, so each call costs a round trip through the server's
    matching. A chain pays this cost for every node, one after the other. The run is started on the queue of its tools
    to avoid this cost.
    """
    shape = _SHAPES[_CHAIN][0]
    tools = load_toolset(bench.settings, [TOOLS_FILE]).declarations()
    dagwright_samples, baseline_samples = await alternate(
        pair_count,
        partial(run_checked_plan, bench.own_queue_runs, shape.make_plan(), tools=tools, client=bench.client),
        partial(_run_baseline, bench.client, shape.workflow_type),
    )
    title = f"{_CHAIN}, tools of `--tools`: time"
    return [ratio_figure(title, seconds_of(dagwright_samples), seconds_of(baseline_samples), goal=TIME_RATIO)]


async def measure_many_runs(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure the CPU time of the server for 300 runs of 20 nodes at once, with the tools of `--tools`."""
    shape = Shape(lambda: shapes.fan_out(_MANY_RUNS_WIDTH), "FanOutBaseline", (_MANY_RUNS_WIDTH,))
    compiled_plan = prepare_plan(
        check_plan(shape.make_plan(), load_toolset(bench.settings, [TOOLS_FILE]).declarations()), {}
    )
    server_pid = bench.connection.server.pid
    assert server_pid is not None

    async def measure_cpu_s(run: Runner) -> float:
        initial_cpu_s = cpu_s(server_pid)
        await asyncio.gather(*(run() for _ in range(_MANY_RUNS)))
        return cpu_s(server_pid) - initial_cpu_s

    dagwright_cpu_s, baseline_cpu_s = [], []
    for number in range(min(pair_count, FEW_SAMPLES) + 1):
        dagwright_sample_s = await measure_cpu_s(
            partial(run_compiled_plan, bench.own_queue_runs, compiled_plan, client=bench.client)
        )
        baseline_sample_s = await measure_cpu_s(partial(_run_baseline, bench.client, shape.workflow_type, shape.size))
        if number:
            dagwright_cpu_s.append(dagwright_sample_s)
            baseline_cpu_s.append(baseline_sample_s)
    return [
        ratio_figure(
            "300 runs of 20 nodes at once: CPU time of the server",
            dagwright_cpu_s,
            baseline_cpu_s,
            goal=SERVER_CPU_RATIO,
        )
    ]


async def measure_stragglers(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure the makespan of 20 chains with stragglers against their critical path."""
    tools = one_queue_toolset(bench.settings).declarations()
    dagwright_samples, baseline_samples = await alternate(
        pair_count,
        partial(run_checked_plan, bench.one_queue_runs, shapes.stragglers(), tools=tools, client=bench.client),
        partial(_run_baseline, bench.client, _STRAGGLERS_WORKFLOW),
    )
    makespans = [await _makespan_s(sample.handle) for sample in dagwright_samples]
    critical_paths_s = [shapes.STRAGGLERS_CRITICAL_PATH_S] * len(makespans)
    figure = ratio_figure("20 chains with stragglers: makespan", makespans, critical_paths_s, goal=MAKESPAN_RATIO)
    baseline_makespans = [await _makespan_s(sample.handle) for sample in baseline_samples]
    return [
        figure,
        ratio_figure("20 chains with stragglers, hand-written: makespan", baseline_makespans, critical_paths_s),
    ]


async def measure_servers(bench: Bench, pair_count: int) -> list[Figure]:
    """Measure the hand-written workflows on a default server and on Dagwright's server.

    Both servers have their database in a file. A server with its database in memory loses every run when it ends, so it
    is not an alternative; its ratio is reported without a goal.
    """
    figures = []
    for name, (shape, _) in _SHAPES.items():
        run_on_dagwright_server = partial(_run_baseline, bench.client, shape.workflow_type)
        default_samples, dagwright_samples = await alternate(
            pair_count, partial(_run_baseline, bench.default_client, shape.workflow_type), run_on_dagwright_server
        )
        title = f"{name}: default server"
        figures.append(
            ratio_figure(
                title, seconds_of(default_samples), seconds_of(dagwright_samples), goal=SERVER_RATIO, is_floor=True
            )
        )
        default_samples, dagwright_samples = await alternate(
            FEW_SAMPLES, partial(_run_baseline, bench.in_memory_client, shape.workflow_type), run_on_dagwright_server
        )
        figures.append(ratio_figure(f"{title}, in memory", seconds_of(default_samples), seconds_of(dagwright_samples)))
    return figures


async def measure_start_up(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure the command `run` from its start to the start of its first node, with the server running."""
    plan_file = bench.settings.state_dir.parent / "small.json"
    plan_file.write_text(json.dumps(shapes.chain()), encoding="utf-8")
    samples = []
    for _ in range(FEW_SAMPLES + 1):
        run_id = f"start-up-{uuid4().hex[:8]}"
        started_at = time.time()
        command = ["starter.py", "run", str(plan_file), "--tools", TOOLS_FILE, "--id", run_id, "--json"]
        outcome = await asyncio.to_thread(run_to_end, [*python_command(bench.settings), *command])
        if outcome.exit_code:
            raise RuntimeError(f"the command `run` ended with exit code {outcome.exit_code}: {outcome.last_output}")
        first_start_s, _ = await _first_start_and_last_end(bench.client.get_workflow_handle(run_id))
        samples.append(first_start_s - started_at)
    return [median_figure("`run` to its first node", samples[1:], goal=START_UP_GOAL_S, unit="s")]


async def measure_check(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure the command `check` for a plan of 100,000 nodes."""
    plan_file = bench.settings.state_dir.parent / "large.json"
    plan_file.write_text(json.dumps(shapes.large_plan(CHECKED_NODES, tool=shapes.PURE_NO_OP)), encoding="utf-8")
    command = [*python_command(bench.settings), "starter.py", "check", str(plan_file), "--tools", TOOLS_FILE, "--json"]
    outcomes = [await asyncio.to_thread(run_to_end, command) for _ in range(FEW_SAMPLES)]
    if outcomes[0].exit_code:
        raise RuntimeError(
            f"the command `check` ended with exit code {outcomes[0].exit_code}: {outcomes[0].last_output}"
        )
    return [
        median_figure(
            "`check` of 100,000 nodes: time", [outcome.seconds for outcome in outcomes], goal=CHECK_GOAL_S, unit="s"
        ),
        median_figure(
            "`check` of 100,000 nodes: memory", [outcome.peak_gb for outcome in outcomes], goal=CHECK_GOAL_GB, unit="GB"
        ),
    ]


BASIC_ROWS: dict[str, Row] = {
    "hand": compare_with_baseline,
    "hand-wide": compare_wide_with_baseline,
    "pure": measure_pure_graphs,
    "short": measure_short_calls,
    "own-queue": measure_own_queue,
    "many-runs": measure_many_runs,
    "stragglers": measure_stragglers,
    "servers": measure_servers,
    "start-up": measure_start_up,
    "check": measure_check,
}


Runner = Callable[[], Awaitable[Sample]]
"""Function that runs a graph once."""


async def alternate(count: int, run_first: Runner, run_second: Runner) -> tuple[list[Sample], list[Sample]]:
    """Run both sides alternately, `count` times, after one warm-up pair."""
    first_samples, second_samples = [], []
    for number in range(count + 1):
        if number % 2:
            first_sample, second_sample = await run_first(), await run_second()
        else:
            second_sample, first_sample = await run_second(), await run_first()
        if number:
            first_samples.append(first_sample)
            second_samples.append(second_sample)
    return first_samples, second_samples


async def run_checked_plan(
    runs: Runs, plan: shapes.Plan, *, tools: Mapping[str, ToolDeclaration], client: Client
) -> Sample:
    """Run a plan as the command `run` does: check, compile, start and wait; all of it is measured."""
    started_at = time.perf_counter()
    return await run_compiled_plan(
        runs, prepare_plan(check_plan(plan, tools), {}), client=client, started_at=started_at
    )


async def run_compiled_plan(
    runs: Runs, compiled_plan: CompiledPlan, *, client: Client, started_at: float | None = None
) -> Sample:
    """Run a compiled plan; measure from `started_at`, a value of the performance counter, or from now."""
    started_at = time.perf_counter() if started_at is None else started_at
    started_run = await runs.start(StartRequest(compiled_plan))
    handle = client.get_workflow_handle(started_run.run_id)
    document = await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    seconds = time.perf_counter() - started_at
    if document["status"] != "completed":
        raise RuntimeError(f"the run {started_run.run_id} ended as {document['status']}")
    return await _sample(handle, seconds)


async def _run_baseline(client: Client, workflow_type: str, size: tuple[int, ...] = ()) -> Sample:
    started_at = time.perf_counter()
    handle: WorkflowHandle[Any, Any] = await client.start_workflow(
        workflow_type,
        args=size,
        id=f"{workflow_type}-{uuid4().hex[:12]}",
        task_queue=BASELINE_QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
    )
    await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    return await _sample(handle, time.perf_counter() - started_at)


def seconds_of(samples: Sequence[Sample]) -> list[float]:
    return [sample.seconds for sample in samples]


def _event_counts(samples: Sequence[Sample]) -> list[float]:
    return [sample.event_count for sample in samples]


async def _sample(handle: WorkflowHandle[Any, Any], seconds: float) -> Sample:
    return Sample(seconds, (await handle.describe()).history_length, handle)


async def _makespan_s(handle: WorkflowHandle[Any, Any]) -> float:
    start_s, end_s = await _first_start_and_last_end(handle)
    return end_s - start_s


async def _first_start_and_last_end(handle: WorkflowHandle[Any, Any]) -> tuple[float, float]:
    """Return the start of the first activity and the end of the last activity, in seconds since the epoch."""
    history = await handle.fetch_history()
    start_times = _event_times(history.events, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    end_times = _event_times(history.events, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    return min(start_times), max(end_times)


def _event_times(events: Sequence[Any], event_type: int) -> list[float]:
    return [event_time(event) for event in events if event.event_type == event_type]


def event_time(event: HistoryEvent) -> float:
    """Return the time of an event, in seconds since the epoch."""
    return event.event_time.seconds + event.event_time.nanos / 1e9
