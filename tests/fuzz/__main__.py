"""`python -m tests.fuzz [--minutes N] [--seed S] [--only POSITION] [--case FILE]`: random runs for N minutes.

Every failure is printed with its seed. The failed case is written to `fuzz-<seed>-<position>.json`. `--case` repeats
the case.
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
from tests.fuzz.session import BATCH_SIZE, Failure, Session, Tally, open_session, run_for
from tests.support.server import live_server


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60.0, help="minutes in which new cases are started")
    parser.add_argument("--seed", type=int, help="first seed (default: random)")
    parser.add_argument("--only", type=int, help="run only the case at this position in the batch of the seed")
    parser.add_argument("--case", type=Path, help="run only the case of a file")
    return parser.parse_args()


def _report_and_save(failure: Failure) -> None:
    path = Path(f"fuzz-{failure.seed}-{failure.position}.json")
    path.write_text(failure.case.to_text(), encoding="utf-8")
    frame = traceback.extract_tb(failure.error.__traceback__)[-1]
    sys.stdout.write(
        f"FAILED {path}: {type(failure.error).__name__} in {frame.name}: {frame.line}: {failure.error!s:.2000}\n"
    )
    if not isinstance(failure.error, AssertionError):
        traceback.print_exception(failure.error)


async def _run_cases(session: Session, options: argparse.Namespace) -> Tally:
    if options.case is not None:
        tally = Tally()
        case = Case.from_text(options.case.read_text(encoding="utf-8"))
        tally.outcomes[await session.run(case)] += 1
        return tally
    first_seed = options.seed if options.seed is not None else random.randrange(1_000_000) * 1_000
    if options.only is not None:
        tally = Tally()
        await session.run_batch(first_seed, tally, is_selected=lambda position: position == options.only)
        for failure in tally.failures:
            _report_and_save(failure)
        return tally
    started_at, saved_count = time.monotonic(), 0

    def report_progress(tally: Tally, batch_seed: int) -> None:
        nonlocal saved_count
        for failure in tally.failures[saved_count:]:
            _report_and_save(failure)
        saved_count = len(tally.failures)
        minutes = (time.monotonic() - started_at) / 60
        sys.stdout.write(f"{minutes:.1f} min, seed {batch_seed}: {tally.count} cases, {saved_count} failed\n")
        sys.stdout.flush()

    return await run_for(session, seconds=options.minutes * 60, first_seed=first_seed, report=report_progress)


async def _main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            live_server(Path(folder) / "server") as server,
            open_session(await server.start(), Path(folder)) as session,
        ):
            tally = await _run_cases(session, options)
    for outcome, count in sorted(tally.outcomes.items()):
        sys.stdout.write(f"{count:7} {outcome}\n")
    sys.stdout.write(f"{tally.count} cases in batches of {BATCH_SIZE}, {len(tally.failures)} failed\n")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(_options())))
