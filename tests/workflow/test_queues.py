"""Reports of `RunReader` about task queues without a worker."""

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
from tests.support.eventually import eventually
from tests.support.foreign import with_tools
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.run_views import wait_for_status
from tests.support.runs import Handle, Runs, document_of

pytestmark = pytest.mark.server


def _sum_node(node_id: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "tool": "add",
        "arguments": {"left": 1, "right": 1},
        "depends_on": list(depends_on),
        **fields,
    }


def _advice(queue: str) -> str:
    """Return the advice in the note of a run that was started without tool files."""
    command = f"dagwright worker --tools FILE --tools-queue {queue}"
    return f"start one with `{command}`, where FILE is the file or module of the tool"


async def test_run_on_an_unserved_queue_waits_for_a_worker(client: Client, cached_runs: Runs) -> None:
    unserved_runs = Runs(client, task_queue=f"unserved-{uuid4().hex}", tools=cached_runs.tools, store=cached_runs.store)
    handle = await unserved_runs.start({"nodes": [_sum_node("a")]})
    try:
        view = await wait_for_status(client, handle.id, "waiting")
    finally:
        await handle.terminate()
    assert [note["message"] for note in view.document()["notes"]] == [
        f"no worker serves the queue {unserved_runs.task_queue!r}, so the run cannot continue; start one with "
        f"`dagwright watch {handle.id}` or `dagwright worker --task-queue {unserved_runs.task_queue}`"
    ]


async def test_node_on_an_unserved_queue_waits_while_other_nodes_continue(client: Client, cached_runs: Runs) -> None:
    queue = f"remote-{uuid4().hex}"
    remote_tool = ToolDeclaration("remote", effects=Effects.READ, task_queue=queue, is_foreign=True)
    runs = with_tools(cached_runs, {"remote": remote_tool})
    nodes = [
        _sum_node("a"),
        tool_node("one", "remote", "a", arguments={}),
        tool_node("each", "remote", "a", arguments={}, for_each=[1, 2]),
        _sum_node("b", "a"),
    ]
    handle = await runs.start({"nodes": nodes})
    document = (await wait_for_status(client, handle.id, "waiting")).document()
    await handle.signal("cancel")
    await document_of(handle)
    ended_document = (await RunReader(client, handle.id).read()).document()

    waiting_state = ("waiting", "no worker for remote")
    assert {node_id: (node["status"], node["reason"]) for node_id, node in document["nodes"].items()} == {
        **{"a": ("completed", None), "one": waiting_state, "each": waiting_state, "each[0]": waiting_state},
        **{"each[1]": waiting_state, "b": ("completed", None)},
    }
    expected = [f"no worker serves the queue {queue!r} of remote; start your own worker for this queue"]
    assert [note["message"] for note in document["notes"]] == expected
    assert {node["status"] for node_id, node in ended_document["nodes"].items() if node_id not in ("a", "b")} == {
        "cancelled"
    }
    await runs.check_runs()


async def test_run_waits_for_the_worker_of_a_node_in_a_sub_plan(client: Client, cached_runs: Runs) -> None:
    queue = f"remote-{uuid4().hex}"
    runs = with_tools(cached_runs, {"remote": ToolDeclaration("remote", effects=Effects.READ, task_queue=queue)})
    inner_plan = {"nodes": [call_node("x", "remote")]}
    plan = {"nodes": [{"id": "sub", "plan": {"nodes": [{"id": "inner", "plan": inner_plan}]}}, _sum_node("a")]}
    handle = await runs.start(plan)
    document = (await wait_for_status(client, handle.id, "waiting")).document()
    await handle.signal("cancel")
    await document_of(handle)

    expected = ("waiting", "no worker for remote")
    assert (document["nodes"]["sub"]["status"], document["nodes"]["sub"]["reason"]) == expected
    assert document["notes"] == [
        {
            "code": "no_worker",
            "node_id": "sub",
            "message": f"no worker serves the queue {queue!r} of remote; {_advice(queue)}",
        }
    ]
    await runs.check_runs()


@pytest.mark.slow
async def test_sub_plan_of_a_deleted_run_reports_its_unserved_queue(client: Client, cached_runs: Runs) -> None:
    queue = f"remote-{uuid4().hex}"
    runs = with_tools(cached_runs, {"remote": ToolDeclaration("remote", effects=Effects.READ, task_queue=queue)})
    parent_handle = await runs.start({"nodes": [{"id": "sub", "plan": {"nodes": [call_node("x", "remote")]}}]})
    await wait_for_status(client, parent_handle.id, "waiting")
    await parent_handle.terminate()
    await _delete_run(client, parent_handle.id)
    child_handle: Handle = client.get_workflow_handle(f"{parent_handle.id}/sub")
    document = (await wait_for_status(client, child_handle.id, "waiting")).document()
    await child_handle.signal("cancel")
    await document_of(child_handle)
    # While a sub-plan of a deleted run is listed, no payload of the namespace can be removed.
    await _delete_run(client, child_handle.id)

    expected = [f"no worker serves the queue {queue!r} of remote; {_advice(queue)}"]
    assert [note["message"] for note in document["notes"]] == expected


async def _delete_run(client: Client, run_id: str) -> None:
    """Delete a run, and wait until the server no longer lists the run."""
    execution = WorkflowExecution(workflow_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request)

    async def is_deleted() -> bool:
        # The server takes up to 20 s.
        await asyncio.sleep(0.5)
        run_ids = [run.id async for run in client.list_workflows(f"WorkflowId = '{run_id}'")]
        try:
            await client.get_workflow_handle(run_id).describe()
        except RPCError as error:
            return not run_ids and error.status is RPCStatusCode.NOT_FOUND
        return False

    await eventually(is_deleted)


async def test_reader_follows_a_run_although_a_check_of_its_queues_fails(
    client: Client, cached_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")]

    async def fail_once(client: Client, calls: Sequence[OpenCall]) -> list[OpenCall]:
        if errors:
            raise errors.pop()
        return await calls_without_worker(client, calls)

    monkeypatch.setattr("dagwright.history.run_reader.calls_without_worker", fail_once)
    handle = await cached_runs.start({"nodes": [_sum_node("a")]})
    views = [view async for view in RunReader(client, handle.id).follow()]
    assert (views[-1].status, errors) == ("completed", [])
    await cached_runs.check_runs()


async def test_pure_nodes_of_an_unserved_queue_wait_as_separate_nodes(client: Client, cached_runs: Runs) -> None:
    queue = f"remote-{uuid4().hex}"
    pure_tools = {
        name: ToolDeclaration(name, effects=Effects.PURE, task_queue=queue, timeout_s=1) for name in ("left", "right")
    }
    runs = Runs(client, task_queue=cached_runs.task_queue, tools=pure_tools, store=cached_runs.store)
    nodes = [call_node("one", "left"), call_node("two", "right"), tool_node("both", "left", "one", "two")]
    handle = await runs.start({"nodes": nodes})
    document = (await wait_for_status(client, handle.id, "waiting")).document()
    await handle.signal("cancel")
    await document_of(handle)

    assert {node_id: (node["status"], node["reason"]) for node_id, node in document["nodes"].items()} == {
        "one": ("waiting", "no worker for left"),
        "two": ("waiting", "no worker for right"),
        "both": ("pending", None),
    }
    expected = [f"no worker serves the queue {queue!r} of left, right; {_advice(queue)}"]
    assert [note["message"] for note in document["notes"]] == expected
    await runs.check_runs()
