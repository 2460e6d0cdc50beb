"""The order of calls does not depend on the hash seed of the worker, and histories replay under another seed."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from tests.support.chaos import ROOT, result_within, start_run, worker_process
from tests.support.chaos_tools import make_database
from tests.support.runs import scheduled_calls
from tests.support.server import live_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

SEEDS = ("0", "4242")

# `os._exit` skips the shutdown of the interpreter, during which threads of the SDK have crashed it.
_REPLAY = """
import asyncio, os, sys
from pathlib import Path
from temporalio.client import WorkflowHistory
from tests.support.runs import assert_replays

for path in sys.argv[1:]:
    history = WorkflowHistory.from_json(Path(path).stem, Path(path).read_text())
    asyncio.run(assert_replays(history))
os._exit(0)
"""


def _first_calls(history: WorkflowHistory) -> list[str]:
    """Return the activities of the first workflow task; their order depends on the plan only."""
    calls = scheduled_calls(history)
    first_task_event_id = calls[0].workflow_task_completed_event_id
    return [call.activity_id for call in calls if call.workflow_task_completed_event_id == first_task_event_id]


async def test_call_order_and_replay_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    # The order of the names is not alphabetical.
    roots = [f"{letter}{number}" for letter in "qazwsx" for number in range(5)]
    nodes = [
        {"id": name, "tool": "echo", "arguments": {"x": name, "y": 1}, "priority": 1 + len(name) % 3} for name in roots
    ]
    references = {name: f"{{{{{name}.result.x}}}}" for name in roots}
    joins = [{"id": f"join{number}", "tool": "echo", "arguments": references, "join": "any"} for number in range(3)]
    # Workers of one task queue share a payload store.
    environment = {"DAGWRIGHT_STATE_DIR": str(tmp_path / "state")}
    history_paths = []
    call_orders = []
    async with live_server(tmp_path / "server") as server:
        client = await server.start()
        for seed in SEEDS:
            folder = tmp_path / f"seed{seed}"
            folder.mkdir()
            make_database(folder)
            async with worker_process(server.address, folder, environment=environment | {"PYTHONHASHSEED": seed}):
                handle = await start_run(client, {"nodes": [*nodes, *joins]}, run_id=f"seed-{seed}")
                await result_within(handle, 240)
            history = await handle.fetch_history()
            call_orders.append(_first_calls(history))
            history_paths.append(tmp_path / f"seed-{seed}.json")
            history_paths[-1].write_text(history.to_json())
    assert call_orders == [roots] * len(SEEDS)
    replay_process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _REPLAY, *map(str, history_paths), cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "99"}
    )
    assert await replay_process.wait() == 0
