"""`Runs` without a server: how many histories it reads at once."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecution

from dagwright.client import HISTORIES_AT_ONCE, Runs, RunSummary
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
