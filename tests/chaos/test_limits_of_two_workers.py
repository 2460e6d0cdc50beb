"""Two worker processes share limits.

A killed worker does not return its lease. The calls that wait for the lease start when it has expired.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.features.call_limits.limit_state import LATE_S
from dagwright.features.call_limits.schedule import EARLY_SHARE
from dagwright.history.executions import NodeNotFound
from dagwright.history.run_explainer import RunExplainer
from dagwright.history.run_reader import RunReader
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.server import call_limits
from dagwright.server.call_limits import set_limit
from dagwright.settings import Settings
from dagwright.store import open_store
from dagwright.toolset.toolset import load_toolset
from tests.support.chaos import (
    SHORT_LEASE_WORKER,
    STARTED_LOG_TEXT,
    TOOLS_FILE,
    FaultPoints,
    result_within,
    worker_process,
)
from tests.support.chaos_tools import Span, spans_of
from tests.support.eventually import eventually
from tests.support.plan_building import plan_of
from tests.support.runs import Handle, check_history
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

_RATE, _CALL_COUNT = 50, 150
_SHORT_HEARTBEAT: dict[str, Any] = {"heartbeat": "1s"}
"""Call options with which the server soon detects a dead worker."""
_LONG_HEARTBEAT: dict[str, Any] = {"heartbeat": "1m"}
"""Call options with a heartbeat timeout that no call misses, even on a slow machine."""
_SHARED_MEMO, _PACED_MEMO = {wire.MEMO_OWNER: "ann"}, {wire.MEMO_TEMPLATE: "report"}
_UNSERVED_MEMO, _HELD_MEMO = {wire.MEMO_TEMPLATE: "unserved"}, {wire.MEMO_TEMPLATE: "held"}


def _plan_of_calls(group: str, count: int, *, pause_ms: float = 0.0, **fields: Any) -> dict[str, Any]:
    return plan_of(
        *[
            {
                "id": f"{group}{number}",
                "tool": "record_span",
                "arguments": {"name": f"{group}{number}", "group": group, "pause_ms": pause_ms},
                **fields,
            }
            for number in range(count)
        ]
    )


async def _start_run(client: Client, group: str, plan: dict[str, Any], memo: dict[str, str]) -> Handle:
    compiled = prepare_plan(check_plan(plan, load_toolset(Settings(), [str(TOOLS_FILE)]).declarations()), {})
    return await client.start_workflow(
        wire.WORKFLOW_RUN_PLAN,
        run_input_to_json(RunInput(compiled=compiled)),
        id=group,
        task_queue=wire.DEFAULT_TASK_QUEUE,
        memo=memo,
    )


async def _set_limit(client: Client, subject: Subject, limit: str, *, queue: str = wire.DEFAULT_TASK_QUEUE) -> None:
    await set_limit(client, subject, parse_limit(limit), task_queue=queue, by=None)


async def _wait_for_reason(client: Client, handle: Handle, call_count: int, reason: str, *, folder: Path) -> None:
    """Wait until the explanation of any call of the run contains `reason`; the calls have no fixed order."""
    store = open_store(Settings(state_dir=folder / "state").payload_store)
    explainer = RunExplainer(lambda run: RunReader(client, run), store)

    async def is_explained() -> bool:
        try:
            nodes = [await explainer.explain_node(handle.id, f"{handle.id}{number}") for number in range(call_count)]
        except NodeNotFound:
            # No worker has started the plan.
            return False
        return any(reason in node.to_json()["message"] for node in nodes)

    await eventually(is_explained)


def _max_concurrency(spans: Sequence[Span]) -> int:
    return max(sum(each.start <= span.start < (each.end or 0.0) for each in spans) for span in spans)


async def _status_and_attempts(handle: Handle) -> tuple[str, set[int]]:
    document = await result_within(handle, 240)
    await check_history(await handle.fetch_history())
    return document["status"], {node["attempts"] for node in document["nodes"].values()}


async def test_two_workers_share_limits_and_a_killed_worker_loses_its_lease(
    private_server: LiveServer, folder: Path, points: FaultPoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "RESPONSE_TIMEOUT_S", 1.0)
    client = await private_server.start()
    await _set_limit(client, Subject("owner", "ann"), "concurrency=2")
    await _set_limit(client, Subject("template", "report"), f"{_RATE}/s")
    await _set_limit(client, Subject("template", "held"), "concurrency=1")
    await _set_limit(client, Subject("template", "slow"), "2/min")
    # A limit is a workflow. No worker serves the task queue `unserved`, so the workflow of this limit does not respond.
    unserved = Subject("template", "unserved")
    await _set_limit(client, unserved, "100/s", queue="unserved")
    address = private_server.address
    async with (
        worker_process(address, folder, program=SHORT_LEASE_WORKER) as first_worker,
        worker_process(address, folder, program=SHORT_LEASE_WORKER) as second_worker,
    ):
        # The processes share a log.
        await eventually(lambda: second_worker.log.count(STARTED_LOG_TEXT) == 2)
        points.hold("held0")
        held_run = await _start_run(
            client, "held", _plan_of_calls("held", 1, retry={"max_attempts": 1}, **_SHORT_HEARTBEAT), _HELD_MEMO
        )
        await points.wait_for_point("held0")
        shared_run = await _start_run(
            client, "shared", _plan_of_calls("shared", 12, pause_ms=150, **_LONG_HEARTBEAT), _SHARED_MEMO
        )
        paced_run = await _start_run(
            client, "paced", _plan_of_calls("paced", _CALL_COUNT, **_LONG_HEARTBEAT), _PACED_MEMO
        )
        slow_run = await _start_run(client, "slow", _plan_of_calls("slow", 4), {wire.MEMO_TEMPLATE: "slow"})
        unserved_run = await _start_run(
            client, "unserved", _plan_of_calls("unserved", 3, **_LONG_HEARTBEAT), _UNSERVED_MEMO
        )
        await asyncio.gather(
            _wait_for_reason(client, slow_run, 4, "(rate limit 2/min on template slow, ", folder=folder),
            _wait_for_reason(client, unserved_run, 3, "the limit of template:unserved does not respond", folder=folder),
        )
        assert spans_of(folder, "unserved") == []
        await slow_run.cancel()
        await _set_limit(client, unserved, "100/s")
        # Waiting for a limit is not an attempt.
        outcomes = await asyncio.gather(*map(_status_and_attempts, (shared_run, paced_run, unserved_run)))
        assert outcomes == [("completed", {1})] * 3
        _check_shared_limits(spans_of(folder, "shared"), spans_of(folder, "paced"))

        # The held call fails when its worker is killed. Its lease is not returned, so the waiting calls start when the
        # lease expires.
        waiting_run = await _start_run(client, "waiting", _plan_of_calls("waiting", 4, **_SHORT_HEARTBEAT), _HELD_MEMO)
        await _wait_for_reason(client, waiting_run, 4, "concurrency limit 1 on template held", folder=folder)
        [held_span] = spans_of(folder, "held")
        await next(worker for worker in (first_worker, second_worker) if worker.pid == held_span.pid).kill()
        assert (await result_within(held_run, 240))["status"] == "failed"
        # A call that the killed worker had received, and that was waiting for the limit, gets a second attempt.
        assert (await result_within(waiting_run, 240))["status"] == "completed"
        await check_history(await waiting_run.fetch_history())
        assert (len(spans_of(folder, "waiting")), _max_concurrency(spans_of(folder, "waiting"))) == (4, 1)


def _check_shared_limits(shared_spans: Sequence[Span], paced_spans: Sequence[Span]) -> None:
    """Check that both workers served the calls of both runs, within the limits of the runs."""
    assert [len({span.pid for span in spans}) for spans in (shared_spans, paced_spans)] == [2, 2]
    assert (len(shared_spans), _max_concurrency(shared_spans)) == (12, 2)
    starts = [span.start for span in paced_spans]
    peak_rate = max(sum(start <= each < start + 1.0 for each in starts) for start in starts)
    # Calls may start a tenth of a second early or `LATE_S` late, so more calls can start within one second.
    additional_start_count = _RATE * (EARLY_SHARE + LATE_S)
    assert (len(paced_spans), peak_rate <= _RATE + additional_start_count + 1) == (_CALL_COUNT, True), peak_rate
    assert starts[-1] - starts[0] >= _CALL_COUNT / _RATE - 1.0
