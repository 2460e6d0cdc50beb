"""Kill an engine's process in the middle of a chain of effects, start it again, and count repeated steps."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.peers import graphs
from benchmarks.peers.engines import EmbeddedEngine, Engine

_STEPS_BEFORE_KILL = 20
_TIMEOUT_S = 60.0
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Crash:
    """Outcome of a kill.

    Args:
        resumed_after_s: time from the kill to the next completed step.
        repeated_steps: number of additional executions of steps.
    """

    resumed_after_s: float
    repeated_steps: int

    def to_json(self) -> dict[str, Any]:
        """Return the crash as JSON."""
        return asdict(self)


async def crash_and_resume(engine: Engine) -> Crash:
    """Kill an engine after twenty steps, start it again at once, and wait for the result of the run."""
    engine.ledger.unlink(missing_ok=True)
    run_id = f"crash-{uuid4().hex[:12]}"
    run_task = asyncio.create_task(engine.run(graphs.EFFECT_CHAIN, run_id))
    await _wait_until(lambda: len(_steps(engine.ledger)) >= _STEPS_BEFORE_KILL)
    await engine.kill()
    killed_at, last_step = time.monotonic(), max(_steps(engine.ledger))
    if isinstance(engine, EmbeddedEngine):
        with suppress(RuntimeError, ConnectionError):
            await run_task
    await engine.start()
    result_task = asyncio.create_task(engine.resume(run_id)) if run_task.done() else run_task
    await _wait_until(lambda: max(_steps(engine.ledger)) > last_step)
    resumed_after_s = time.monotonic() - killed_at
    outcome = await result_task
    steps = _steps(engine.ledger)
    if outcome.result != graphs.EFFECT_COUNT or {*steps} != {*range(graphs.EFFECT_COUNT)}:
        raise RuntimeError(f"{engine.name} lost steps after a kill: {sorted({*range(graphs.EFFECT_COUNT)} - {*steps})}")
    return Crash(round(resumed_after_s, 3), len(steps) - len({*steps}))


def _steps(ledger: Path) -> list[int]:
    return [int(line) for line in ledger.read_text(encoding="ascii").split()] if ledger.exists() else []


async def _wait_until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        while not is_reached():
            await asyncio.sleep(_POLL_S)
