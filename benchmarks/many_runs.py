"""`python -m benchmarks.many_runs [--quick] [--runs 200,1000] [--waiting N]`: the cost of many runs at once.

Each measurement has a fresh server and one worker, and starts all of its runs at once after a warm-up. Two sides are
measured alternately: Dagwright with a plan of 20 nodes in layers, and a hand-written workflow with the same graph and
the same activity options. CPU times are measured per process, so other load on the machine affects CPU times less than
durations. Afterwards, many runs wait for a person.
The results are in `results/many.*`; the exit code is 1 only if a goal is missed by more than the factor 1.5.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionDescription

from benchmarks import shapes
from benchmarks.figures import Figure, figure_to_json, format_table, ratio_figure, save_document
from benchmarks.one_queue_worker import one_queue_toolset
from benchmarks.processes import (
    BASELINE_QUEUE,
    ONE_QUEUE,
    TOOLS_FILE,
    KillableWorker,
    cpu_s,
    python_command,
    rss_bytes,
    runs_on,
)
from benchmarks.rows import event_time
from dagwright.client.runs import Runs, namespace_runs
from dagwright.client.starts import StartRequest
from dagwright.core.boundary import wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import Connection, LocalServer
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset

LAYERS, WIDTH = 5, 4
NODES = LAYERS * WIDTH
TIME_RATIO = CPU_RATIO = 1.10
BYTES_RATIO = 1.25
"""Goals of Dagwright, compared with the hand-written workflow."""
MEDIAN_END_SHARE = 0.6
"""Half of the runs must end within this share of the total time. If all runs ended together, the share would be 1."""
DAGWRIGHT, ONE_QUEUE_SIDE, BASELINE = "dagwright", "dagwright, one queue", "hand-written"
_WARM_UP_RUNS = 20
_TIMEOUT_S = 1_800.0
_POLL_S = 0.25
_MAX_CONCURRENT_REQUESTS = 50
"""Maximum number of concurrent requests to the server in parts that are not measured per request."""
_IDLE_S = 20.0
_RESULTS = Path(__file__).resolve().parent / "results"

RunStarter = Callable[[str], Awaitable[object]]
"""Function that starts a run with the given workflow ID."""


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A fresh server with one worker.

    Args:
        start: starts a run of the measured graph.
        server_pid: process ID of the server.
    """

    client: Client
    start: RunStarter
    server_pid: int
    worker: KillableWorker


@dataclass(frozen=True, slots=True)
class Measurement:
    """Many runs at once; times are seconds since the start of the first run.

    Args:
        server_ms, worker_ms: CPU time for each node, in milliseconds.
        events, history_bytes: mean per run.
        first_node_starts_s: start of the first node of each run, sorted.
        run_ends_s: end of each run, sorted.
    """

    server_ms: float
    worker_ms: float
    events: float
    history_bytes: float
    first_node_starts_s: Sequence[float]
    run_ends_s: Sequence[float]

    @property
    def median_end_share(self) -> float:
        """End of the median run, as a share of the end of the last run."""
        return statistics.median(self.run_ends_s) / self.run_ends_s[-1]

    def format_line(self) -> str:
        """Return the measurement in one line."""
        return (
            f"{len(self.run_ends_s) * NODES / self.run_ends_s[-1]:.0f} nodes/s; "
            f"CPU per node: server {self.server_ms:.2f} ms, worker {self.worker_ms:.2f} ms; "
            f"per run: {self.events:.1f} events, {self.history_bytes:,.0f} bytes; "
            f"first node p50 {_quantile(self.first_node_starts_s, 0.5):.1f} s, "
            f"p99 {_quantile(self.first_node_starts_s, 0.99):.1f} s; "
            f"end p50 {_quantile(self.run_ends_s, 0.5):.1f} s, p99 {_quantile(self.run_ends_s, 0.99):.1f} s, "
            f"last {self.run_ends_s[-1]:.1f} s; median / last {self.median_end_share:.2f}"
        )


def _quantile(sorted_values: Sequence[float], share: float) -> float:
    return sorted_values[min(int(len(sorted_values) * share), len(sorted_values) - 1)]


@asynccontextmanager
async def bench_server(folder: Path, side: str, *, plan: shapes.Plan) -> AsyncIterator[BenchServer]:
    """Run a fresh server with one worker inside the block.

    Args:
        side: `DAGWRIGHT`, `ONE_QUEUE_SIDE` or `BASELINE`.
        plan: plan that Dagwright runs.
    """
    settings = Settings(state_dir=folder / "state")
    async with LocalServer(settings).hold() as server:
        assert server.pid is not None
        client = await dial(server.address)
        connection = Connection(client, server, await register_search_attributes(client))
        command, start = _worker_command_and_start(side, connection, settings, plan)
        worker = KillableWorker([*python_command(settings), *command], folder / "worker.log")
        await worker.start()
        try:
            yield BenchServer(client, start, server.pid, worker)
        finally:
            await worker.kill()


