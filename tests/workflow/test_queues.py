"""Queues without a worker, as reported by the reader for runs that no command started."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.history.queues import OpenCall, calls_without_worker
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, document_of

pytestmark = pytest.mark.server


async def _waiting(client: Client, handle: Handle) -> RunView:
    actual: list[RunView] = []

    async def is_waiting() -> bool:
        actual.append(await RunReader(client, handle.id).read())
        return actual[-1].status == "waiting"

    await eventually(is_waiting)
    return actual[-1]


def _add(node_id: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "tool": "add",
        "arguments": {"left": 1, "right": 1},
        "depends_on": list(depends_on),
        **fields,
    }


def _with_far(runs: Runs, far: ToolDeclaration) -> Runs:
    """Return runs that know one more tool, `far`."""
    return Runs(runs.client, task_queue=runs.task_queue, tools={**runs.tools, "far": far}, store=runs.store)


def _start_one(queue: str) -> str:
    """Return the advice for a run that was started without files of tools."""
    command = f"dagwright worker --tools FILE --tools-queue {queue}"
    return f"start one with `{command}`, where FILE is the file or module of the tool"


async def test_run_on_an_unserved_queue_waits_for_a_worker(client: Client, cached_runs: Runs) -> None:
    nobody = Runs(client, task_queue=f"nobody-{uuid4().hex}", tools=cached_runs.tools, store=cached_runs.store)
    handle = await nobody.start({"nodes": [_add("a")]})
    try:
        view = await _waiting(client, handle)
    finally:
        await handle.terminate()
    assert [note["message"] for note in view.document()["notes"]] == [
        f"no worker serves the queue {nobody.task_queue!r}, so the run cannot continue; start one with "
        f"`dagwright watch {handle.id}` or `dagwright worker --task-queue {nobody.task_queue}`"
    ]


async def test_node_of_a_foreign_queue_waits_while_the_others_continue(client: Client, cached_runs: Runs) -> None:
    queue = f"far-{uuid4().hex}"
    far = ToolDeclaration("far", effects=Effects.READ, task_queue=queue, is_foreign=True)
    runs = _with_far(cached_runs, far)
    nodes = [
        _add("a"),
        {"id": "one", "tool": "far", "arguments": {}, "depends_on": ["a"]},
        {"id": "each", "tool": "far", "arguments": {}, "depends_on": ["a"], "for_each": [1, 2]},
        _add("b", "a"),
    ]
    handle = await runs.start({"nodes": nodes})
    view = await _waiting(client, handle)
    document = view.document()
    await handle.signal("cancel")
    await document_of(handle)
    ended = (await RunReader(client, handle.id).read()).document()

    waiting = ("waiting", "no worker for far")
    assert {name: (node["status"], node["reason"]) for name, node in document["nodes"].items()} == {
        **{"a": ("completed", None), "one": waiting, "each": waiting, "each[0]": waiting},
        **{"each[1]": waiting, "b": ("completed", None)},
    }
    assert [note["message"] for note in document["notes"]] == [
        f"no worker serves the queue {queue!r} of far; start your own worker for this queue"
    ]
    assert {node["status"] for name, node in ended["nodes"].items() if name not in ("a", "b")} == {"cancelled"}
    await runs.check_runs()


async def test_sub_plan_and_run_wait_for_the_worker_of_a_child_node(client: Client, cached_runs: Runs) -> None:
    queue = f"far-{uuid4().hex}"
    far = ToolDeclaration("far", effects=Effects.READ, task_queue=queue)
    runs = _with_far(cached_runs, far)
    inner = {"nodes": [{"id": "x", "tool": "far", "arguments": {}}]}
    handle = await runs.start(
        {"nodes": [{"id": "sub", "plan": {"nodes": [{"id": "inner", "plan": inner}]}}, _add("a")]}
    )
    view = await _waiting(client, handle)
    document = view.document()
    await handle.signal("cancel")
    await document_of(handle)

    assert (document["nodes"]["sub"]["status"], document["nodes"]["sub"]["reason"]) == ("waiting", "no worker for far")
    assert document["notes"] == [
        {
            "code": "no_worker",
            "node_id": "sub",
            "message": f"no worker serves the queue {queue!r} of far; {_start_one(queue)}",
        }
    ]
    await runs.check_runs()


@pytest.mark.slow
async def test_sub_plan_with_an_evicted_root_reports_itself(client: Client, cached_runs: Runs) -> None:
    queue = f"far-{uuid4().hex}"
    far = ToolDeclaration("far", effects=Effects.READ, task_queue=queue)
    runs = _with_far(cached_runs, far)
    root = await runs.start({"nodes": [{"id": "sub", "plan": {"nodes": [{"id": "x", "tool": "far"}]}}]})
    await _waiting(client, root)
    await root.terminate()
    await _forget(client, root.id)
    below: Handle = client.get_workflow_handle(f"{root.id}/sub")
    document = (await _waiting(client, below)).document()
    await below.signal("cancel")
    await document_of(below)
    # Its start would be unknown, so no payload of this namespace could be removed while it is listed.
    await _forget(client, below.id)

    assert [note["message"] for note in document["notes"]] == [
        f"no worker serves the queue {queue!r} of far; {_start_one(queue)}"
    ]


async def _forget(client: Client, workflow_id: str) -> None:
    """Delete a run, and wait until the server shows it no more."""
    execution = WorkflowExecution(workflow_id=workflow_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request)

    async def is_forgotten() -> bool:
        # The server takes up to 20 s for it.
        await asyncio.sleep(0.5)
        listed = [found.id async for found in client.list_workflows(f"WorkflowId = '{workflow_id}'")]
        try:
            await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            return not listed and error.status is RPCStatusCode.NOT_FOUND
        return False

    await eventually(is_forgotten)


async def test_run_is_followed_on_when_the_server_was_gone_while_its_queues_were_asked_for(
    client: Client, cached_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")]

    async def flaky(client: Client, calls: Sequence[OpenCall]) -> list[OpenCall]:
        if lost:
            raise lost.pop()
        return await calls_without_worker(client, calls)

    monkeypatch.setattr("dagwright.history.run_reader.calls_without_worker", flaky)
    handle = await cached_runs.start({"nodes": [_add("a")]})
    views = [view async for view in RunReader(client, handle.id).follow()]
    assert (views[-1].status, lost) == ("completed", [])
    await cached_runs.check_runs()


async def test_pure_nodes_that_would_run_together_wait_like_others(client: Client, cached_runs: Runs) -> None:
    queue = f"far-{uuid4().hex}"
    pure = {
        name: ToolDeclaration(name, effects=Effects.PURE, task_queue=queue, timeout_s=1) for name in ("left", "right")
    }
    runs = Runs(client, task_queue=cached_runs.task_queue, tools=pure, store=cached_runs.store)
    nodes = [
        {"id": "one", "tool": "left"},
        {"id": "two", "tool": "right"},
        {"id": "both", "tool": "left", "depends_on": ["one", "two"]},
    ]
    handle = await runs.start({"nodes": nodes})
    view = await _waiting(client, handle)
    document = view.document()
    await handle.signal("cancel")
    await document_of(handle)

    assert {name: (node["status"], node["reason"]) for name, node in document["nodes"].items()} == {
        "one": ("waiting", "no worker for left"),
        "two": ("waiting", "no worker for right"),
        "both": ("pending", None),
    }
    assert [note["message"] for note in document["notes"]] == [
        f"no worker serves the queue {queue!r} of left, right; {_start_one(queue)}"
    ]
    await runs.check_runs()
