"""`python -m benchmarks.workers [--workers 2,4,8,2+2] [--runs N]`: several workers on one server with PostgreSQL.

Each worker has its own network namespace and state folder; all workers share a payload store and the ledger of their
effects. `2+2` means two workers for workflows and two for tools. The CPU time of workers, server and database per node
is measured for each number of workers.
Then half of the workers are killed while runs continue, and each effect is counted. Writes `results/workers.json` and
`results/workers.md`; the exit code is 1 if an effect was duplicated or lost, or a run did not complete.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from benchmarks.figures import save_document
from benchmarks.workers.fleet import Fleet, open_fleet
from benchmarks.workers.measurements import Cost, KillResult, measure_cost, measure_kills
from benchmarks.workers.networks import WorkerNetwork, worker_networks
from benchmarks.workers.production_server import ProductionServer, production_server
from dagwright.settings import Settings, WorkerRole

WORKERS, RUNS = "2,4,8,2+2", 30
_RESULTS = Path(__file__).resolve().parents[1] / "results"
_LOCALHOST = "127.0.0.1"


def roles_of(text: str) -> list[WorkerRole]:
    """Return a role for each worker that a text such as `4` or `2+2` asks for.

    `4` means four workers with all roles. `2+2` means two workers for workflows and two for tools; the two roles
    alternate in the list.
    """
    workflow_count, separator, tool_count = text.partition("+")
    if not separator:
        return ["all"] * int(workflow_count)
    workflow_roles: list[WorkerRole | None] = ["workflows"] * int(workflow_count)
    tool_roles: list[WorkerRole | None] = ["tools"] * int(tool_count)
    return [role for pair in zip_longest(workflow_roles, tool_roles) for role in pair if role is not None]


async def measure(fleet_roles: list[list[WorkerRole]], run_count: int) -> tuple[list[Cost], list[KillResult], str]:
    """Return the cost and the kills for each list of workers, and a description of their networks."""
    costs, kills = [], []
    with tempfile.TemporaryDirectory(prefix="bench-workers-") as folder_name, ExitStack() as stack:
        folder = Path(folder_name)
        networks, network_text = _networks(stack, max(map(len, fleet_roles)))
        async with production_server(folder / "temporal", Settings().cache_home) as server:
            for number, roles in enumerate(fleet_roles):
                async with open_fleet(folder / str(number), server, networks[: len(roles)], roles=roles) as fleet:
                    cost, kill_result = await _measure_fleet(fleet, server, run_count)
                costs.append(cost)
                kills.append(kill_result)
    return costs, kills, network_text


async def _measure_fleet(fleet: Fleet, server: ProductionServer, run_count: int) -> tuple[Cost, KillResult]:
    await fleet.warm_up()
    cost = await measure_cost(fleet, server, run_count)
    kill_result = await measure_kills(fleet, run_count)
    sys.stderr.write(f"{fleet.name} workers: {cost}\n{kill_result}\n")
    return cost, kill_result


def _networks(stack: ExitStack, count: int) -> tuple[list[WorkerNetwork], str]:
    """Return a network for each worker, and a description of the networks."""
    try:
        return stack.enter_context(worker_networks(count)), "each worker in its own network namespace"
    except RuntimeError as error:
        sys.stderr.write(f"no network namespaces: {error}\n")
        return [WorkerNetwork((), _LOCALHOST)] * count, f"all workers in one network, because {error}"


def _cost_table(costs: list[Cost]) -> str:
    lines = [
        "| workers | nodes per second | CPU time per node: workers | server | database | share of calls per worker |",
        "| -- | -- | -- | -- | -- | -- |",
    ]
    for cost in costs:
        times = " | ".join(
            f"{milliseconds:.1f} ms" for milliseconds in (cost.workers_ms, cost.server_ms, cost.database_ms)
        )
        shares = f"{100 * cost.smallest_share:.0f} to {100 * cost.largest_share:.0f} %"
        lines.append(f"| {cost.workers} | {cost.nodes_per_s:.0f} | {times} | {shares} |")
    return "\n".join(lines)


def _kill_table(kills: list[KillResult]) -> str:
    lines = [
        "| workers | killed | runs | lost runs | nodes | repeated `write` | missing effects | `outcome_unknown` | "
        "repeated `idempotent` calls |",
        "| -- | -- | -- | -- | -- | -- | -- | -- | -- |",
    ]
    for kill in kills:
        tally = kill.tally
        lines.append(
            f"| {kill.workers} | {kill.killed} | {kill.runs} | {tally.lost_runs} | {tally.nodes} | "
            f"{tally.repeated_writes} | {tally.missing} | {tally.unknown} | {tally.repeated_idempotent} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.workers", description=__doc__)
    parser.add_argument("--workers", default=WORKERS, help=f"numbers of workers to compare (default: {WORKERS})")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"number of concurrent runs (default: {RUNS})")
    options = parser.parse_args()
    fleet_roles = [roles_of(text) for text in options.workers.split(",")]
    costs, kills, network_text = asyncio.run(measure(fleet_roles, options.runs))
    text = f"{_cost_table(costs)}\n\n{_kill_table(kills)}\n\nPostgreSQL with `fsync`; {network_text}."
    print(text)
    document = {"costs": [cost.to_json() for cost in costs], "kills": [kill.to_json() for kill in kills]}
    save_document(_RESULTS, "workers", text=text, document=document, workload_text=f"{options.runs} runs at once")
    return 0 if all(kill.tally.is_correct for kill in kills) and all(cost.tally.is_correct for cost in costs) else 1


if __name__ == "__main__":
    sys.exit(main())
