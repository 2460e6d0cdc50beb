"""A server, a worker and a folder for one chaos test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.chaos import FaultPoints, WorkerProcess, worker_process
from tests.support.chaos_tools import make_database
from tests.support.server import LiveServer, live_server


@pytest.fixture
async def private_server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server that no other test uses; the test may kill it."""
    async with live_server(tmp_path / "server") as server:
        yield server
        # Its data is not read again, so an orderly shutdown would only cost time.
        await server.kill_all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder shared by test, tools and worker."""
    shared = tmp_path / "shared"
    shared.mkdir()
    make_database(shared)
    return shared


@pytest.fixture
def points(folder: Path) -> FaultPoints:
    return FaultPoints(folder)


@pytest.fixture
async def worker(private_server: LiveServer, folder: Path) -> AsyncIterator[WorkerProcess]:
    """A worker that the test may kill."""
    async with worker_process(private_server.address, folder) as process:
        yield process
