"""Holds of calls: after a busy response of a service, no worker calls the service for the requested time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.server.call_limits import list_usages
from dagwright.settings import Settings
from dagwright.testing import ModelServer, busy
from dagwright.tools import ToolRegistry
from tests.support.eventually import eventually
from tests.support.http_servers import ReceivedRequest, ServiceResponse, serve_requests
from tests.support.people import tool_node
from tests.support.run_views import view_of
from tests.support.runs import Handle, Runs, checked_runs, document_of, serving_runs

pytestmark = pytest.mark.server

RETRY_AFTER_S = 3.0
PROPAGATION_S = 1.5
"""Maximum time until every worker applies a hold if limits are not cached."""
CALL_COUNT = 10


class BusyService:
    """A service that is busy for two periods, and records the times of its calls."""

    def __init__(self) -> None:
        self.url = ""
        self.busy_period_starts: list[float] = []
        self.call_times: list[float] = []
        self._lock = threading.Lock()

    def record_call(self) -> bool:
        """Record a call, and return whether the service is busy. The call may start a busy period."""
        with self._lock:
            now = time.monotonic()
            self.call_times.append(now)
            if not self.busy_period_starts or (
                len(self.busy_period_starts) < 2 and now > self.busy_period_starts[-1] + RETRY_AFTER_S
            ):
                self.busy_period_starts.append(now)
            return now <= self.busy_period_starts[-1] + RETRY_AFTER_S

    def count_calls_in_holds(self) -> int:
        """Return the number of calls at times when every worker must hold its calls."""
        return sum(
            start + PROPAGATION_S < call_time < start + RETRY_AFTER_S
            for start in self.busy_period_starts
            for call_time in self.call_times
        )


@contextmanager
def _serve(service: BusyService) -> Iterator[None]:
    def respond(request: ReceivedRequest) -> ServiceResponse:
        is_busy = service.record_call() if request.path == "/busy" else False
        return ServiceResponse(429, headers={"Retry-After": f"{RETRY_AFTER_S:g}"}) if is_busy else ServiceResponse()

    with serve_requests(respond) as service.url:
        yield


async def _connect_again(client: Client) -> Client:
    """Return a new connection, because a connection can have only one worker of a queue."""
    address = client.service_client.config.target_host
    return await Client.connect(address, namespace=client.namespace, data_converter=client.data_converter)


def _request_node(node_id: str, url: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "http_request", "arguments": {"url": url}, "retry": {"max_attempts": 1}, **fields}


async def _read_reasons(runs: Runs, handle: Handle) -> list[str]:
    nodes = (await view_of(runs, handle)).document()["nodes"]
    return [node["reason"] for node in nodes.values() if node["reason"]]


@pytest.mark.usefixtures("uncached_limits")
async def test_no_worker_calls_a_busy_host_while_other_hosts_are_called(client: Client, tmp_path: Path) -> None:
    service, queue = BusyService(), f"holds-{uuid4().hex}"
    settings = Settings(state_dir=tmp_path, allow_private_addresses=True)
    with _serve(service):
        free_url = service.url.replace("127.0.0.1", "localhost")
        async with (
            checked_runs(client, ToolRegistry(), settings=settings, queue=queue) as runs,
            serving_runs(await _connect_again(client), ToolRegistry(), settings=settings, queue=queue),
        ):
            plan = {"nodes": [_request_node("each", f"{service.url}/busy", for_each=[*range(CALL_COUNT)])]}
            handle = await runs.start(plan)
            await eventually(lambda: bool(service.busy_period_starts))
            assert (await runs.run({"nodes": [_request_node("a", f"{free_url}/free")]}))["status"] == "completed"

            async def is_held() -> bool:
                usages = await list_usages(client)
                return [str(usage.settings.subject) for usage in usages if usage.hold_reason] == [
                    "tool:http_request@127.0.0.1"
                ]

            await eventually(is_held)
            document = await document_of(handle)
            assert document["status"] == "completed"
            attempts = [node["attempts"] for node_id, node in document["nodes"].items() if node_id != "each"]
            assert attempts == [1] * CALL_COUNT
            assert len(service.busy_period_starts) == 2
            assert service.count_calls_in_holds() == 0
            # After the holds, calls do not start at the same moment.
            late_call_times = [
                call_time
                for call_time in service.call_times
                if call_time > service.busy_period_starts[1] + RETRY_AFTER_S
            ]
            assert late_call_times[-1] - late_call_times[0] > 0.5


@pytest.mark.usefixtures("uncached_limits")
async def test_no_worker_calls_a_busy_model(client: Client, tmp_path: Path) -> None:
    queue = f"holds-{uuid4().hex}"
    summarize_node = tool_node("short", "summarize", arguments={"text": "A text."}, retry={"max_attempts": 1})
    async with ModelServer(busy(retry_after=RETRY_AFTER_S), *["short"] * 4) as server:
        settings = Settings(state_dir=tmp_path, model=f"small-{uuid4().hex[:8]}", openai_base_url=server.base_url)
        async with (
            checked_runs(client, ToolRegistry(), settings=settings, queue=queue) as runs,
            serving_runs(await _connect_again(client), ToolRegistry(), settings=settings, queue=queue),
        ):
            first_handle = await runs.start({"nodes": [summarize_node]})
            await eventually(lambda: bool(server.calls))
            called_at = time.monotonic()

            async def is_held() -> bool:
                return any(usage.hold_reason for usage in await list_usages(client))

            await eventually(is_held)
            later_handles = [await runs.start({"nodes": [summarize_node]}) for _ in range(3)]

            async def are_waiting() -> bool:
                return all(
                    [
                        "was asked to wait until" in " ".join(await _read_reasons(runs, handle))
                        for handle in later_handles
                    ]
                )

            await eventually(are_waiting)
            assert len(server.calls) == 1
            documents = [await document_of(handle) for handle in [first_handle, *later_handles]]
            assert [document["nodes"]["short"]["attempts"] for document in documents] == [1] * 4
            assert time.monotonic() - called_at > RETRY_AFTER_S
