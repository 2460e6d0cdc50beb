"""Kills of the worker during a workflow task: the run continues after the timeout of the workflow task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.history.v1 import HistoryEvent

from dagwright.client.runs import open_runs
from dagwright.client.starts import StartRequest
from dagwright.core.boundary.limits import WORKFLOW_TASK_S
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import local, open_connection
from dagwright.toolset.toolset import load_toolset
from tests.support.chaos import DYING_WORKER, TOOLS, FaultPoints, effect, result_within, worker_process
from tests.support.chaos_tools import effects_of, make_database
from tests.support.dying_worker import DEATH
from tests.support.runs import assert_replays, histories_of
from tests.support.server import live_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

_LENGTH = 14
_DEATHS = [f"{chain}{step}" for chain in "xy" for step in (2, 6, 11)]
_LATE_S = 3.0
"""How late the server's own timer may be on a busy machine; the server's usual 10 s are later still."""


async def test_run_and_its_sub_plan_continue_within_seconds_after_a_worker_dies(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    make_database(folder)
    points = FaultPoints(folder)
    below = {"id": "below", "plan": {"nodes": _chain("y")}, "depends_on": [f"x{_LENGTH - 1}"]}
    for name in _DEATHS:
        points.hold(name)
    # Both runs also continue in new executions, which inherit the workflow task timeout.
    with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": "40"}):
        async with (
            live_server(tmp_path / "server") as server,
            open_connection(server.settings) as connection,
            worker_process(server.address, folder, program=DYING_WORKER) as worker,
        ):
            client = connection.client
            tools = load_toolset(server.settings, [str(TOOLS)]).declarations()
            compiled = prepare_plan(check_plan({"nodes": [*_chain("x"), below]}, tools), {})
            started = await open_runs(connection, server.settings).start(StartRequest(compiled))
            for name in _DEATHS:
                await points.wait_for_point(name)
                (folder / DEATH).touch()
                points.release(name)
                await worker.has_died()
                await worker.start()
            handle = client.get_workflow_handle(started.workflow_id, run_id=started.run_id)
            document = await result_within(client.get_workflow_handle(handle.id), 240)
            histories = await histories_of(client, handle)

    assert document["status"] == "completed"
    assert effects_of(folder) == sorted(f"{chain}{step}" for chain in "xy" for step in range(_LENGTH))
    beginnings = [history.events[0].workflow_execution_started_event_attributes for history in histories]
    assert {
        (each.HasField("parent_workflow_execution"), bool(each.continued_execution_run_id)) for each in beginnings
    } == {(is_below, is_later) for is_below in (False, True) for is_later in (False, True)}
    lengths = [each.workflow_task_timeout.ToTimedelta().total_seconds() for each in beginnings]
    assert lengths == [WORKFLOW_TASK_S] * len(histories)
    missed = [seconds for history in histories for seconds in _missed_s(history.events)]
    assert len(missed) >= len(_DEATHS)
    assert max(missed) < WORKFLOW_TASK_S + _LATE_S
    for history in histories:
        await assert_replays(history)


def _chain(name: str) -> list[dict[str, Any]]:
    return [effect(f"{name}{step}", *([f"{name}{step - 1}"] if step else [])) for step in range(_LENGTH)]


def _missed_s(events: Sequence[HistoryEvent]) -> list[float]:
    """Return how long the server waited for each workflow task that a worker never completed, in seconds."""
    actual = []
    for event in events:
        result = event.workflow_task_timed_out_event_attributes
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT and (
            result.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
        ):
            started = next(event for event in events if event.event_id == result.started_event_id)
            waited = event.event_time.ToDatetime() - started.event_time.ToDatetime()
            actual.append(waited.total_seconds())
    return actual
