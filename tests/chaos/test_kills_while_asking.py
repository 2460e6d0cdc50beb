"""Kills of the worker and of the server around an answer: nothing is asked twice, lost or done twice."""

from pathlib import Path
from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.history.run_reader import RunReader
from tests.chaos.building import assert_whole
from tests.support.chaos import FaultPoints, WorkerProcess, effect, restart, result_within, start_run
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.eventually import eventually
from tests.support.runs import Handle
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

_EFFECT = effect("effect")
_CHECK = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Go on?", "assignee": "ann"}}


async def _asks(server: LiveServer, workflow_id: str) -> list[str]:
    """Wait until a run has an open request, and return the request ids; this needs no worker."""
    client = await server.start()
    actual: list[str] = []

    async def does() -> bool:
        waiting = (await RunReader(client, workflow_id).read()).document()["waiting_for"]
        actual[:] = [request["request_id"] for request in waiting]
        return bool(actual)

    await eventually(does)
    return actual


async def _signal(server: LiveServer, workflow_id: str, request: str) -> None:
    handle = (await server.start()).get_workflow_handle(workflow_id)
    message = {"request_id": request, "answer": {"approved": True}, "by": "ann"}
    await handle.signal(wire.SIGNAL_FEEDBACK, message)


async def _assert_answered_once(handle: Handle, document: dict[str, Any], node: str) -> None:
    answers = document["nodes"][node]["lineage"]["answers"]
    assert [(answer["request_id"], answer["answer"], answer["by"]) for answer in answers] == [(node, "approved", "ann")]
    assert (document["waiting_for"], document["notes"]) == ([], [])
    await assert_whole(handle)


async def test_both_killed_before_an_answer(own_server: LiveServer, worker: WorkerProcess, folder: Path) -> None:
    plan = {"nodes": [_CHECK, {**_EFFECT, "depends_on": ["check"]}]}
    handle = await start_run(await own_server.start(), plan, workflow_id="killed-while-asked")
    assert await _asks(own_server, handle.id) == ["check"]
    await worker.kill()
    await restart(own_server)
    assert await _asks(own_server, handle.id) == ["check"]
    await _signal(own_server, handle.id, "check")
    await restart(own_server)
    await worker.start()

    document = await result_within(handle, 240)
    assert document["status"] == "completed"
    assert effects_of(folder) == ["effect"]
    await _assert_answered_once(handle, document, "check")


async def test_both_killed_before_an_effect(own_server: LiveServer, worker: WorkerProcess, folder: Path) -> None:
    points = FaultPoints(folder)
    points.hold("effect")
    plan = {"nodes": [{**_EFFECT, "approval": "required"}]}
    handle = await start_run(await own_server.start(), plan, workflow_id="killed-behind-the-answer")
    assert await _asks(own_server, handle.id) == ["effect"]
    await _signal(own_server, handle.id, "effect")
    await points.wait_for_point("effect")
    await worker.kill()
    await restart(own_server)
    points.release("effect")
    await worker.start()

    document = await result_within(handle, 240)
    assert document["nodes"]["effect"]["status"] == "completed"
    assert effects_of(folder) == ["effect"]
    await _assert_answered_once(handle, document, "effect")


async def test_both_killed_while_a_tool_asks_and_after(
    own_server: LiveServer, worker: WorkerProcess, folder: Path
) -> None:
    points = FaultPoints(folder)
    points.hold("effect")
    plan = {"nodes": [{**_EFFECT, "tool": "effect_then_ask"}]}
    handle = await start_run(await own_server.start(), plan, workflow_id="killed-while-a-tool-asks")
    assert await _asks(own_server, handle.id) == ["effect"]
    await worker.kill()
    await restart(own_server)
    message = {"request_id": "effect", "answer": {"text": "Fred"}, "by": "ann"}
    await (await own_server.start()).get_workflow_handle(handle.id).signal(wire.SIGNAL_FEEDBACK, message)
    await worker.start()
    await points.wait_for_point("effect")
    await worker.kill()
    points.release("effect")
    await worker.start()

    document = await result_within(handle, 240)
    assert document["nodes"]["effect"]["result"] == "Fred"
    assert attempts_of(folder) == ["effect"]
    await assert_whole(handle)
