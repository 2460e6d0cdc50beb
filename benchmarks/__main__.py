"""`python -m benchmarks [--set NAME] [--rows hand,servers] [--pairs N]`: measure, print, save and judge.

The exit code is 1 only if a figure exceeds 1.5 times its goal. Each set of rows is measured and saved separately,
because all sets would occupy a machine for an hour; a part of a set is printed, not saved.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, save, table
from benchmarks.large_rows import LARGE_ROWS
from benchmarks.limit_rows import LIMIT_ROWS
from benchmarks.list_rows import LIST_ROWS
from benchmarks.people_rows import PEOPLE_ROWS
from benchmarks.planning.rounds import rounds
from benchmarks.processes import open_bench
from benchmarks.rows import BASIC_ROWS
from benchmarks.stream_rows import STREAM_ROWS
from benchmarks.text_rows import TEXT_ROWS

SETS = {
    "latest": {**BASIC_ROWS, **LIMIT_ROWS, **PEOPLE_ROWS, "rounds": rounds},
    "doors": {**TEXT_ROWS, **STREAM_ROWS},
    "large": LARGE_ROWS,
    "lists": LIST_ROWS,
}
"""Set -> its rows: rows of plans, of the gateway and streamed texts, rows that take long, and lists of many runs."""
ROWS = {name: row for rows in SETS.values() for name, row in rows.items()}
PAIRS = 9
_RESULTS = Path(__file__).resolve().parent / "results"


async def measure(rows: list[str], pairs: int) -> list[Figure]:
    """Measure some rows and return their figures, in order."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        async with open_bench(Path(name)) as bench:
            for row in rows:
                started_at = time.monotonic()
                row_figures = await ROWS[row](bench, pairs)
                figures += row_figures
                print(f"{table(row_figures)}\n({row}: {time.monotonic() - started_at:.0f} s)\n", file=sys.stderr)
    return figures


def main() -> int:
    """Run the benchmarks and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--set", choices=list(SETS), default="latest", help="set of rows (default: latest)")
    parser.add_argument("--rows", help=f"only these rows, of any set: {', '.join(ROWS)}")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="interleaved pairs per comparison")
    options = parser.parse_args()
    rows = options.rows.split(",") if options.rows else list(SETS[options.set])
    if unknown_rows := [row for row in rows if row not in ROWS]:
        parser.error(f"unknown row {unknown_rows[0]!r}")
    figures = asyncio.run(measure(rows, options.pairs))
    print(table(figures))
    if rows == list(SETS[options.set]):
        save(figures, _RESULTS, name=options.set, measurement_pairs=options.pairs)
    return 1 if any(figure.verdict == "failed" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
