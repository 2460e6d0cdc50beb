"""Which run of a session is meant."""

from types import SimpleNamespace
from typing import Any

import pytest

from dagwright.client.sessions import SessionView
from dagwright.history.run_reader import RunNotFound
from dagwright.interfaces.http.callers import ANYONE
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.looking import run_of_session
from dagwright.protocol.sessions import Session
from dagwright.protocol.turns import TurnEnd, TurnStart


def _desk(session: Session, **sessions_of: str | None) -> Any:
    """Returns a desk that knows one session, and of which sessions the runs are."""

    async def look(_: str) -> SessionView:
        return SessionView(session)

    async def session_of(run: str) -> str | None:
        if run not in sessions_of:
            raise RunNotFound(f"there is no run {run!r}")
        return sessions_of[run]

    runs, sessions = SimpleNamespace(session_of=session_of), SimpleNamespace(look=look)
    return SimpleNamespace(caller=ANYONE, sessions=sessions, runs=runs)


@pytest.mark.parametrize("of", ["p", None])
async def test_run_of_somebody_else_is_not_that_of_a_session_which_has_begun_a_turn_with_its_id(of: str | None) -> None:
    session = Session("q")
    session.begin_turn(TurnStart("one", {}), at=1.0)
    session.end_turn("one", TurnEnd("completed"), at=2.0)
    session.begin_turn(TurnStart("shared", {}), at=3.0)
    assert await run_of_session(_desk(session, shared=of), "q") == "one"
    alone = Session("q")
    alone.begin_turn(TurnStart("shared", {}), at=1.0)
    with pytest.raises(ApiError, match="has had no turn"):
        await run_of_session(_desk(alone, shared=of), "q")


async def test_run_of_a_turn_is_its_own_also_before_it_has_started() -> None:
    session = Session("q")
    session.begin_turn(TurnStart("one", {}), at=1.0)
    assert await run_of_session(_desk(session, one="q"), "q") == "one"
    assert await run_of_session(_desk(session), "q") == "one"
