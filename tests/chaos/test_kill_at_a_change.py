"""Kills of the worker while a run continues in a new execution."""

from pathlib import Path
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.server import local
from tests.support.chaos import reactive_graph, result_within, start_run, worker_process
from tests.support.chaos_tools import effects_of, make_database
from tests.support.eventually import eventually
from tests.support.runs import Handle, assert_clean, assert_replays, chain_of, end_of
from tests.support.server import live_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

_CHANGES = 2


async def test_worker_killed_whenever_the_run_changes_executions(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    make_database(folder)
    plan, values = reactive_graph(80, seed=11)
    with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": "60"}):
        async with live_server(tmp_path / "server") as server, worker_process(server.address, folder) as worker:
            client = await server.start()
            # One at a time, so that nothing is in flight between two steps.
            handle = await start_run(client, plan, workflow_id="changing", max_in_flight=1)
            known = str(handle.first_execution_run_id)
            for _ in range(_CHANGES):
                known = await _next_execution(client, handle, known)
                await worker.kill()
                await worker.start()
            document = await result_within(handle, 240)
            output = (await handle.query("status"))["output"]
            chain = await chain_of(client, handle)
    assert (document["status"], output) == ("completed", values)
    assert effects_of(folder) == sorted(name for name in values if name.endswith("9"))
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["completed"]
    assert len(chain) > _CHANGES
    for history in chain:
        assert_clean(history)
        await assert_replays(history)


async def _next_execution(client: Client, handle: Handle, known: str) -> str:
    """Wait until the run is in another execution, and return its id."""
    found = known

    async def has_changed() -> bool:
        nonlocal found
        found = (await client.get_workflow_handle(handle.id).describe()).run_id
        return found != known

    await eventually(has_changed)
    return found
