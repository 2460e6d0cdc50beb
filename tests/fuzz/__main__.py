"""`python -m tests.fuzz [--minutes N] [--seed S] [--only N] [--case FILE]`: random runs, for as long as you like.

Every failure is printed with its seed and written to `fuzz-<seed>-<number>.json`, which `--case` runs again.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.cases import Case
from tests.fuzz.session import BATCH, Failure, Session, Tally, run_for, session
from tests.support.server import live_server


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, help="the first seed; a random one by default")
    parser.add_argument("--only", type=int, help="run this case of the seed alone")
    parser.add_argument("--case", type=Path, help="run the case of a file alone")
    return parser.parse_args()


def _keep(failure: Failure) -> None:
    path = Path(f"fuzz-{failure.seed}-{failure.number}.json")
    path.write_text(failure.case.to_text(), encoding="utf-8")
    where = traceback.extract_tb(failure.error.__traceback__)[-1]
    sys.stdout.write(
        f"FAILED {path}: {type(failure.error).__name__} in {where.name}: {where.line}: {failure.error!s:.2000}\n"
    )
    if not isinstance(failure.error, AssertionError):
        traceback.print_exception(failure.error)


async def _run_some(found: Session, options: argparse.Namespace) -> Tally:
    if options.case is not None:
        tally = Tally()
        case = Case.from_text(options.case.read_text(encoding="utf-8"))
        tally.ends[await found.run(case)] += 1
        return tally
    first_seed = options.seed if options.seed is not None else random.randrange(1_000_000) * 1_000
    if options.only is not None:
        tally = Tally()
        await found.run_batch(first_seed, tally, only=lambda position: position == options.only)
        for failure in tally.failures:
            _keep(failure)
        return tally
    started, kept = time.monotonic(), 0

    def print_tally(tally: Tally, number: int) -> None:
        nonlocal kept
        for failure in tally.failures[kept:]:
            _keep(failure)
        kept = len(tally.failures)
        minutes = (time.monotonic() - started) / 60
        sys.stdout.write(f"{minutes:.1f} min, seed {number}: {tally.count} cases, {kept} failed\n")
        sys.stdout.flush()

    return await run_for(found, seconds=options.minutes * 60, first_seed=first_seed, report=print_tally)


async def _main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with live_server(Path(folder) / "server") as server, session(await server.start(), Path(folder)) as found:
            tally = await _run_some(found, options)
    for end, count in sorted(tally.ends.items()):
        sys.stdout.write(f"{count:7} {end}\n")
    sys.stdout.write(f"{tally.count} cases in batches of {BATCH}, {len(tally.failures)} failed\n")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(_options())))
