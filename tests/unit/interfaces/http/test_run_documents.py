"""The run of the current or last turn of a session."""

from types import SimpleNamespace
from typing import Any

import pytest

from dagwright.client.sessions import SessionView
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.http.callers import ANYONE
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.run_documents import run_of_session
from dagwright.protocol.sessions import SessionRecord
from dagwright.protocol.turns import TurnEnd, TurnStart


def _context(session: SessionRecord, **session_names_by_run: str | None) -> Any:

    async def find(_: str) -> SessionView:
        return SessionView(session)

    async def session_name_of(run_id: str) -> str | None:
        if run_id not in session_names_by_run:
            raise RunNotFound(f"there is no run {run_id!r}")
        return session_names_by_run[run_id]

    runs, sessions = SimpleNamespace(session_name_of=session_name_of), SimpleNamespace(find=find)
    return SimpleNamespace(caller=ANYONE, sessions=sessions, runs=runs)


def _session(*ended_runs: str, running_run: str) -> SessionRecord:
    session = SessionRecord("main")
    for run_id in ended_runs:
        session.start_turn(TurnStart(run_id, {}), at=1.0)
        session.end_turn(run_id, TurnEnd("completed"), at=2.0)
    session.start_turn(TurnStart(running_run, {}), at=3.0)
    return session


async def test_session_ignores_a_turn_that_has_the_id_of_an_unrelated_run() -> None:
    for session_name in ("other", None):
        assert (
            await run_of_session(_context(_session("first", running_run="shared"), shared=session_name), "main")
            == "first"
        )
        with pytest.raises(ApiError, match="has no turns"):
            await run_of_session(_context(_session(running_run="shared"), shared=session_name), "main")
    assert await run_of_session(_context(_session(running_run="first"), first="main"), "main") == "first"
    # A turn has the ID of its run before the run has started.
    assert await run_of_session(_context(_session(running_run="first")), "main") == "first"
