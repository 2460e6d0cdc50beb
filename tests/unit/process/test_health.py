"""The health endpoints of a process, and the probe that containers run."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from dagwright.process import health
from dagwright.process.health import Readiness, serving_health
from dagwright.process.listening import open_socket

_PROBE = Path(__file__).parents[3] / "docker" / "probe.py"


@asynccontextmanager
async def _health_server(check: Callable[[], Awaitable[None]]) -> AsyncIterator[int]:
    listener = open_socket("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    async with serving_health(listener, Readiness({"temporal": check})):
        yield port


def _probe(port: int, path: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", *options, str(_PROBE), str(port), path]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


async def test_failed_check_fails_readiness_but_not_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RESULT_MAX_AGE_S", 0.0)
    problems: list[str] = []

    async def check() -> None:
        if problems:
            raise OSError(problems[0])

    async with _health_server(check) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        ready_response = await http.get("/readyz")
        problems.append("the server at 10.0.0.1 does not answer")
        unready_response, liveness_response = await http.get("/readyz"), await http.get("/livez")
        problems.clear()
        recovered_response = await http.get("/readyz")
    assert (ready_response.status_code, ready_response.json()) == (200, {"status": "ok", "checks": {"temporal": "ok"}})
    # The endpoint is public. Only the log has the reason.
    assert unready_response.json() == {"status": "unavailable", "checks": {"temporal": "failed"}}
    assert (unready_response.status_code, unready_response.headers["retry-after"]) == (503, "2")
    assert (liveness_response.status_code, recovered_response.status_code) == (200, 200)


async def test_blocked_event_loop_fails_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOP_TIMEOUT_S", 0.2)
    async with _health_server(_pass_check) as port:
        # This call blocks the event loop until the probe ends.
        probe_while_blocked = _probe(port, "/livez")
        probe_while_free = await asyncio.to_thread(_probe, port, "/livez")
    assert (probe_while_blocked.returncode, probe_while_blocked.stderr) == (1, "status 503\n")
    assert (probe_while_free.returncode, probe_while_free.stderr) == (0, "")


async def test_hanging_check_or_draining_makes_the_process_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_TIMEOUT_S", 0.05)

    async def hang() -> None:
        await asyncio.Event().wait()

    assert await Readiness({"store": hang}).problems() == {"store": "no response within 0.05 s"}
    stop_event = asyncio.Event()
    readiness = Readiness({}, stop_event=stop_event)
    assert (await readiness.response()).status_code == 200
    stop_event.set()
    response = await readiness.response()
    assert (response.status_code, response.body) == (503, b'{"status":"draining"}')


async def _pass_check() -> None:
    pass


def test_probe_fails_on_an_unused_port_and_imports_only_light_modules() -> None:
    with socket.socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        result = _probe(unused_socket.getsockname()[1], "/livez")
    assert (result.returncode, result.stderr[:13]) == (1, "no response: ")
    import_log = _probe(1, "/livez", "-X", "importtime").stderr
    assert not [name for name in ("temporalio", "dagwright", "asyncio", "ssl") if name in import_log]
