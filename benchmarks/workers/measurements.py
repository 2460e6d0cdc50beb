"""Measure a fleet of workers: the CPU time per plan node, and the effects of runs while workers are killed."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.workers.effects import NODES, Document, Tally, compare_with_ledger
from benchmarks.workers.fleet import RUN_TIMEOUT_S, Fleet
from benchmarks.workers.production_server import ProductionServer

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of runs on some workers.

    Args:
        workers: number of workers, with their roles if they differ.
        nodes_per_s: nodes per second, with all runs started at once.
        workers_ms, server_ms, database_ms: CPU time per node.
        smallest_share, largest_share: share of all calls that the least busy and the busiest worker executed.
        tally: effects of the runs.
    """

    workers: str
    nodes_per_s: float
    workers_ms: float
    server_ms: float
    database_ms: float
    smallest_share: float
    largest_share: float
    tally: Tally

    def to_json(self) -> dict[str, Any]:
        """Return the cost as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class KillResult:
    """Runs during which workers were killed.

    Args:
        workers: number of workers, with their roles if they differ.
        killed: workers that were killed and started again.
        runs: number of runs.
        seconds: from the first start to the last result.
        tally: effects of the runs.
    """

    workers: str
    killed: int
    runs: int
    seconds: float
    tally: Tally

    def to_json(self) -> dict[str, Any]:
        """Return the kills as JSON."""
        return asdict(self)


async def measure_cost(fleet: Fleet, server: ProductionServer, run_count: int) -> Cost:
    """Measure runs that start at once, without a kill."""
    initial_cpu_s, started_at = _cpu_s(fleet, server), time.monotonic()
    documents = await _run_all(fleet, run_count)
    seconds, final_cpu_s = time.monotonic() - started_at, _cpu_s(fleet, server)
    workers_ms, server_ms, database_ms = (
        round(1000 * (end - start) / (run_count * NODES), 2)
        for start, end in zip(initial_cpu_s, final_cpu_s, strict=True)
    )
    calls = Counter(pid for _, pid in fleet.entries())
    shares = [calls[pid] / calls.total() for pid in calls] + [0.0] * (fleet.tool_worker_count - len(calls))
    return Cost(
        workers=fleet.name,
        nodes_per_s=round(run_count * NODES / seconds, 1),
        workers_ms=workers_ms,
        server_ms=server_ms,
        database_ms=database_ms,
        smallest_share=round(min(shares), 3),
        largest_share=round(max(shares), 3),
        tally=_compare_and_remove_ledger(fleet, documents),
    )


async def measure_kills(fleet: Fleet, run_count: int) -> KillResult:
    """Kill half of the workers one after the other while runs continue, and start each again at once."""
    started_at = time.monotonic()
    runs_task = asyncio.create_task(_run_all(fleet, run_count))
    killed_workers = fleet.workers[: max(1, len(fleet.workers) // 2)]
    for number, worker in enumerate(killed_workers, start=1):
        await _wait_for_effects(fleet, run_count * NODES * number // (len(killed_workers) + 2))
        await worker.kill_and_start_again()
    documents = await runs_task
    return KillResult(
        workers=fleet.name,
        killed=len(killed_workers),
        runs=run_count,
        seconds=round(time.monotonic() - started_at, 1),
        tally=_compare_and_remove_ledger(fleet, documents),
    )


async def _run_all(fleet: Fleet, run_count: int) -> dict[str, Document]:
    run_coroutines: list[Coroutine[Any, Any, tuple[str, Document]]] = [fleet.run() for _ in range(run_count)]
    return dict(await asyncio.gather(*run_coroutines))


async def _wait_for_effects(fleet: Fleet, count: int) -> None:
    async with asyncio.timeout(RUN_TIMEOUT_S):
        while len(fleet.entries()) < count:
            await asyncio.sleep(_POLL_S)


def _compare_and_remove_ledger(fleet: Fleet, documents: dict[str, Document]) -> Tally:
    """Compare the runs with the ledger, and remove the ledger."""
    result = compare_with_ledger(documents, [key for key, _ in fleet.entries()])
    fleet.ledger.unlink()
    return result


def _cpu_s(fleet: Fleet, server: ProductionServer) -> tuple[float, float, float]:
    """Return the CPU time of workers, server and database, in seconds."""
    return sum(worker.cpu_s() for worker in fleet.workers), server.server_cpu_s(), server.database_cpu_s()
