"""The answer of a run that is asked for by its id."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from dagwright.history.run_reader import RunNotFound
from dagwright.interfaces.http import Desk, completions
from dagwright.interfaces.http.bodies import Shown
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.calls import Call


class Runs:
    async def session_of(self, run: str) -> str:
        if run != "run-1":
            raise RunNotFound(run)
        return "ann:main"


async def asked(monkeypatch: pytest.MonkeyPatch, run: str) -> tuple[Call, bool]:
    """Returns what a key without any scope follows, and whether it is told the usage."""
    followed: list[Any] = []

    async def streamed(_: Desk, call: Call, *, with_usage: bool) -> Response:
        followed.append((call, with_usage))
        return Response()

    async def own(run: str) -> str:
        return run

    monkeypatch.setattr(completions, "_streamed", streamed)
    caller = Caller("ann", frozenset())
    desk = SimpleNamespace(own=own, runs=Runs(), caller=caller, hold_stream=lambda: None, starting=[])
    request = Request({"type": "http", "headers": []})
    await completions.answer(run, request, cast(Desk, desk), shown=Shown.PROGRESS)
    return cast("tuple[Call, bool]", followed[0])


async def test_whoever_may_look_at_a_run_follows_its_answer_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call, with_usage = await asked(monkeypatch, "run-1")
    assert (call.run, call.session, call.called, call.wishes.shown) == ("run-1", "ann:main", "main", Shown.PROGRESS)
    assert (call.job, [*call.said.answers], call.wishes.cancels, with_usage) == (None, [], False, True)


async def test_answer_of_no_run_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunNotFound):
        await asked(monkeypatch, "run-2")
