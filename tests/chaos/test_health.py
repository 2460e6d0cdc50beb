"""The health endpoints of a worker while its Temporal server is killed and restarted."""

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.chaos import ROOT, worker_process
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.server import LiveServer

pytestmark = pytest.mark.server


async def test_worker_is_alive_but_not_ready_while_temporal_is_down(private_server: LiveServer, folder: Path) -> None:
    port = free_port()
    environment = {"DAGWRIGHT_HEALTH_ADDRESS": f"127.0.0.1:{port}"}
    async with (
        worker_process(private_server.address, folder, environment=environment),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http,
    ):

        async def get_status(path: str) -> int:
            try:
                return (await http.get(path)).status_code
            except httpx.TransportError:
                return 0

        async def is_ready() -> bool:
            return await get_status("/readyz") == 200

        async def is_unready() -> bool:
            return await get_status("/readyz") == 503

        await eventually(is_ready)
        command = [sys.executable, "-I", "-S", str(ROOT / "docker" / "probe.py"), str(port), "/readyz"]
        probes = [await asyncio.create_subprocess_exec(*command) for _ in range(20)]
        assert {await probe.wait() for probe in probes} == {0}

        await private_server.kill()
        await eventually(is_unready)
        assert await get_status("/livez") == 200

        await private_server.start()
        await eventually(is_ready)
