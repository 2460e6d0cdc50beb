"""`python -m benchmarks [--set NAME] [--rows hand,servers] [--pairs N]`: measure, print, save and check figures.

The exit code is 1 only if a figure misses its goal by more than the factor 1.5. Each set of rows is measured and saved
separately, because all sets would occupy a machine for an hour. If `--rows` selects a part of a set, nothing is saved.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, format_table, save_figures
from benchmarks.large_rows import LARGE_ROWS
from benchmarks.limit_rows import LIMIT_ROWS
from benchmarks.list_rows import LIST_ROWS
from benchmarks.people_rows import PEOPLE_ROWS
from benchmarks.planning.rounds import measure_rounds
from benchmarks.processes import open_bench
from benchmarks.rows import BASIC_ROWS
from benchmarks.stream_rows import STREAM_ROWS
from benchmarks.text_rows import TEXT_ROWS

SETS = {
    "latest": {**BASIC_ROWS, **LIMIT_ROWS, **PEOPLE_ROWS, "rounds": measure_rounds},
    "gateway": {**TEXT_ROWS, **STREAM_ROWS},
    "large": LARGE_ROWS,
    "lists": LIST_ROWS,
}
"""Set -> its rows. `large` has the rows that take many minutes."""
ROWS = {name: row for rows in SETS.values() for name, row in rows.items()}
PAIRS = 9
_RESULTS = Path(__file__).resolve().parent / "results"


async def measure(row_names: list[str], pair_count: int) -> list[Figure]:
    """Measure some rows and return their figures, in order."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with open_bench(Path(folder)) as bench:
            for row_name in row_names:
                started_at = time.monotonic()
                row_figures = await ROWS[row_name](bench, pair_count)
                figures += row_figures
                print(
                    f"{format_table(row_figures)}\n({row_name}: {time.monotonic() - started_at:.0f} s)\n",
                    file=sys.stderr,
                )
    return figures


def main() -> int:
    """Run the benchmarks and return the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--set", choices=list(SETS), default="latest", help="set of rows (default: latest)")
    parser.add_argument("--rows", help=f"only these rows, of any set: {', '.join(ROWS)}")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="number of pairs of measurements per comparison")
    options = parser.parse_args()
    row_names = options.rows.split(",") if options.rows else list(SETS[options.set])
    if unknown_rows := [name for name in row_names if name not in ROWS]:
        parser.error(f"unknown row {unknown_rows[0]!r}")
    figures = asyncio.run(measure(row_names, options.pairs))
    print(format_table(figures))
    if row_names == list(SETS[options.set]):
        save_figures(figures, _RESULTS, name=options.set, pair_count=options.pairs)
    return 1 if any(figure.verdict == "failed" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
