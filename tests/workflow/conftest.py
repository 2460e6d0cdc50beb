"""Workers that serve plans for the workflow tests: one that keeps runs in memory, and one that never does."""

from collections.abc import AsyncIterator, Iterator
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.contracts import limits
from dagwright.server import local
from dagwright.settings import Settings
from tests.support.runs import Runs, serving_runs
from tests.support.server import live_server
from tests.support.tools import Bench


@pytest.fixture(scope="session")
def bench() -> Bench:
    """What tests and tools share; use names that no other test has."""
    return Bench()


@pytest.fixture(scope="session")
async def kept_runs(client: Client, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("kept"))
    async with serving_runs(client, bench.registry(), settings=settings) as runs:
        yield runs


@pytest.fixture(scope="session")
async def replayed_runs(client: Client, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("replayed"))
    async with serving_runs(client, bench.registry(), settings=settings, keeps_state=False) as runs:
        yield runs


@pytest.fixture(params=["kept", "replayed"])
async def runs(request: pytest.FixtureRequest, kept_runs: Runs, replayed_runs: Runs) -> AsyncIterator[Runs]:
    """Runs of a worker with and of one without memory; what a test started is checked when it ends."""
    found = kept_runs if request.param == "kept" else replayed_runs
    yield found
    await found.check_ended()


@pytest.fixture(scope="module")
async def eager_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new execution after 150 events."""
    with patch.dict(local.DYNAMIC_CONFIG, {"limit.historyCount.suggestContinueAsNew": "150"}):
        async with live_server(tmp_path_factory.mktemp("eager")) as live:
            yield await live.start()


@pytest.fixture(scope="module")
def low_marks() -> Iterator[None]:
    """Hard marks that a small run reaches, and short waits before it goes on elsewhere and looks after others."""
    with patch.multiple(limits, HARD_MARK_EVENTS=400, DRAIN_S=0.3, LOOK_S=0.3):
        yield


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that belongs to one test with one set of parameters."""
    return str(request.node.name)
