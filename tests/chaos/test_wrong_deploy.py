"""A worker with different workflow code receives open runs: they wait, report why, and continue after the rollback."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from tests.support.chaos import RETRY, WRONG_WORKER, FaultPoints, result_within, start_run, worker_process
from tests.support.chaos_tools import effects_of
from tests.support.eventually import eventually
from tests.support.runs import assert_replays
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_NAMES = ("urgent", "usual", "late", "last")
_RUNS = ("one", "two")


def _plan(run: str) -> dict[str, Any]:
    def effect(name: str, priority: int, *after: str) -> dict[str, Any]:
        return {
            "id": name,
            "tool": "effect_then_hold",
            "arguments": {"name": f"{run}-{name}"},
            "priority": priority,
            "depends_on": list(after),
            "heartbeat": "1s",
            "retry": RETRY,
        }

    nodes = [effect("urgent", 1), effect("usual", 3), effect("late", 5), effect("last", 3, "urgent", "late")]
    return {"nodes": nodes, "output": {name: f"{{{{{name}.result}}}}" for name in _NAMES}}


async def _failing_view(client: Client, run: str) -> RunView:
    views: list[RunView] = []

    async def is_failing() -> bool:
        views.append(await RunReader(client, run).read())
        return any(note["code"] == "workflow_task_failing" for note in views[-1].notes)

    await eventually(is_failing)
    return views[-1]


async def test_runs_wait_during_a_wrong_deploy_and_complete_after_its_rollback(
    own_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    client = await own_server.start()

    for run in _RUNS:
        points.hold(f"{run}-usual")
    async with worker_process(own_server.address, folder):
        handles = [await start_run(client, _plan(run), workflow_id=run) for run in _RUNS]
        for run in _RUNS:
            await points.wait_for_point(f"{run}-usual")

    async with worker_process(own_server.address, folder, program=WRONG_WORKER):
        for run in _RUNS:
            points.release(f"{run}-usual")
        views = [await _failing_view(client, run) for run in _RUNS]

    for view in views:
        (note,) = view.document()["notes"]
        assert (view.is_closed, view.status, note["code"]) == (False, "running", "workflow_task_failing")
        assert "non deterministic error: " in note["message"]
        assert note["message"].startswith(
            "the run cannot continue: the worker's code differs from the code that started this run; stop that worker "
            "or roll it back, and the run continues from its current state; nothing is lost"
        )

    async with worker_process(own_server.address, folder):
        documents = [await result_within(handle, 240) for handle in handles]
    for run, document, handle in zip(_RUNS, documents, handles, strict=True):
        assert document["status"] == "completed"
        assert document["output"] == {name: f"{run}-{name}" for name in _NAMES}
        # The number of attempts is not checked: the first worker may have stopped during the call of `last`.
        last_node = document["nodes"]["last"]
        assert (last_node["status"], last_node["result"]) == ("completed", f"{run}-last")
        # The wrong worker left nothing in the history but failed workflow tasks.
        await assert_replays(await handle.fetch_history())
        assert (await RunReader(client, run).read()).notes == []
    assert effects_of(folder) == sorted(f"{run}-{name}" for run in _RUNS for name in _NAMES)
