"""Kills of the worker right after a run has continued as new."""

from pathlib import Path
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.server import local
from tests.support.chaos import random_graph, result_within, start_run, worker_process
from tests.support.chaos_tools import effects_of
from tests.support.eventually import eventually
from tests.support.runs import Handle, chain_of, check_history, end_of
from tests.support.server import live_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

_KILL_COUNT = 2


async def test_values_and_effects_survive_a_kill_after_each_continue_as_new(tmp_path: Path, folder: Path) -> None:
    plan, values = random_graph(80, seed=11)
    with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": "60"}):
        async with live_server(tmp_path / "server") as server, worker_process(server.address, folder) as worker:
            client = await server.start()
            # Only one node runs at a time, so nothing is in flight between two nodes.
            handle = await start_run(client, plan, run_id="changing", max_in_flight=1)
            run_id = str(handle.first_execution_run_id)
            for _ in range(_KILL_COUNT):
                run_id = await _wait_for_next_run_id(client, handle, run_id)
                await worker.restart()
            document = await result_within(handle, 240)
            output = (await handle.query("status"))["output"]
            chain = await chain_of(client, handle)
    assert (document["status"], output) == ("completed", values)
    assert effects_of(folder) == sorted(name for name in values if name.endswith("9"))
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["completed"]
    assert len(chain) > _KILL_COUNT
    for history in chain:
        await check_history(history)


async def _wait_for_next_run_id(client: Client, handle: Handle, run_id: str) -> str:
    """Wait until the run has continued as new after `run_id`; return the new run ID."""
    current_run_id = run_id

    async def has_changed() -> bool:
        nonlocal current_run_id
        current_run_id = (await client.get_workflow_handle(handle.id).describe()).run_id
        return current_run_id != run_id

    await eventually(has_changed)
    return current_run_id
