"""`Runs` without a server: how many histories it reads at once, and which runs a filter takes."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecution

from dagwright.client import HISTORIES_AT_ONCE, RunFilter, Runs, RunSummary, owner_in
from dagwright.contracts import wire
from dagwright.server import Connection, Server
from dagwright.store import open_store


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

    async def executions(*_: Any, **__: Any) -> AsyncIterator[Any]:
        for number in range(100):
            yield SimpleNamespace(id=f"run-{number}", parent_id=None)

    monkeypatch.setattr(Runs, "_summary", summary)
    client = cast(Client, SimpleNamespace(list_workflows=executions))
    runs = Runs(
        Connection(client, Server("nowhere", "default"), frozenset()), task_queue="q", store=open_store("unused")
    )

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

    async def executions(*_: Any, **__: Any) -> AsyncIterator[Any]:
        for number in range(40):
            memo = {wire.MEMO_OWNER: "ann" if number % 2 else "bob"}

            async def told(memo: dict[str, Any] = memo) -> dict[str, Any]:
                return memo

            yield SimpleNamespace(id=f"run-{number}", parent_id=None, memo=told)

    monkeypatch.setattr(Runs, "_summary", summary)
    client = cast(Client, SimpleNamespace(list_workflows=executions))
    runs = Runs(
        Connection(client, Server("nowhere", "default"), frozenset()), task_queue="q", store=open_store("unused")
    )
    some = await runs.list_runs(limit=3, wanted=RunFilter(owner="ann", status="completed"))
    all_there_are = await runs.list_runs(limit=50, wanted=RunFilter(owner="ann", status="completed"))
    assert [run.workflow_id for run in some] == ["run-3", "run-9", "run-15"]
    assert [run.workflow_id for run in all_there_are] == [f"run-{number}" for number in range(3, 40, 6)]
    assert await runs.open_runs_of("ann") == 20
