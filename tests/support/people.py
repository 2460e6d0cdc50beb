"""Helpers for tests of human feedback: nodes with requests, and answers by update and by signal."""

import asyncio
from functools import partial
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from dagwright.client.feedback.feedback_client import FeedbackClient
from dagwright.core.boundary import wire
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.server import Connection, Server
from tests.support.eventually import eventually
from tests.support.plan_building import node
from tests.support.run_views import wait_for_view
from tests.support.runs import Handle, Runs

_ANSWER_TIMEOUT_S = 60.0
"""Much longer than an answer takes on a busy machine. The SDK has no timeout."""


def human_node(node_id: str, kind: str = "APPROVAL", **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "human": {"type": kind, "prompt": f"What of {node_id}?", **fields}}


def echo_node(node_id: str, *needs: str) -> dict[str, Any]:
    return {"id": node_id, "tool": "echo", "arguments": {name: f"{{{{{name}.result}}}}" for name in needs}}


def hold_node(node_id: str, name: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """Return a node that runs until the test opens the gate `name`."""
    return tool_node(node_id, "hold", *needs, arguments={"name": name}, **fields)


def tool_node(node_id: str, tool: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """Return a node that calls a tool, and depends on `needs`. `fields` are fields of the node, such as `arguments`."""
    return node(node_id, *needs, tool=tool, **fields)


def open_requests_of(view: RunView) -> dict[str, Any]:
    """Return the open requests by their IDs, in order."""
    return {request["request_id"]: request for request in view.document()["waiting_for"]}


async def wait_for_requests(client: Client, run_id: str, *requests: str) -> None:
    """Wait until exactly these requests of a run are open, in this order. No worker is needed."""
    await wait_for_view(client, run_id, lambda view: [*open_requests_of(view)] == [*requests])


async def wait_for_request_set(client: Client, run_id: str, *requests: str) -> dict[str, Any]:
    """Wait until exactly these requests of a run are open, in any order, and return request ID -> request."""
    return open_requests_of(await wait_for_view(client, run_id, lambda view: {*open_requests_of(view)} == {*requests}))


async def wait_for_requests_of_children(runs: Runs, handle: Handle, *requests: str) -> None:
    """Wait until exactly these requests of a run and its child runs are open, in this order."""
    connection = Connection(runs.client, Server("here", runs.client.namespace), frozenset({wire.SEARCH_AWAITING}))
    feedback_client = FeedbackClient(connection, partial(RunReader, runs.client))

    async def has_requests() -> bool:
        return [request.id for request in await feedback_client.requests_of(handle.id)] == list(requests)

    await eventually(has_requests)


async def answer(handle: Handle, request_id: str, content: Any, **fields: Any) -> Any:
    message = {"request_id": request_id, "answer": content, "by": "ann", **fields}
    async with asyncio.timeout(_ANSWER_TIMEOUT_S):
        return await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)


async def signal_answer(handle: Handle, request_id: str, content: Any, **fields: Any) -> None:
    await handle.signal(wire.SIGNAL_FEEDBACK, {"request_id": request_id, "answer": content, "by": "bob", **fields})


async def rejection_of(handle: Handle, message: Any, *, update: str = wire.UPDATE_SUBMIT_FEEDBACK) -> str:
    """Send an update that the run must reject without an event in history, and return the error message."""
    update_count = await _update_count(handle)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(update, message)
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == wire.ERROR_REJECTED
    assert await _update_count(handle) == update_count
    return error.value.cause.message


async def _update_count(handle: Handle) -> int:
    history = await handle.fetch_history()
    return sum("WORKFLOW_EXECUTION_UPDATE" in EventType.Name(event.event_type) for event in history.events)
