"""Calls that are repeated because the payload store does not take their results, on the real server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.values import Values
from dagwright.core.boundary.wire import ACTIVITY_AWAIT_STORE
from dagwright.protocol.outcomes import MOST_STORE_WAITS
from dagwright.settings import Settings
from dagwright.store import StoreUnavailable
from dagwright.store.folder import FolderStore
from tests.support.runs import Handle, Runs, document_of, serving_runs
from tests.support.tools import Bench

pytestmark = pytest.mark.server


@pytest.fixture
async def own_runs(
    client: Client, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs whose payload store takes everything but the table, with short pauses."""
    put = FolderStore.put

    async def refuse_table(store: FolderStore, content: bytes) -> str:
        if b'"row 7"' in content:
            raise StoreUnavailable("the store is full")
        return await put(store, content)

    monkeypatch.setattr(FolderStore, "put", refuse_table)
    monkeypatch.setattr("dagwright.protocol.outcomes._STORE_PAUSE_S", 0.01)
    monkeypatch.setattr(Values.__init__, "__kwdefaults__", {"patience_s": ()})
    async with serving_runs(client, bench.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
        await runs.check_ended()


async def _waits_of(handle: Handle) -> list[dict[str, Any]]:
    """Return the messages of the activities that waited for the store."""
    history = await handle.fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    return [
        json.loads(each.input.payloads[0].data) for each in scheduled if each.activity_type.name == ACTIVITY_AWAIT_STORE
    ]


async def test_call_whose_result_is_never_stored_fails_after_five_repeats(own_runs: Runs) -> None:
    # A result waits for the store until ten seconds before the end of its attempt: here not at all.
    table = {"id": "table", "tool": "table", "arguments": {"rows": 500}, "timeout": "9s", "retry": {"max_attempts": 1}}
    handle = await own_runs.start({"nodes": [table]})
    node = (await document_of(handle))["nodes"]["table"]
    assert (node["status"], node["error"]["code"], node["error"]["retryable"]) == ("failed", "store_unavailable", True)
    assert node["attempts"] == MOST_STORE_WAITS + 1
    waits = await _waits_of(handle)
    assert [wait["pause_s"] for wait in waits] == [0.0, 0.01, 0.02, 0.04, 0.08]
    assert all(wait["size_bytes"] > 10_000 for wait in waits)
    assert (await own_runs.restored(handle))["nodes"]["table"]["attempts"] == MOST_STORE_WAITS + 1