def _worker_command_and_start(
    side: str, connection: Connection, settings: Settings, plan: shapes.Plan
) -> tuple[Sequence[str], RunStarter]:
    """Return the command of the worker of a side, and the function that starts a run."""
    if side == BASELINE:
        command = ["-m", "benchmarks.baseline_worker", connection.server.address]
        return command, partial(_start_baseline, connection.client)
    if side == ONE_QUEUE_SIDE:
        command, toolset = ["-m", "benchmarks.one_queue_worker", connection.server.address], one_queue_toolset(settings)
        runs = runs_on(connection, settings, queue=ONE_QUEUE)
    else:
        command, toolset = ["worker.py", "--tools", TOOLS_FILE], load_toolset(settings, [TOOLS_FILE])
        runs = namespace_runs(connection, settings)
    return command, partial(_start_run, runs, prepare_plan(check_plan(plan, toolset.declarations()), {}))


async def _start_run(runs: Runs, compiled_plan: CompiledPlan, run_id: str) -> None:
    await runs.start(StartRequest(compiled_plan, run_id=run_id))


async def _start_baseline(client: Client, workflow_id: str) -> None:
    name, sizes = "LayersWithOptionsBaseline", [WIDTH, LAYERS]
    await client.start_workflow(name, args=sizes, id=workflow_id, task_queue=BASELINE_QUEUE)


async def measure(side: str, count: int) -> Measurement:
    """Start a number of runs at once on a fresh server, and wait for all of them."""
    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        async with bench_server(Path(folder), side, plan=shapes.layers(LAYERS, WIDTH)) as bench:
            await _run_all(bench, _WARM_UP_RUNS, prefix="warm-up")
            server_cpu_s, worker_cpu_s, started_at = cpu_s(bench.server_pid), bench.worker.cpu_s(), time.time()
            await _run_all(bench, count, prefix="run")
            server_cpu_s, worker_cpu_s = cpu_s(bench.server_pid) - server_cpu_s, bench.worker.cpu_s() - worker_cpu_s
            readings = await _read_runs(bench.client, count)
    descriptions = [run for run, _ in readings]
    return Measurement(
        server_ms=server_cpu_s / count / NODES * 1000,
        worker_ms=worker_cpu_s / count / NODES * 1000,
        events=statistics.mean(run.history_length for run in descriptions),
        history_bytes=statistics.mean(_history_bytes(run) for run in descriptions),
        first_node_starts_s=sorted(first_start - started_at for _, first_start in readings),
        run_ends_s=sorted(
            run.close_time.timestamp() - started_at for run in descriptions if run.close_time is not None
        ),
    )


async def _run_all(bench: BenchServer, count: int, *, prefix: str) -> None:
    await asyncio.gather(*(bench.start(f"{prefix}-{number}") for number in range(count)))
    await _wait_for_count(
        bench.client, f"ExecutionStatus != 'Running' AND WorkflowId STARTS_WITH '{prefix}-'", count=count
    )


async def _wait_for_count(client: Client, query: str, *, count: int) -> None:
    """Wait until a number of workflows match a query."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (match_count := (await client.count_workflows(query)).count) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{match_count:,} of {count:,} workflows match: {query}")
        await asyncio.sleep(_POLL_S)


async def _read_runs(client: Client, count: int) -> Sequence[tuple[WorkflowExecutionDescription, float]]:
    """Return the description of each run, and the start of its first node in seconds since the epoch."""
    read_slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def read_run(number: int) -> tuple[WorkflowExecutionDescription, float]:
        async with read_slots:
            handle = client.get_workflow_handle(f"run-{number}")
            description = await handle.describe()
            if description.status is None or description.status.name != "COMPLETED":
                raise RuntimeError(f"the run {handle.id} has not completed")
            async for event in handle.fetch_history_events():
                if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                    return description, event_time(event)
            raise RuntimeError(f"no node of the run {handle.id} has started")

    return await asyncio.gather(*map(read_run, range(count)))


def _history_bytes(description: WorkflowExecutionDescription) -> int:
    return description.raw_description.workflow_execution_info.history_size_bytes


async def compare(count: int, *, pair_count: int, side: str) -> list[Figure]:
    """Measure a number of runs at once, alternately on Dagwright's side and as hand-written workflows."""
    dagwright_measurements: list[Measurement] = []
    baseline_measurements: list[Measurement] = []
    for number in range(pair_count):
        sides = [(side, dagwright_measurements), (BASELINE, baseline_measurements)]
        for name, measurements in sides if number % 2 else reversed(sides):
            measurements.append(await measure(name, count))
            print(f"{count:,} runs, {name}: {measurements[-1].format_line()}", file=sys.stderr, flush=True)

    def figure(quantity: str, value_of: Callable[[Measurement], float], goal: float | None = None) -> Figure:
        title = f"{count:,} runs of {NODES} nodes: {quantity}"
        return ratio_figure(
            title,
            [value_of(measurement) for measurement in dagwright_measurements],
            [value_of(measurement) for measurement in baseline_measurements],
            goal=goal,
        )

    median_ends, last_ends = (
        [statistics.median(measurement.run_ends_s) for measurement in dagwright_measurements],
        [measurement.run_ends_s[-1] for measurement in dagwright_measurements],
    )
    return [
        figure("time", lambda measurement: measurement.run_ends_s[-1], TIME_RATIO),
        figure("CPU time of the server per node, ms", lambda measurement: measurement.server_ms, CPU_RATIO),
        figure("CPU time of the worker per node, ms", lambda measurement: measurement.worker_ms, CPU_RATIO),
        figure("bytes of a history", lambda measurement: measurement.history_bytes, BYTES_RATIO),
        figure("events of a history", lambda measurement: measurement.events),
        figure("first node, p50", lambda measurement: _quantile(measurement.first_node_starts_s, 0.5)),
        figure("first node, p99", lambda measurement: _quantile(measurement.first_node_starts_s, 0.99)),
        figure("end of a run, p50", lambda measurement: _quantile(measurement.run_ends_s, 0.5)),
        figure("end of a run, p99", lambda measurement: _quantile(measurement.run_ends_s, 0.99)),
        ratio_figure(
            f"{count:,} runs: end of the median run / of the last run", median_ends, last_ends, goal=MEDIAN_END_SHARE
        ),
    ]


