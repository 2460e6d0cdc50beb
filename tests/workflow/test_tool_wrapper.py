"""The tool wrapper on a real server: what stays in history, retries, cancelling, heartbeats."""

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from activities.call_headers import ToolInterceptor
from activities.call_tool import tool_activities
from activities.result_cache import ResultCache
from activities.values import Values
from dagwright.core.boundary.wire import HEADER_HOLES, HEADER_IDEMPOTENCY_KEY
from dagwright.tools import NotStarted, RetryLater, ToolRegistry, context, tool
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from tests.support.memory_store import MemoryStore
from tests.support.receiver import posts_answered

pytestmark = pytest.mark.server

SECRET = "hunter2-and-more"


@workflow.defn
class CallOnce:
    """Calls one activity with headers, as a plan's engine does."""

    @workflow.run
    async def run(self, name: str, arguments: dict[str, Any], headers: dict[str, Any]) -> Any:
        return await workflow.execute_activity(
            name,
            args=[arguments, headers],
            activity_id="n1",
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=1),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=20), maximum_attempts=3),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


class HeadersFromArguments(Interceptor):
    """Takes the headers of an activity from its second argument."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        arguments, headers = input.args
        input.args = [arguments]
        input.headers = {
            name: Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())
            for name, value in headers.items()
        }
        return super().start_activity(input)


@asynccontextmanager
async def serving(client: Client, *functions: Callable[..., Any]) -> AsyncIterator[str]:
    queue = f"tools-{uuid.uuid4()}"
    environment = ToolEnvironment(Path(), allow_private_addresses=True, secret={"TOKEN": SECRET, "GONE": None}.get)
    store = MemoryStore()
    registry = builtin_tools(environment).merged(ToolRegistry.of(*functions))
    async with Worker(
        client,
        task_queue=queue,
        workflows=[CallOnce],
        activities=tool_activities(registry, environment, values=Values(store), cache=ResultCache(store)),
        interceptors=[ToolInterceptor(), HeadersFromArguments()],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
    ):
        yield queue


async def started(
    client: Client, queue: str, name: str, *, arguments: Any = None, headers: Any = None
) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(
        "CallOnce", args=[name, arguments or {}, headers or {}], id=f"w-{uuid.uuid4()}", task_queue=queue
    )


async def completed_event(handle: WorkflowHandle[Any, Any]) -> HistoryEvent:
    history = await handle.fetch_history()
    [event] = [one for one in history.events if one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED]
    return event


async def failure_of(handle: WorkflowHandle[Any, Any]) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, ActivityError)
    cause = caught.value.cause.cause
    assert isinstance(cause, ApplicationError)
    return cause


async def test_history_holds_plain_json_the_attempt_and_no_secret(client: Client) -> None:
    @tool(secrets=["TOKEN"])
    def echo(header: str) -> dict[str, Any]:
        if context().attempt == 1:
            raise NotStarted(f"not with {header}")
        return {"key": context().idempotency_key, "node": context().node, "said": header}

    async with serving(client, echo) as queue:
        holes = [[["header"], [{"text": "Bearer "}, {"secret": "TOKEN"}]]]
        headers = {HEADER_HOLES: holes, HEADER_IDEMPOTENCY_KEY: "dw1_key"}
        handle = await started(client, queue, "echo", arguments={"header": "?"}, headers=headers)
        assert await handle.result() == {"key": "dw1_key", "node": "n1", "said": "Bearer ***"}
        [payload] = (await completed_event(handle)).activity_task_completed_event_attributes.result.payloads
        assert payload.data == b'{"key":"dw1_key","node":"n1","said":"Bearer ***"}'
        assert payload.metadata["dagwright-attempt"] == b"2"
        assert (await handle.fetch_history()).to_json().find(SECRET) == -1


async def test_final_failures_are_not_tried_again_and_tell_the_attempt(client: Client) -> None:
    calls: list[int] = []

    @tool(effects="read")
    def refuse() -> None:
        calls.append(1)
        raise ValueError("never")

    @tool(effects="write")
    def change() -> None:
        calls.append(2)
        raise RuntimeError("half done")

    async with serving(client, refuse, change) as queue:
        refused = await failure_of(await started(client, queue, "refuse"))
        changed = await failure_of(await started(client, queue, "change"))
        unknown = await failure_of(await started(client, queue, "refuse", arguments={"x": 1}))
    assert (refused.type, refused.message, refused.details[0]["attempt"]) == ("tool_failed", "never", 1)
    assert (changed.type, changed.message) == ("tool_failed", "RuntimeError: half done")
    assert (unknown.type, unknown.message) == (
        "invalid_arguments",
        "Invalid arguments: /x: no such parameter",
    )
    assert calls == [1, 2]


async def test_a_tool_that_takes_longer_than_its_heartbeat_timeout_is_kept_alive(client: Client) -> None:
    @tool(effects="read")
    def slow() -> int:
        context().wait_cancelled(2.5)
        return context().attempt

    async with serving(client, slow) as queue:
        assert await (await started(client, queue, "slow")).result() == 1


@pytest.mark.parametrize("name", ["in_thread", "in_task"])
async def test_a_cancelled_run_waits_for_the_clean_up_of_its_tool(client: Client, name: str) -> None:
    running = asyncio.Event()
    loop = asyncio.get_running_loop()
    ended: list[str] = []

    @tool(effects="read")
    def in_thread() -> None:
        loop.call_soon_threadsafe(running.set)
        if context().wait_cancelled(20):
            ended.append("in_thread")

    @tool(effects="read")
    async def in_task() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("in_task")

    async with serving(client, in_thread, in_task) as queue:
        handle = await started(client, queue, name)
        await asyncio.wait_for(running.wait(), 120)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
    assert is_cancelled_exception(caught.value.cause)
    assert ended == [name]


async def test_what_a_failed_attempt_kept_reaches_the_next(client: Client) -> None:
    @tool(effects="read")
    async def pages() -> Any:
        if context().last_heartbeat is None:
            context().heartbeat({"page": 7})
            raise RetryLater("later", after=timedelta(milliseconds=10))
        return [context().attempt, context().last_heartbeat]

    async with serving(client, pages) as queue:
        assert await (await started(client, queue, "pages")).result() == [2, {"page": 7}]


async def test_a_post_that_was_refused_to_begin_is_sent_again(client: Client) -> None:
    statuses = [429, 200]
    keys: list[str] = []

    def take(headers: dict[str, str], body: bytes) -> int:
        keys.append(headers["idempotency-key"])
        return statuses[len(keys) - 1]

    with posts_answered(take, hung=threading.Event()) as address:
        async with serving(client) as queue:
            arguments = {"url": address, "method": "POST"}
            headers = {HEADER_IDEMPOTENCY_KEY: "dw1_post"}
            handle = await started(client, queue, "http_request", arguments=arguments, headers=headers)
            assert (await handle.result())["status"] == 200
    assert keys == ["dw1_post", "dw1_post"]
