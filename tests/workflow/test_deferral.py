"""Deferred attempts: the server delays the next attempt, and a deferred attempt does not count."""

from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from dagwright.activities.errors import CallDeferred
from dagwright.settings import Settings
from dagwright.testing import ModelServer, busy
from dagwright.tools import RetryLater, ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import checked_runs, document_of

pytestmark = pytest.mark.server


async def test_retry_that_a_service_requests_does_not_count_as_an_attempt(client: Client, tmp_path: Path) -> None:
    order_attempts, fetch_attempts = list[int](), list[tuple[int, int]]()

    @tool(effects="write", max_attempts=2)
    async def order() -> str:
        order_attempts.append(context().attempt)
        if len(order_attempts) < 4:
            # The delay of the second call does not come from the service, so the attempt of this call counts.
            requested_by = "429 from api.example.org" if len(order_attempts) != 2 else None
            raise RetryLater("busy", after=timedelta(milliseconds=1), requested_by=requested_by)
        return "ordered"

    @tool(effects="read", max_attempts=1, batch=True)
    async def fetch(item: int) -> int:
        fetch_attempts.append((item, context().attempt))
        if fetch_attempts.count((item, 1)) == 1:
            request = httpx.Request("GET", "https://api.example.org")
            response = httpx.Response(503, headers={"Retry-After": "1"}, request=request)
            raise httpx.HTTPStatusError("no luck", request=request, response=response)
        return item

    plan = plan_of(
        call_node("order", "order"),
        tool_node("fetch", "fetch", for_each=[1, 2, 3], arguments={"item": "{{item}}"}),
        tool_node("short", "summarize", arguments={"text": "A text."}, retry={"max_attempts": 1}),
    )
    async with ModelServer(busy(retry_after=1), "short") as server:
        settings = Settings(state_dir=tmp_path, model="small", openai_base_url=server.base_url)
        async with checked_runs(client, ToolRegistry.of(order, fetch), settings=settings) as runs:
            document = await document_of(await runs.start(plan))
            assert document["status"] == "completed", document
            assert order_attempts == [1, 1, 2, 2]
            assert sorted(fetch_attempts) == [(1, 1), (1, 1), (2, 1), (2, 1), (3, 1), (3, 1)]
            attempts = {name: node["attempts"] for name, node in document["nodes"].items()}
            assert attempts == {"order": 2, "fetch": 0, **{f"fetch[{item}]": 1 for item in range(3)}, "short": 1}


async def test_deferred_attempts_do_not_count(client: Client, tmp_path: Path) -> None:
    calls: list[int] = []

    @tool(effects="read", max_attempts=2)
    async def busy_service() -> str:
        calls.append(context().attempt)
        if len(calls) in (1, 2, 4):
            raise CallDeferred("not now", timedelta(milliseconds=1))
        raise ConnectionError("down")

    async with checked_runs(client, ToolRegistry.of(busy_service), settings=Settings(state_dir=tmp_path)) as runs:
        handle = await runs.start({"nodes": [call_node("a", "busy_service")]})
        await eventually(lambda: len(calls) > 1)
        node = (await document_of(handle))["nodes"]["a"]
        assert (calls, node["status"], node["attempts"]) == ([1, 1, 1, 2, 2], "failed", 2)
        assert node["error"]["message"] == "ConnectionError: down"
