"""`Runs` without a server: how many histories it reads at once, and which runs a filter takes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecution

from dagwright.client import HISTORIES_AT_ONCE, Runs
from dagwright.contracts import wire
from dagwright.run_lists import RunFilter, RunPlace, RunSummary, owner_in
from dagwright.server import Connection, Server
from dagwright.store import open_store


class Listing:
    """What the server tells page by page, as the iterator of Temporal's client."""

    def __init__(self, there: Sequence[Any], page: int, token: bytes | None) -> None:
        self._there, self._page, self.next_page_token = there, page, token
        self.current_page: Sequence[Any] | None = None

    async def fetch_next_page(self) -> None:
        begin = int(self.next_page_token or b"0")
        self.current_page = self._there[begin : begin + self._page]
        end = begin + self._page
        self.next_page_token = b"%d" % end if end < len(self._there) else None

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self._there:
            yield each


def runs_of(there: Sequence[Any]) -> Runs:
    """Returns the runs of a server that lists these executions."""

    def listed(_: str, *, page_size: int = 1_000, next_page_token: bytes | None = None) -> Listing:
        return Listing(there, page_size, next_page_token)

    client = cast(Client, SimpleNamespace(list_workflows=listed))
    connection = Connection(client, Server("nowhere", "default"), frozenset())
    return Runs(connection, task_queue="q", store=open_store("unused"))


@pytest.mark.parametrize("wanted", [RunFilter(), RunFilter(text="run"), RunFilter(status="completed")])
@pytest.mark.parametrize("limit", [1, 3, 7, 10, 50])
async def test_pages_tell_each_run_once(monkeypatch: pytest.MonkeyPatch, wanted: RunFilter, limit: int) -> None:
    async def summary(_: Runs, run: WorkflowExecution) -> RunSummary:
        status = "completed" if int(run.id.removeprefix("run-")) % 3 else "failed"
        return RunSummary(run.id, status, None, None, None, 0, 0)

    async def nothing() -> dict[str, Any]:
        return {}

    monkeypatch.setattr(Runs, "_summary", summary)
    monkeypatch.setattr("dagwright.client.LISTED_AT_ONCE", 8)
    runs = runs_of([SimpleNamespace(id=f"run-{number}", parent_id=None, memo=nothing) for number in range(21)])
    found: list[str] = []
    place: RunPlace | None = None
    while True:
        page, place = await runs.page_of_runs(limit=limit, wanted=wanted, after=place)
        found += [run.workflow_id for run in page]
        assert len(page) <= limit
        if place is None:
            break
        place = RunPlace.parse(str(place))
    assert found == [f"run-{number}" for number in range(21) if wanted.status is None or number % 3]


@pytest.mark.parametrize("text", ["", "1", "1.2", "0.0.", "1.-1.", "1001.0.", "1.0.ä", "a.b.c", "1.0.AA.", "1.0.A"])
def test_text_that_is_no_place_is_refused(text: str) -> None:
    for each in (text, f"{text}.{sha256(text.encode()).hexdigest()[:12]}"):
        with pytest.raises(ValueError, match=r".*"):
            RunPlace.parse(each)


async def test_list_reads_a_few_histories_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[str] = []
    most = 0

    async def summary(self: Runs, run: WorkflowExecution) -> RunSummary:
        nonlocal most
        reading.append(run.id)
        most = max(most, len(reading))
        await asyncio.sleep(0)
        reading.remove(run.id)
        return RunSummary(run.id, "running", None, None, None, 0, 0)

    there = [SimpleNamespace(id=f"run-{number}", parent_id=None) for number in range(100)]
    monkeypatch.setattr(Runs, "_summary", summary)
    runs = runs_of(there)

    found = await runs.list_runs(limit=50)

    assert [run.workflow_id for run in found] == [f"run-{number}" for number in range(50)]
    assert most == HISTORIES_AT_ONCE


ANNS = {wire.MEMO_OWNER: "ann", wire.MEMO_SESSION: "ann:main", wire.MEMO_TITLE: "Publish the Report"}


@pytest.mark.parametrize(
    ("wanted", "is_taken"),
    [
        (RunFilter(), True),
        (RunFilter(owner="ann"), True),
        (RunFilter(owner="bob"), False),
        (RunFilter(session="ann:main"), True),
        (RunFilter(session="main"), False),
        (RunFilter(text="report"), True),
        (RunFilter(text="RUN-1"), True),
        (RunFilter(text="ann"), False),
        (RunFilter(owner="ann", text="nothing"), False),
    ],
)
def test_filter_takes_runs_by_what_their_memo_tells(wanted: RunFilter, *, is_taken: bool) -> None:
    assert wanted.takes("run-1", ANNS) is is_taken


def test_run_without_owner_is_nobodys() -> None:
    assert (owner_in({}), owner_in({wire.MEMO_OWNER: 1}), owner_in(ANNS)) == (None, None, "ann")
    assert not RunFilter(owner="ann").takes("run-1", {})


async def test_list_goes_on_until_there_are_as_many_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def summary(_: Runs, run: WorkflowExecution) -> RunSummary:
        number = int(run.id.removeprefix("run-"))
        status = "completed" if number % 3 == 0 else "failed"
        return RunSummary(run.id, status, None, None, None, 0, 0)

    def execution(number: int) -> Any:
        async def told() -> dict[str, Any]:
            return {wire.MEMO_OWNER: "ann" if number % 2 else "bob"}

        return SimpleNamespace(id=f"run-{number}", parent_id=None, memo=told)

    monkeypatch.setattr(Runs, "_summary", summary)
    runs = runs_of([execution(number) for number in range(40)])
    some = await runs.list_runs(limit=3, wanted=RunFilter(owner="ann", status="completed"))
    all_there_are = await runs.list_runs(limit=50, wanted=RunFilter(owner="ann", status="completed"))
    assert [run.workflow_id for run in some] == ["run-3", "run-9", "run-15"]
    assert [run.workflow_id for run in all_there_are] == [f"run-{number}" for number in range(3, 40, 6)]
    assert await runs.open_runs_of("ann") == {f"run-{number}" for number in range(1, 40, 2)}
