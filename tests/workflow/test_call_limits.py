"""Limits of calls across all runs, on the real server."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.activities import call_limits
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.history.run_reader import RunReader
from dagwright.server.call_limits import list_limits, read_use, remove_limit, set_limit
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.runs import Runs, document_of, serving_runs

pytestmark = pytest.mark.server


class Service:
    """A limited tool that records its calls."""

    def __init__(self) -> None:
        self.name = f"fetch_{uuid4().hex[:8]}"
        self.starts: list[float] = []
        self.attempts: list[int] = []
        self.running = self.most_running = 0
        self.seconds = 0.0

    @property
    def subject(self) -> Subject:
        return Subject("tool", self.name)

    def registry(self) -> ToolRegistry:
        @tool(name=self.name, effects="read", max_attempts=2, batch=True)
        async def fetch(item: int) -> int:
            self.starts.append(time.monotonic())
            self.attempts.append(context().attempt)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            await asyncio.sleep(self.seconds)
            self.running -= 1
            return item

        return ToolRegistry.of(fetch)

    def plan(self, count: int) -> dict[str, Any]:
        return {
            "nodes": [{"id": "a", "tool": self.name, "for_each": [*range(count)], "arguments": {"item": "{{item}}"}}]
        }


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def served(
    client: Client, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runs]:
    """Runs of a worker that lists the limits before every call."""
    monkeypatch.setattr(call_limits, "FRESH_S", 0.0)
    monkeypatch.setattr(call_limits, "STALE_S", 0.0)
    async with serving_runs(client, service.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs
        await runs.check_ended()
        for subject in await list_limits(client):
            await remove_limit(client, subject)


async def _limit(runs: Runs, service: Service, text: str) -> None:
    await set_limit(runs.client, service.subject, parse_limit(text), task_queue=runs.task_queue, by="ann")


async def test_rate_is_respected_by_all_calls_and_waiting_uses_up_no_attempt(served: Runs, service: Service) -> None:
    await _limit(served, service, "10/s")
    handle = await served.start(service.plan(40))
    reasons: list[str] = []

    async def is_limited() -> bool:
        nodes = (await RunReader(served.client, handle.id).read()).document()["nodes"]
        reasons.extend(node["reason"] for node in nodes.values() if node["reason"])
        return bool(reasons)

    await eventually(is_limited)
    assert f"rate limit 10/s on {service.name}, " in reasons[0]
    assert "calls ahead" in reasons[0]
    document = await document_of(handle)
    assert document["status"] == "completed"
    assert (len(service.starts), set(service.attempts)) == (40, {1})
    assert service.starts[-1] - service.starts[0] > 3.5
    most = max(sum(start <= other < start + 1.0 for other in service.starts) for start in service.starts)
    assert most <= 16


async def test_concurrency_is_never_exceeded_and_each_call_runs(served: Runs, service: Service) -> None:
    service.seconds = 0.3
    await _limit(served, service, "concurrency=3")
    handles = [await served.start(service.plan(8)) for _ in range(2)]
    limits = await list_limits(served.client)
    await eventually(lambda: service.running == 3)
    use = await read_use(served.client, limits[service.subject])
    assert (use.running, use.settings.by, str(use.settings.limit)) == (3, "ann", "concurrency=3")
    assert [(await document_of(handle))["status"] for handle in handles] == ["completed"] * 2
    assert (len(service.starts), service.most_running, set(service.attempts)) == (16, 3, {1})

    async def is_free() -> bool:
        return (await read_use(served.client, limits[service.subject])).running == 0

    await eventually(is_free)
    # Without a limit, the next calls run together.
    await remove_limit(served.client, service.subject)
    await document_of(await served.start(service.plan(8)))
    assert service.most_running > 3
