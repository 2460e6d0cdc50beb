"""Kills of the worker and the server before and after an answer: no request, answer or effect is lost or repeated."""

from pathlib import Path
from typing import Any

import pytest

from dagwright.core.boundary import wire
from tests.support.chaos import (
    FaultPoints,
    WorkerProcess,
    effect_node,
    killed_at,
    restart_server,
    result_within,
    start_run,
)
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.people import wait_for_requests
from tests.support.runs import Handle, check_history
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_EFFECT = effect_node("effect")
_CHECK = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Continue?", "assignee": "ann"}}


async def _send_approval(server: LiveServer, run_id: str, request_id: str) -> None:
    handle = (await server.start()).get_workflow_handle(run_id)
    message = {"request_id": request_id, "answer": {"approved": True}, "by": "ann"}
    await handle.signal(wire.SIGNAL_FEEDBACK, message)


async def _assert_answered_once(handle: Handle, document: dict[str, Any], node_id: str) -> None:
    answers = document["nodes"][node_id]["lineage"]["answers"]
    assert [(answer["request_id"], answer["answer"], answer["by"]) for answer in answers] == [
        (node_id, "approved", "ann")
    ]
    assert (document["waiting_for"], document["notes"]) == ([], [])
    await check_history(await handle.fetch_history())


async def test_answer_after_kills_of_worker_and_server_completes_the_run(
    private_server: LiveServer, worker: WorkerProcess, folder: Path
) -> None:
    plan = {"nodes": [_CHECK, {**_EFFECT, "depends_on": ["check"]}]}
    handle = await start_run(await private_server.start(), plan, run_id="killed-while-asked")
    await wait_for_requests(await private_server.start(), handle.id, "check")
    await worker.kill()
    await restart_server(private_server)
    await wait_for_requests(await private_server.start(), handle.id, "check")
    await _send_approval(private_server, handle.id, "check")
    await restart_server(private_server)
    await worker.start()

    document = await result_within(handle, 240)
    assert document["status"] == "completed"
    assert effects_of(folder) == ["effect"]
    await _assert_answered_once(handle, document, "check")


async def test_approved_effect_happens_once_after_kills_of_worker_and_server(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    points.hold("effect")
    plan = {"nodes": [{**_EFFECT, "approval": "required"}]}
    handle = await start_run(await private_server.start(), plan, run_id="killed-after-the-answer")
    await wait_for_requests(await private_server.start(), handle.id, "effect")
    await _send_approval(private_server, handle.id, "effect")
    async with killed_at("effect", points, worker):
        await restart_server(private_server)

    document = await result_within(handle, 240)
    assert document["nodes"]["effect"]["status"] == "completed"
    assert effects_of(folder) == ["effect"]
    await _assert_answered_once(handle, document, "effect")


async def test_request_of_a_tool_survives_kills_before_and_after_its_answer(
    private_server: LiveServer, worker: WorkerProcess, folder: Path, points: FaultPoints
) -> None:
    # The tool makes its effect and asks. When it is called again with the answer, it only waits at its fault point.
    points.hold("effect")
    plan = {"nodes": [{**_EFFECT, "tool": "effect_then_ask"}]}
    handle = await start_run(await private_server.start(), plan, run_id="killed-while-a-tool-asks")
    await wait_for_requests(await private_server.start(), handle.id, "effect")
    await worker.kill()
    await restart_server(private_server)
    message = {"request_id": "effect", "answer": {"text": "Fred"}, "by": "ann"}
    await (await private_server.start()).get_workflow_handle(handle.id).signal(wire.SIGNAL_FEEDBACK, message)
    await worker.start()
    async with killed_at("effect", points, worker):
        pass

    assert (await result_within(handle, 240))["nodes"]["effect"]["result"] == "Fred"
    assert attempts_of(folder) == ["effect"]
    await check_history(await handle.fetch_history())
