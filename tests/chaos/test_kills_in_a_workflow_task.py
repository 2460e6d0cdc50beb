"""Kills of the worker during a workflow task: the run continues after the workflow task timeout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.history.v1 import HistoryEvent

from dagwright.client.runs import namespace_runs
from dagwright.client.starts import StartRequest
from dagwright.core.boundary.limits import WORKFLOW_TASK_S
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import local, open_connection
from dagwright.toolset.toolset import load_toolset
from tests.support.chaos import DYING_WORKER, TOOLS_FILE, FaultPoints, effect_node, result_within, worker_process
from tests.support.chaos_tools import effects_of
from tests.support.dying_worker import DEATH_FILE
from tests.support.runs import assert_replays, histories_of
from tests.support.server import live_server

pytestmark = [pytest.mark.server, pytest.mark.slow]

_CHAIN_LENGTH = 14
_FATAL_NODES = [f"{chain}{step}" for chain in "xy" for step in (2, 6, 11)]
_MAX_TIMER_DELAY_S = 3.0
"""Maximum delay of a server timer on a busy machine. `WORKFLOW_TASK_S` and this delay together are shorter than
Temporal's default timeout of a workflow task, 10 s, so the test fails if a run has the default timeout."""


async def test_run_and_its_sub_plan_continue_within_seconds_after_a_worker_dies(
    tmp_path: Path, folder: Path, points: FaultPoints
) -> None:
    child = {"id": "child", "plan": {"nodes": _chain("y")}, "depends_on": [f"x{_CHAIN_LENGTH - 1}"]}
    for name in _FATAL_NODES:
        points.hold(name)
    # The run and the run of its sub-plan also continue in new executions, which inherit the workflow task timeout.
    with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": "40"}):
        async with (
            live_server(tmp_path / "server") as server,
            open_connection(server.settings) as connection,
            worker_process(server.address, folder, program=DYING_WORKER) as worker,
        ):
            client = connection.client
            tools = load_toolset(server.settings, [str(TOOLS_FILE)]).declarations()
            compiled = prepare_plan(check_plan({"nodes": [*_chain("x"), child]}, tools), {})
            started_run = await namespace_runs(connection, server.settings).start(StartRequest(compiled))
            for name in _FATAL_NODES:
                await points.wait_for_point(name)
                (folder / DEATH_FILE).touch()
                points.release(name)
                await worker.wait_for_death()
                await worker.start()
            handle = client.get_workflow_handle(started_run.run_id, run_id=started_run.execution_id)
            document = await result_within(client.get_workflow_handle(handle.id), 240)
            histories = await histories_of(client, handle)

    assert document["status"] == "completed"
    assert effects_of(folder) == sorted(f"{chain}{step}" for chain in "xy" for step in range(_CHAIN_LENGTH))
    start_events = [history.events[0].workflow_execution_started_event_attributes for history in histories]
    assert {
        (event.HasField("parent_workflow_execution"), bool(event.continued_execution_run_id)) for event in start_events
    } == {(is_child, is_continued) for is_child in (False, True) for is_continued in (False, True)}
    task_timeouts = [event.workflow_task_timeout.ToTimedelta().total_seconds() for event in start_events]
    assert task_timeouts == [WORKFLOW_TASK_S] * len(histories)
    waits_s = [wait_s for history in histories for wait_s in _timed_out_waits_s(history.events)]
    assert len(waits_s) >= len(_FATAL_NODES)
    assert max(waits_s) < WORKFLOW_TASK_S + _MAX_TIMER_DELAY_S
    for history in histories:
        await assert_replays(history)


def _chain(name: str) -> list[dict[str, Any]]:
    return [effect_node(f"{name}{step}", *([f"{name}{step - 1}"] if step else [])) for step in range(_CHAIN_LENGTH)]


def _timed_out_waits_s(events: Sequence[HistoryEvent]) -> list[float]:
    """Return how many seconds the server waited for each workflow task that a worker never completed."""
    waits_s = []
    for event in events:
        timeout = event.workflow_task_timed_out_event_attributes
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT and (
            timeout.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
        ):
            started_event = next(event for event in events if event.event_id == timeout.started_event_id)
            wait = event.event_time.ToDatetime() - started_event.event_time.ToDatetime()
            waits_s.append(wait.total_seconds())
    return waits_s
