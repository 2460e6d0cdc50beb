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
            execution_id = str(handle.first_execution_run_id)
            for _ in range(_KILL_COUNT):
                execution_id = await _wait_for_next_execution(client, handle, execution_id)
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


async def _wait_for_next_execution(client: Client, handle: Handle, execution_id: str) -> str:
    """Wait until the execution has continued as new; return the ID of the next execution."""
    current_execution_id = execution_id

    async def has_changed() -> bool:
        nonlocal current_execution_id
        current_execution_id = (await client.get_workflow_handle(handle.id).describe()).run_id
        return current_execution_id != execution_id

    await eventually(has_changed)
    return current_execution_id
