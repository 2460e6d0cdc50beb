"""Model calls on the real Temporal server, with a scripted model: metadata and cancellation."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from dagwright.activities.call_headers import ToolInterceptor
from dagwright.activities.call_model import model_activity
from dagwright.activities.values import LargeValues
from dagwright.llm import Endpoint, ModelCall, user
from dagwright.llm.client import ModelClients, ModelSetup
from dagwright.planning.model_calls.model_requests import ModelRequest, request_to_json
from dagwright.testing import ModelServer, step
from dagwright.workflows.activity_calls import CallInterceptor
from tests.support.eventually import eventually
from tests.support.memory_store import MemoryStore
from tests.support.model_runs import ASK_MODELS, AskModelsWorkflow
from tests.support.runs import events_of

pytestmark = pytest.mark.server

Handle = WorkflowHandle[Any, Any]


class ModelWorkflows:
    """A client that starts workflows that call models."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self) -> Handle:
        request = ModelRequest(ModelCall((user("Hello?"),)))
        workflow_input = {"requests": [request_to_json(request)]}
        return await self._client.start_workflow(
            ASK_MODELS, workflow_input, id=f"ask-{uuid4().hex}", task_queue=self._task_queue
        )


@asynccontextmanager
async def serve_model_calls(client: Client, server: ModelServer) -> AsyncIterator[ModelWorkflows]:
    """Serve `AskModelsWorkflow` and the model activity on a new queue."""
    queue = f"models-{uuid4().hex}"
    async with ModelClients(ModelSetup(Endpoint(server.base_url, "key"), model="small")) as clients:
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[AskModelsWorkflow],
            activities=[model_activity(clients, LargeValues(MemoryStore()))],
            interceptors=[CallInterceptor(), ToolInterceptor()],
        )
        async with worker:
            yield ModelWorkflows(client, queue)


async def test_model_call_returns_the_response_and_sends_the_ids_of_its_run_and_node(client: Client) -> None:
    async with ModelServer("Hi") as server, serve_model_calls(client, server) as workflows:
        handle = await workflows.start()
        response = {"text": "Hi", "output": None, "model": "small", "calls": 1, "conversation": None}
        assert await handle.result() == [{**response, "tools": []}]
        history = await handle.fetch_history()
    assert server.calls[0].metadata == {"run_id": handle.id, "node_id": "ask0"}
    [scheduled_activity] = events_of(history, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    attributes = scheduled_activity.activity_task_scheduled_event_attributes
    assert (attributes.activity_type.name, attributes.activity_id) == ("call_model", "ask0")
    assert json.loads(scheduled_activity.user_metadata.summary.data) == "question 0"


async def test_cancelled_model_call_ends(client: Client) -> None:
    release_event = asyncio.Event()
    async with (
        ModelServer(step("late", release_event=release_event)) as server,
        serve_model_calls(client, server) as workflows,
    ):
        handle = await workflows.start()
        await eventually(lambda: bool(server.calls))
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as error:
            await handle.result()
        assert isinstance(error.value.cause, CancelledError)
