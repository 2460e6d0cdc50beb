"""Call activities as a worker would, without a server."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from dagwright.activities.call_headers import ToolInterceptor

CANCEL_REQUESTED = ActivityCancellationDetails(cancel_requested=True)
WORKER_SHUTDOWN = ActivityCancellationDetails(worker_shutdown=True)


class ActivityCaller(ActivityInboundInterceptor):
    """The last interceptor, which calls the activity."""

    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await input.fn(*input.args)


class ActivityHarness:
    """Call one activity as the second attempt of the node n1."""

    def __init__(self, activity: Callable[..., Any]) -> None:
        self.activity = activity
        self.temporal = ActivityEnvironment()
        self.temporal.info = replace(
            ActivityEnvironment.default_info(),
            activity_id="n1",
            attempt=2,
            started_time=datetime(2024, 2, 3, 4, 5, 6, 789000, tzinfo=UTC),
        )

    def set_info(self, **fields: Any) -> None:
        """Change fields of Temporal's description of the call."""
        self.temporal.info = replace(self.temporal.info, **fields)

    async def start_and_cancel(
        self,
        call: Coroutine[Any, Any, Any],
        started_event: asyncio.Event,
        details: ActivityCancellationDetails = CANCEL_REQUESTED,
    ) -> "asyncio.Future[Any]":
        """Start a call, and cancel it when its tool has set the event."""
        pending_call = asyncio.ensure_future(call)
        await started_event.wait()
        self.temporal.cancel(details)
        return pending_call

    async def payload(self, *arguments: Any, **headers: Any) -> Payload:
        """Return the payload of the result. The values of `headers` are sent as JSON."""
        metadata = {"encoding": b"json/plain"}
        header_payloads = {
            name: Payload(metadata=metadata, data=json.dumps(value).encode()) for name, value in headers.items()
        }

        async def call() -> Any:
            inbound = ToolInterceptor().intercept_activity(ActivityCaller())
            return await inbound.execute_activity(ExecuteActivityInput(self.activity, arguments, None, header_payloads))

        result = await self.temporal.run(call)
        assert isinstance(result.payload, Payload)
        return result.payload

    async def failure(self, *arguments: Any, **headers: Any) -> ApplicationError:
        with pytest.raises(ApplicationError) as caught:
            await self.payload(*arguments, **headers)
        return caught.value