async def measure_waiting_runs(count: int) -> list[Figure]:
    """Measure runs that wait for a person: memory, CPU time while idle, and a restart of the worker."""

    def waiting_figure(quantity: str, value: float, unit: str) -> Figure:
        return Figure(f"{count:,} runs wait for a person: {quantity}", value, None, unit=unit)

    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        async with bench_server(Path(folder), DAGWRIGHT, plan=shapes.requests_to_people(1)) as bench:
            await _start_waiting_runs(bench, "warm-up", _WARM_UP_RUNS)
            processes = {"server": bench.server_pid, "worker": bench.worker.pid}
            initial_bytes = {role: rss_bytes(pid) for role, pid in processes.items()}
            started_at = time.monotonic()
            await _start_waiting_runs(bench, "run", count)
            figures = [waiting_figure("time until all wait", time.monotonic() - started_at, "s")]
            for role, pid in processes.items():
                per_run = (rss_bytes(pid) - initial_bytes[role]) / count
                figures.append(waiting_figure(f"memory of the {role} per run", per_run, "B"))
            initial_cpu_s = {role: cpu_s(pid) for role, pid in processes.items()}
            await asyncio.sleep(_IDLE_S)
            for role, pid in processes.items():
                share = (cpu_s(pid) - initial_cpu_s[role]) / _IDLE_S
                figures.append(waiting_figure(f"CPU of the {role} while idle", share * 100, "% of a core"))
            started_at = time.monotonic()
            await bench.worker.kill_and_start_again()
            await _answer(bench.client, f"run-{count - 1}")
            figures.append(
                waiting_figure(
                    "from the restart of the worker to the end of an answered run", time.monotonic() - started_at, "s"
                )
            )
            return figures


async def _start_waiting_runs(bench: BenchServer, prefix: str, count: int) -> None:
    start_slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def start(number: int) -> None:
        async with start_slots:
            await bench.start(f"{prefix}-{number}")

    await asyncio.gather(*map(start, range(count)))
    query = f"{wire.SEARCH_STATE} = 'waiting' AND WorkflowId STARTS_WITH '{prefix}-'"
    await _wait_for_count(bench.client, query, count=count)


async def _answer(client: Client, run_id: str) -> None:
    """Answer the request of a run, and wait for its end."""
    handle = client.get_workflow_handle(run_id)
    message = {"request_id": "ask0", "answer": {"text": "continue"}, "by": "benchmark"}
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
    document: Any = await asyncio.wait_for(handle.result(), _TIMEOUT_S)
    if document["status"] != "completed":
        raise RuntimeError(f"the run {run_id} ended as {document['status']}")


async def _measure_all(options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    for count in map(int, options.runs.split(",")):
        figures += await compare(
            count, pair_count=options.pairs, side=ONE_QUEUE_SIDE if options.one_queue else DAGWRIGHT
        )
    return [*figures, *(await measure_waiting_runs(options.waiting) if options.waiting else ())]


def main() -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.many_runs", description=__doc__)
    parser.add_argument("--runs", default="200,1000", help="numbers of concurrent runs")
    parser.add_argument("--pairs", type=int, default=3, help="measurements of each side")
    parser.add_argument("--waiting", type=int, default=10_000, help="runs that wait for a person; 0 for none")
    parser.add_argument("--one-queue", action="store_true", help="serve the tools on the queue of the workflows")
    parser.add_argument("--quick", action="store_true", help="small numbers, without saving the results")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.pairs, options.waiting = "40", 1, 100
    figures = asyncio.run(_measure_all(options))
    print(format_table(figures))
    if not options.quick:
        document = {"pairs": options.pairs, "figures": [figure_to_json(each) for each in figures]}
        save_document(
            _RESULTS, "many", text=format_table(figures), document=document, workload_text=f"{options.pairs} pairs"
        )
    return 1 if any(figure.verdict == "failed" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
