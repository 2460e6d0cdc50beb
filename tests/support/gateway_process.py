"""The gateway as a separate process that is killed and restarted, and clients that reconnect to it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.chaos import ROOT, TOOLS_FILE, environment_of
from tests.support.eventually import eventually
from tests.support.gateway import NamedEvent, blocks_of, events_of, named_events_of
from tests.support.ports import free_port
from tests.support.programs import RunningProcess, start_program

SHORT_HEARTBEAT_STARTER = Path(__file__).with_name("short_heartbeat_starter.py")
PAUSE_S = 0.3
"""Delay before a client reconnects."""
_CONNECTION_ERRORS = (httpx.TransportError, httpx.StreamError)


class GatewayProcess:
    """A process of `serve --no-worker`, which a test can kill and start again on the same port."""

    def __init__(self, address: str, folder: Path, *, environment: Mapping[str, str]) -> None:
        self._log_path = folder / "gateway.log"
        self._environment = {**environment_of(address, folder), **environment}
        self._process: RunningProcess | None = None
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        """Output of the process so far."""
        return self._log_path.read_text(errors="replace")

    async def start(self) -> None:
        program = (str(SHORT_HEARTBEAT_STARTER),)
        options = ["serve", "--no-worker", "--port", str(self._port), "--tools", str(TOOLS_FILE)]
        with self._log_path.open("ab") as log:
            self._process = await start_program(
                program, options, folder=ROOT, environment=self._environment, stdout=log, stderr=log
            )
        async with httpx.AsyncClient(base_url=self.url, timeout=10) as http:

            async def is_ready() -> bool:
                try:
                    return (await http.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(is_ready)

    async def kill(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, self.log
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


@asynccontextmanager
async def gateway_process(
    address: str, folder: Path, *, environment: Mapping[str, str]
) -> AsyncIterator[GatewayProcess]:
    process = GatewayProcess(address, folder, environment=environment)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


class CompletionClient:
    """Client that streams one completion, and resumes after the last received event until the answer is complete."""

    def __init__(self, url: str, body: Mapping[str, Any], *, key: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._body = {**body, "stream": True}
        self._key = key
        self.answer = ""
        """The combined text of all streams."""
        self._last_event_id: str | None = None
        self.run_ids: set[str] = set()
        self.stream_count = 0
        self.statuses: list[int] = []

    async def follow(self) -> str:
        async with httpx.AsyncClient(timeout=60) as http:
            while not await self._read(http):
                await asyncio.sleep(PAUSE_S)
        return self.answer

    async def _read(self, http: httpx.AsyncClient) -> bool:
        try:
            headers = {
                "Idempotency-Key": self._key,
                **({"Last-Event-ID": self._last_event_id} if self._last_event_id else {}),
            }
            async with http.stream("POST", self._url, json=self._body, headers=headers) as response:
                self.statuses.append(response.status_code)
                if response.status_code != 200:
                    assert response.status_code == 503, await response.aread()
                    return False
                self.stream_count += 1
                self.run_ids.add(response.headers["x-run-id"])
                return await self._read_events(response)
        except _CONNECTION_ERRORS:
            return False

    async def _read_events(self, response: httpx.Response) -> bool:
        async for block in blocks_of(response):
            (event,) = events_of(block)
            self._last_event_id = event.id or self._last_event_id
            if event.content == "[DONE]":
                return True
            if isinstance(event.content, dict):
                assert "error" not in event.content, event.content
                self.answer += "".join(choice["delta"].get("content") or "" for choice in event.content["choices"])
        return False


class EventClient:
    """Client that reads the events of a run until the run ends, and resumes after the last received ID."""

    def __init__(self, url: str, run_id: str) -> None:
        self._url = f"{url}/v1/runs/{run_id}/events"
        self.events: list[NamedEvent] = []
        self.stream_count = 0

    @property
    def node_statuses(self) -> list[tuple[str, str]]:
        nodes = [event.content for event in self.events if event.name.startswith("node.")]
        return [(node["node_id"], node["status"]) for node in nodes]

    async def follow(self) -> list[NamedEvent]:
        async with httpx.AsyncClient(timeout=60) as http:
            while not (self.events and self.events[-1].name == "run.completed"):
                await self._read(http)
                await asyncio.sleep(PAUSE_S)
        return self.events

    async def _read(self, http: httpx.AsyncClient) -> None:
        headers = {"Last-Event-ID": str(self.events[-1].id)} if self.events else {}
        try:
            async with http.stream("GET", self._url, headers=headers) as response:
                if response.status_code != 200:
                    # The run may not have started yet.
                    assert response.status_code in (404, 503), await response.aread()
                    return
                self.stream_count += 1
                async for block in blocks_of(response):
                    # Error events have no ID to resume after.
                    self.events += [event for event in named_events_of(block) if event.name != "error"]
        except _CONNECTION_ERRORS:
            pass


async def wait_until_all(clients: list[Any], condition: Callable[[Any], bool]) -> None:
    await eventually(lambda: all(map(condition, clients)))
