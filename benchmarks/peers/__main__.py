"""`python -m benchmarks.peers [--rounds N] [--kills N]`: the same graphs on Dagwright, Temporal, LangGraph and DBOS.

In each round every engine runs every graph once. Each round starts with a different engine, so that other load on the
machine affects all engines. The first round is a warm-up. Each result is compared with the result computed without an
engine. Writes `results/peers.json` and `results/peers.md`. The exit code is 1 only if a figure misses its goal by
more than the factor 1.5.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import temporalio.service

from benchmarks.figures import Figure, figure_to_json, format_table, median_figure, save_document
from benchmarks.peers import environments, graphs, tools
from benchmarks.peers.crashes import Crash, crash_and_resume
from benchmarks.peers.engines import DagwrightEngine, EmbeddedEngine, Engine, HandWrittenEngine
from benchmarks.peers.tables import Samples, crash_table, engine_table
from benchmarks.processes import KillableWorker, python_command
from dagwright.client.runs import namespace_runs
from dagwright.server import Connection, LocalServer
from dagwright.server.binary import SERVER_VERSION
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset

ROUNDS, KILLS = 9, 3
BATCH = "Dagwright, `batch` tools"
GOALS_S = {graphs.CHAIN: 0.12, graphs.FAN_OUT: 0.2}
"""Graph -> goal of Dagwright with `batch` tools, in seconds."""

_RESULTS = Path(__file__).resolve().parents[1] / "results"
_TOOLS_FILE = str(Path(tools.__file__).resolve())


@asynccontextmanager
async def open_engines(folder: Path) -> AsyncIterator[list[Engine]]:
    """Run all engines inside the block, with their state in a folder."""
    settings = Settings(state_dir=folder / "state")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(LocalServer(settings).hold())
        engines = [
            *await _temporal_engines(settings, Connection(await dial(server.address), server, frozenset())),
            *_embedded_engines(folder),
        ]
        for engine in engines:
            stack.push_async_callback(engine.kill)
            await engine.start()
        yield engines


async def _temporal_engines(settings: Settings, connection: Connection) -> list[Engine]:
    client, server = connection.client, connection.server
    connection = Connection(client, server, await register_search_attributes(client))
    assert server.pid is not None
    folder = settings.state_dir.parent
    hand_written_worker = [*python_command(settings), "-m", "benchmarks.peers.temporal_graphs", server.address]
    hand_written = HandWrittenEngine(
        "hand-written Temporal workflow",
        folder / "hand-written",
        client=client,
        server_pid=server.pid,
        worker=KillableWorker(hand_written_worker, folder / "hand-written.log"),
    )
    worker = KillableWorker([*python_command(settings), "worker.py", "--tools", _TOOLS_FILE], folder / "worker.log")
    declarations = load_toolset(settings, [_TOOLS_FILE]).declarations()
    dagwright_engines: list[Engine] = [
        DagwrightEngine(
            name,
            folder / f"dagwright-{prefix}ledger",
            runs=namespace_runs(connection, settings),
            tools=declarations,
            prefix=prefix,
            client=client,
            server_pid=server.pid,
            worker=worker,
        )
        for name, prefix in (("Dagwright", ""), (BATCH, tools.BATCH_PREFIX))
    ]
    return [*dagwright_engines, hand_written]


def _embedded_engines(folder: Path) -> list[Engine]:
    cache_home = Settings().cache_home
    engines: list[Engine] = []
    for name, program, arguments in (
        ("LangGraph, `sync`", "langgraph", ["sync"]),
        ("LangGraph, `async` (its default)", "langgraph", ["async"]),
        ("DBOS", "dbos", []),
    ):
        engine_folder = folder / "-".join([program, *arguments])
        engine_folder.mkdir()
        command = [
            environments.python_of(program, cache_home),
            "-m",
            f"benchmarks.peers.{program}_graphs",
            str(engine_folder),
        ]
        engines.append(EmbeddedEngine(name, engine_folder / graphs.LEDGER, [*command, *arguments]))
    return engines


async def measure(round_count: int, kill_count: int) -> tuple[Samples, dict[str, list[Crash]]]:
    """Return seconds and CPU time by engine and graph, and the crashes by engine."""
    samples = Samples()
    crashes: dict[str, list[Crash]] = {}
    expected_results = graphs.expected_results()
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        async with open_engines(Path(folder)) as engines:
            for number in range(round_count + 1):
                for graph in graphs.GRAPHS:
                    for engine in _rotate(engines, number - 1):
                        await _measure_run(samples if number else Samples(), engine, graph, expected_results[graph])
                sys.stderr.write(f"round {number} of {round_count}\n")
            for number in range(kill_count):
                for engine in _rotate(engines, number):
                    crashes.setdefault(engine.name, []).append(await crash_and_resume(engine))
    return samples, crashes


async def _measure_run(samples: Samples, engine: Engine, graph: str, expected_result: int) -> None:
    initial_cpu_s = engine.cpu_s()
    outcome = await engine.run(graph, f"peer-{uuid4().hex[:12]}")
    if outcome.result != expected_result:
        raise RuntimeError(f"{engine.name}, {graph}: the result is {outcome.result}, expected {expected_result}")
    samples.add(engine.name, graph, seconds=outcome.seconds, cpu_s=engine.cpu_s() - initial_cpu_s)


def _rotate(engines: Sequence[Engine], number: int) -> list[Engine]:
    offset = number % len(engines)
    return [*engines[offset:], *engines[:offset]]


def _goal_figures(samples: Samples) -> list[Figure]:
    return [
        median_figure(f"{graph}, {BATCH}", samples.seconds[BATCH, graph], goal=goal, unit="s")
        for graph, goal in GOALS_S.items()
    ]


def _versions() -> str:
    langgraph = environments.locked_version("langgraph", "langgraph")
    checkpointer = environments.locked_version("langgraph", "langgraph-checkpoint-sqlite")
    dbos = environments.locked_version("dbos", "dbos")
    return (
        f"Temporal server {SERVER_VERSION}, SDK {temporalio.service.__version__}; LangGraph {langgraph}, "
        f"SQLite checkpointer {checkpointer}; DBOS {dbos}. Every database is SQLite with `journal_mode=wal` and "
        "`synchronous=normal`."
    )


def main() -> int:
    """Run the comparison and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of runs of each graph on each engine")
    parser.add_argument("--kills", type=int, default=KILLS, help="number of kills of each engine")
    options = parser.parse_args()
    samples, crashes = asyncio.run(measure(options.rounds, options.kills))
    goal_figures = _goal_figures(samples)
    text = "\n\n".join([engine_table(samples), crash_table(crashes), format_table(goal_figures), _versions()])
    print(text)
    document = {
        "rounds": options.rounds,
        "samples": samples.to_json(),
        "crashes": {name: [crash.to_json() for crash in engine_crashes] for name, engine_crashes in crashes.items()},
        "goals": [figure_to_json(figure) for figure in goal_figures],
    }
    save_document(_RESULTS, "peers", text=text, document=document, workload_text=f"{options.rounds} rounds")
    return 1 if any(figure.verdict == "failed" for figure in goal_figures) else 0


if __name__ == "__main__":
    sys.exit(main())
