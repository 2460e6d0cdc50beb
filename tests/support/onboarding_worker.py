"""A worker with short heartbeat timeouts, whose onboarding verbs wait at fault points.

Each verb has three fault points, whose names start with NODE, the ID of the node that calls the verb. `NODE-before` is
right before the transaction, `NODE-inside` is at the end of the transaction before the commit, and `NODE-after` is
after the commit, before the result is reported.

Run it as a program instead of `worker.py`; it has the same options.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from dagwright.core.model.tools import Effects
from dagwright.database.database import Database
from dagwright.tools import context
from dagwright.workflows import activity_calls
from dagwright_onboarding.database import EntityDatabase
from tests.support.chaos_tools import block_at_fault_point

HEARTBEAT_S = 1.0
BEFORE, INSIDE, AFTER = "before", "inside", "after"

_write = Database.write


def _held_write(self: Database, work: Callable[[Session], Any]) -> Any:
    node_id = context().node_id

    def held_work(session: Session) -> Any:
        result = work(session)
        session.flush()
        block_at_fault_point(f"{node_id}-{INSIDE}")
        return result

    block_at_fault_point(f"{node_id}-{BEFORE}")
    result = _write(self, held_work)
    block_at_fault_point(f"{node_id}-{AFTER}")
    return result


if __name__ == "__main__":
    activity_calls.HEARTBEAT_S = dict.fromkeys(Effects, HEARTBEAT_S)
    EntityDatabase.write = _held_write  # type: ignore[method-assign]
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
