"""A minute of random runs: for any plan and any messages, each run ends in a valid state.

The cases come from seeds, so a session starts with the same cases on every machine. A faster machine runs more cases,
up to the last seed. `python -m tests.fuzz` runs further cases.
"""

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.fuzz.session import open_session, run_for

pytestmark = [pytest.mark.server, pytest.mark.slow]

_SECONDS = 60.0
_FIRST_SEED = 1
_LAST_SEED = 14
"""Last seed of a session, even if there is time for more cases."""


async def test_random_runs_end_in_a_valid_state(client: Client, tmp_path: Path) -> None:
    async with open_session(client, tmp_path) as session:
        tally = await run_for(
            session, seconds=_SECONDS, first_seed=_FIRST_SEED, last_seed=_LAST_SEED, report=lambda *_: None
        )
    assert not tally.failures, "\n\n".join(map(str, tally.failures[:3]))
    assert tally.count > 20
