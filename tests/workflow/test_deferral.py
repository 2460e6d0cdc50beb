"""Deferred attempts: the server keeps the call for a while, and its other attempts have the usual numbers."""

from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.activities.errors import CallDeferred
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.runs import document_of, serving_runs

pytestmark = pytest.mark.server


async def test_deferred_attempts_do_not_count(client: Client, tmp_path: Path) -> None:
    calls: list[int] = []

    @tool(effects="read", max_attempts=2)
    async def busy_service() -> str:
        calls.append(context().attempt)
        if len(calls) in (1, 2, 4):
            raise CallDeferred("not now", timedelta(milliseconds=1))
        raise ConnectionError("down")

    async with serving_runs(client, ToolRegistry.of(busy_service), settings=Settings(state_dir=tmp_path)) as runs:
        handle = await runs.start({"nodes": [{"id": "a", "tool": "busy_service", "arguments": {}}]})
        await eventually(lambda: len(calls) > 1)
        node = (await document_of(handle))["nodes"]["a"]
        assert (calls, node["status"], node["attempts"]) == ([1, 1, 1, 2, 2], "failed", 2)
        assert node["error"]["message"] == "ConnectionError: down"
        await runs.check_ended()
