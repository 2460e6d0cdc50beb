"""The run that a session returns."""

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


def _context(session: SessionRecord, **sessions_of: str | None) -> Any:

    async def find(_: str) -> SessionView:
        return SessionView(session)

    async def session_of(run: str) -> str | None:
        if run not in sessions_of:
            raise RunNotFound(f"there is no run {run!r}")
        return sessions_of[run]

    runs, sessions = SimpleNamespace(session_of=session_of), SimpleNamespace(find=find)
    return SimpleNamespace(caller=ANYONE, sessions=sessions, runs=runs)


def _session(*ended_turns: str, turn: str) -> SessionRecord:
    session = SessionRecord("q")
    for name in ended_turns:
        session.start_turn(TurnStart(name, {}), at=1.0)
        session.end_turn(name, TurnEnd("completed"), at=2.0)
    session.start_turn(TurnStart(turn, {}), at=3.0)
    return session


async def test_session_returns_the_run_of_its_last_turn_to_its_owner_only() -> None:
    for session in ("p", None):
        assert await run_of_session(_context(_session("one", turn="shared"), shared=session), "q") == "one"
        with pytest.raises(ApiError, match="has no turns"):
            await run_of_session(_context(_session(turn="shared"), shared=session), "q")
    assert await run_of_session(_context(_session(turn="one"), one="q"), "q") == "one"
    # A turn has the ID of its run before the run has started.
    assert await run_of_session(_context(_session(turn="one")), "q") == "one"
