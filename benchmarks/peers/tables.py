"""Samples of the engines, and the tables made from them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers import graphs
from benchmarks.peers.crashes import Crash


class Samples:
    """Seconds and CPU seconds of the runs: (engine, graph) -> a value for each round."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.cpu_s: dict[tuple[str, str], list[float]] = {}

    def add(self, engine: str, graph: str, *, seconds: float, cpu_s: float) -> None:
        """Add a run."""
        self.seconds.setdefault((engine, graph), []).append(round(seconds, 4))
        self.cpu_s.setdefault((engine, graph), []).append(round(cpu_s, 4))

    def engines(self) -> list[str]:
        """Return the names of the engines, in the order of their first run."""
        return list(dict.fromkeys(engine for engine, _ in self.seconds))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the samples as JSON."""
        return [
            {"engine": engine, "graph": graph, "seconds": seconds, "cpu_s": self.cpu_s[engine, graph]}
            for (engine, graph), seconds in self.seconds.items()
        ]


def engine_table(samples: Samples) -> str:
    """Format the median of each graph on each engine, and the mean CPU time per node over all graphs."""
    rows = [
        [
            engine,
            *(f"{statistics.median(samples.seconds[engine, graph]):.3f}" for graph in graphs.GRAPHS),
            f"{_cpu_ms_per_node(samples, engine):.1f}",
        ]
        for engine in samples.engines()
    ]
    return _markdown_table(["seconds", *graphs.GRAPHS, "CPU time per node, ms"], rows)


def crash_table(crashes: Mapping[str, Sequence[Crash]]) -> str:
    """Format the kills of each engine: time to the next step, and repeated steps."""
    rows = [
        [
            engine,
            f"{statistics.median(crash.resumed_after_s for crash in engine_crashes):.2f}",
            " ".join(str(crash.repeated_steps) for crash in engine_crashes),
        ]
        for engine, engine_crashes in crashes.items()
    ]
    return _markdown_table([graphs.EFFECT_CHAIN, "seconds to the next step after `kill -9`", "repeated steps"], rows)


def _cpu_ms_per_node(samples: Samples, engine: str) -> float:
    # The clock of a process counts hundredths of a second, so single runs are too short to be measured.
    total_cpu_s = sum(sum(samples.cpu_s[engine, graph]) for graph in graphs.GRAPHS)
    node_count = sum(graphs.NODE_COUNTS[graph] * len(samples.cpu_s[engine, graph]) for graph in graphs.GRAPHS)
    return 1000 * total_cpu_s / node_count


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
