"""A minute of random runs: whatever is thrown at the engine, each run ends in a clear state.

The cases come from seeds, so they are the same in every session; how many of them are run depends on the machine.
`python -m tests.fuzz` runs more of them.
"""

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.fuzz.session import run_for, session

pytestmark = [pytest.mark.server, pytest.mark.slow]

_SECONDS = 60.0
_FIRST_SEED = 1
_LAST_SEED = 14
"""So that a faster machine runs the same cases: new ones are what `python -m tests.fuzz` is for."""


async def test_random_runs_end_in_a_clear_state(client: Client, tmp_path: Path) -> None:
    async with session(client, tmp_path) as found:
        tally = await run_for(
            found, seconds=_SECONDS, first_seed=_FIRST_SEED, last_seed=_LAST_SEED, report=lambda *_: None
        )
    assert not tally.failures, "\n\n".join(map(str, tally.failures[:3]))
    assert tally.count > 20
