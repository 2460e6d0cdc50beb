"""Following a run: the states of the run, the open requests in each state, and the end of the run."""

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from dagwright.client import run_follower
from dagwright.client.run_follower import RunMoment, follow, request_key, wait_for_end
from dagwright.client.runs import Runs
from dagwright.history.run_subscriptions import RunUpdate
from dagwright.history.run_view import RunView
from tests.support.scripted_run import approval_requests


def _view(status: str) -> RunView:
    return RunView("run-1", "first", status, None, None, {}, None, None, is_closed=status == "completed")


class _FakeRequestPoller:
    """Fake `RequestPoller` that returns the same open requests at each moment."""

    def __init__(self, *_: Any) -> None: ...

    async def read(self, _: RunView) -> list[Any]:
        return approval_requests(["check", "other"])


def _runs(*statuses: str) -> Runs:
    async def subscribe(_: str, *, after: Any = None) -> AsyncIterator[RunUpdate]:
        for status in statuses:
            # The changed IDs show from which cursor the caller has subscribed.
            yield RunUpdate(_view(status), (status, str(after)))

    return cast("Runs", SimpleNamespace(feedback=None, subscriptions=SimpleNamespace(subscribe=subscribe)))


async def _moments(monkeypatch: Any, **options: Any) -> Sequence[RunMoment]:
    monkeypatch.setattr(run_follower, "RequestPoller", _FakeRequestPoller)
    return [moment async for moment in follow(_runs("running", "completed"), "run-1", **options)]


async def test_open_run_has_requests_and_closed_run_has_none(monkeypatch: Any) -> None:
    actual = await _moments(monkeypatch)
    assert [[request["request_id"] for request in moment.requests] for moment in actual] == [["check", "other"], []]
    assert [moment.changed_ids for moment in actual] == [("running", "None"), ("completed", "None")]
    assert [moment.has_ended_or_waits for moment in actual] == [True, True]


async def test_answered_requests_are_excluded(monkeypatch: Any) -> None:
    answered_keys = [request_key(request) for request in approval_requests(["check", "other"])]
    open_moment, _ = await _moments(monkeypatch, answered_requests=answered_keys[:1])
    assert [request["request_id"] for request in open_moment.requests] == ["other"]
    open_moment, _ = await _moments(monkeypatch, answered_requests=answered_keys)
    assert (open_moment.requests, open_moment.has_ended_or_waits) == ([], False)


async def test_wait_for_end_returns_the_view_of_the_closed_run() -> None:
    assert (await wait_for_end(_runs("running", "waiting", "completed"), "run-1")).status == "completed"
