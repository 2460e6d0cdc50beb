"""A worker with different workflow code receives open runs: they wait, report why, and continue after the rollback."""

from pathlib import Path
from typing import Any

import pytest

from dagwright.history.run_reader import RunReader
from tests.support.chaos import RETRY, WRONG_WORKER, FaultPoints, result_within, start_run, worker_process
from tests.support.chaos_tools import effects_of
from tests.support.people import tool_node
from tests.support.run_views import wait_for_note
from tests.support.runs import assert_replays
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_NODE_IDS = ("urgent", "usual", "late", "last")
_RUN_IDS = ("one", "two")


def _plan(run_id: str) -> dict[str, Any]:
    def effect_node(name: str, priority: int, *dependencies: str) -> dict[str, Any]:
        return tool_node(
            name,
            "effect_then_hold",
            *dependencies,
            arguments={"name": f"{run_id}-{name}"},
            priority=priority,
            heartbeat="1s",
            retry=RETRY,
        )

    nodes = [
        effect_node("urgent", 1),
        effect_node("usual", 3),
        effect_node("late", 5),
        effect_node("last", 3, "urgent", "late"),
    ]
    return {"nodes": nodes, "output": {name: f"{{{{{name}.result}}}}" for name in _NODE_IDS}}


async def test_runs_wait_during_a_wrong_deploy_and_complete_after_its_rollback(
    private_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    client = await private_server.start()

    for run_id in _RUN_IDS:
        points.hold(f"{run_id}-usual")
    async with worker_process(private_server.address, folder):
        handles = [await start_run(client, _plan(run_id), run_id=run_id) for run_id in _RUN_IDS]
        for run_id in _RUN_IDS:
            await points.wait_for_point(f"{run_id}-usual")

    async with worker_process(private_server.address, folder, program=WRONG_WORKER):
        for run_id in _RUN_IDS:
            points.release(f"{run_id}-usual")
        views = [await wait_for_note(client, run_id, "workflow_task_failing") for run_id in _RUN_IDS]

    for view in views:
        (note,) = view.document()["notes"]
        assert (view.is_closed, view.status, note["code"]) == (False, "running", "workflow_task_failing")
        assert "non deterministic error: " in note["message"]
        assert note["message"].startswith(
            "the run cannot continue: the worker's code differs from the code that started this run; stop that worker "
            "or roll it back, and the run continues from its current state; nothing is lost"
        )

    async with worker_process(private_server.address, folder):
        documents = [await result_within(handle, 240) for handle in handles]
    for run_id, document, handle in zip(_RUN_IDS, documents, handles, strict=True):
        assert document["status"] == "completed"
        assert document["output"] == {name: f"{run_id}-{name}" for name in _NODE_IDS}
        # The number of attempts is not checked: the first worker may have stopped during the call of `last`.
        last_node = document["nodes"]["last"]
        assert (last_node["status"], last_node["result"]) == ("completed", f"{run_id}-last")
        # The wrong worker added only failed workflow tasks to the history.
        await assert_replays(await handle.fetch_history())
        assert (await RunReader(client, run_id).read()).notes == []
    assert effects_of(folder) == sorted(f"{run_id}-{name}" for run_id in _RUN_IDS for name in _NODE_IDS)
