"""Workers that serve plans for the workflow tests, with and without a workflow cache."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.activities import call_limits
from dagwright.core.boundary import limits, wire
from dagwright.plans import pages
from dagwright.server import local
from dagwright.server.call_limits import list_limits
from dagwright.settings import Settings
from tests.support.foreign import foreign_worker, with_tools
from tests.support.goals import scripted_runs
from tests.support.runs import Runs, serving_runs
from tests.support.server import live_server
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, ServeScript


@pytest.fixture(scope="session")
def harness() -> CallHarness:
    """State that tests and tools share. Each test uses unique names."""
    return CallHarness()


@pytest.fixture(scope="session")
async def cached_runs(
    client: Client, harness: CallHarness, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("cached"))
    async with serving_runs(client, harness.registry(), settings=settings) as runs:
        yield runs


@pytest.fixture(scope="session")
async def uncached_runs(
    client: Client, harness: CallHarness, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("uncached"))
    async with serving_runs(client, harness.registry(), settings=settings, has_workflow_cache=False) as runs:
        yield runs


@pytest.fixture
def has_workflow_cache(request: pytest.FixtureRequest) -> bool:
    """Whether the worker caches workflows: false only in tests marked `without_cache`."""
    return bool(getattr(request, "param", True))


@pytest.fixture
def served_runs(request: pytest.FixtureRequest, *, has_workflow_cache: bool) -> Runs:
    """Runs of the worker with or without a workflow cache. Each worker starts when it is first used."""
    return cast(Runs, request.getfixturevalue("cached_runs" if has_workflow_cache else "uncached_runs"))


@pytest.fixture
async def runs(served_runs: Runs) -> AsyncIterator[Runs]:
    """Runs of a worker. At the end of a test, the histories of the runs are checked and replayed."""
    yield served_runs
    await served_runs.check_runs()


@pytest.fixture
async def foreign_runs(runs: Runs, client: Client) -> AsyncIterator[Runs]:
    """Runs whose plans may call activities of another program's worker."""
    async with foreign_worker(client) as tools:
        runs_with_tools = with_tools(runs, tools)
        yield runs_with_tools
        await runs_with_tools.check_runs()


@pytest.fixture
def serve_script(client: Client, tmp_path: Path) -> ServeScript:
    """Serve runs with a scripted model. Each test has a separate state folder."""
    return partial(scripted_runs, client, tmp_path)


@pytest.fixture(scope="module")
async def short_history_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests continue-as-new after 150 events."""
    with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": "150"}):
        async with live_server(tmp_path_factory.mktemp("eager")) as live:
            yield await live.start()


@pytest.fixture(scope="module")
def low_history_limits() -> Iterator[None]:
    """History limits that a small run reaches. Waits before continue-as-new and before sub-plan checks are short."""
    with patch.multiple(limits, DRAIN_AT_EVENTS=400, HISTORY_DRAIN_S=0.3, SUB_PLAN_CHECK_S=0.3):
        yield


@pytest.fixture(scope="module")
def small_pages() -> Iterator[None]:
    """Send plans of over 400 nodes in pages and offload their regions. The normal limit is 2,000 nodes."""
    with patch.object(pages, "MAX_INLINE_PLAN_NODES", 400):
        yield


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name that is unique to a test and its parameters."""
    return str(request.node.name)


@pytest.fixture
def gate(harness: CallHarness, unique_name: str) -> Gate:
    return Gate(harness, unique_name)


@pytest.fixture
async def uncached_limits(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """List the limits and holds before every call, and terminate all limits after the test."""
    monkeypatch.setattr(call_limits, "FRESH_S", 0.0)
    monkeypatch.setattr(call_limits, "STALE_S", 0.0)
    yield
    for subject in await list_limits(client):
        await client.get_workflow_handle(f"{wire.ID_CALL_LIMIT}{subject}").terminate()
