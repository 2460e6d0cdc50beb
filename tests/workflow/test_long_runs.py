"""Runs that go on in new executions: nothing is lost, nothing is done twice, and nobody has to notice.

The server of these tests suggests a new execution after 150 events, and the marks are as low.
"""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.contracts import limits, wire
from dagwright.contracts.idempotency import idempotency_key
from dagwright.server import local
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, context, tool
from tests.support.runs import (
    Runs,
    chain_of,
    document_of,
    end_of,
    serving_runs,
)
from tests.support.server import live_server
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_SUGGESTED_AT = {"limit.historyCount.suggestContinueAsNew": "150"}


@pytest.fixture(scope="module")
async def eager_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server that suggests a new execution early."""
    with patch.dict(local.DYNAMIC_CONFIG, _SUGGESTED_AT):
        async with live_server(tmp_path_factory.mktemp("eager")) as live:
            yield await live.start()


@pytest.fixture(scope="module", autouse=True)
def low_marks() -> Iterator[None]:
    """Hard marks that a small run reaches."""
    with patch.multiple(limits, HARD_MARK_EVENTS=400, DRAIN_S=0.3):
        yield


@pytest.fixture(scope="module")
def keys() -> dict[str, list[str]]:
    """Name of a step -> the idempotency key of every time its effect was made."""
    return {}


@pytest.fixture(scope="module")
def registry(bench: Bench, keys: dict[str, list[str]]) -> ToolRegistry:
    @tool(effects="idempotent")
    async def count(name: str, values: list[int]) -> int:
        keys.setdefault(name, []).append(context().idempotency_key)
        return 1 + sum(values) % 1_000_003

    found = bench.registry()
    return ToolRegistry.of(*found, count)


@pytest.fixture(scope="module")
async def kept(
    eager_client: Client, registry: ToolRegistry, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("kept"))
    async with serving_runs(eager_client, registry, settings=settings) as runs:
        yield runs


@pytest.fixture(scope="module")
async def replayed(
    eager_client: Client, registry: ToolRegistry, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("replayed"))
    async with serving_runs(eager_client, registry, settings=settings, keeps_state=False) as runs:
        yield runs


@pytest.fixture(params=["kept", "replayed"])
async def runs(request: pytest.FixtureRequest, kept: Runs, replayed: Runs) -> AsyncIterator[Runs]:
    """Runs of a worker with and of one without memory; what a test started is checked when it ends."""
    found = kept if request.param == "kept" else replayed
    yield found
    await found.check_ended()


def _counting(size: int, *, width: int, prefix: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Returns a plan in which every value hangs on some before it, and the right value of every node."""
    chance = random.Random(size)
    nodes: list[dict[str, Any]] = []
    values: dict[str, int] = {}
    for number in range(size):
        # The last `width` nodes may run at once.
        before = (
            sorted(chance.sample(range(max(0, number - 3 * width), number - width + 1), 2)) if number > width else []
        )
        needed = [f"{prefix}{earlier}" for earlier in before]
        name = f"{prefix}{number}"
        values[name] = 1 + sum(values[earlier] for earlier in needed) % 1_000_003
        arguments = {"name": name, "values": [f"{{{{{earlier}.result}}}}" for earlier in needed]}
        nodes.append({"id": name, "tool": "count", "arguments": arguments})
    last = list(values)[-width:]
    return {"nodes": nodes, "output": {name: f"{{{{{name}.result}}}}" for name in last}}, values


async def test_two_thousand_steps_over_many_executions(kept: Runs, keys: dict[str, list[str]]) -> None:
    plan, values = _counting(2_000, width=30, prefix="w")
    handle = await kept.start(plan)
    document = await document_of(handle)
    chain = await chain_of(kept.client, handle)
    assert len(chain) > 5
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["completed"]
    assert {name: keys[name] for name in values} == {
        name: [idempotency_key(str(handle.first_execution_run_id), [["node", name]])] for name in values
    }
    assert document["output"] == {name: values[name] for name in document["output"]}
    assert document["run_id"] == chain[-1].run_id
    memo = await (await handle.describe()).memo()
    began = (await kept.client.get_workflow_handle(handle.id, run_id=chain[0].run_id).describe()).start_time
    assert memo == {wire.MEMO_BEGAN: began.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    await kept.check_ended()


async def test_chain_of_steps_goes_on_when_nothing_is_in_flight(runs: Runs) -> None:
    size = 60
    nodes = [{"id": "n0", "tool": "add", "arguments": {"left": 0, "right": 1}}]
    for number in range(1, size):
        left = f"{{{{n{number - 1}.result}}}}"
        nodes.append({"id": f"n{number}", "tool": "add", "arguments": {"left": left, "right": 1}})
    handle = await runs.start({"nodes": nodes})
    assert (await document_of(handle))["output"] == {f"n{size - 1}": float(size)}
    assert len(await chain_of(runs.client, handle)) >= 3


async def test_signals_that_come_at_any_moment_are_all_taken(kept: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown signals and reports of nobody are noted one by one, so their count shows whether one was lost."""
    monkeypatch.setattr(limits, "NOTES", 10_000)
    plan, _ = _counting(400, width=10, prefix="s")
    handle = await kept.start(plan)
    sent = 0
    with suppress(RPCError):
        # Until the run has ended and takes none any more.
        while True:
            name = ("odd", wire.SIGNAL_SUB_PLAN_ENDED)[sent % 2]
            await kept.client.get_workflow_handle(handle.id).signal(name, {"task": "s1"})
            sent += 1
    document = await document_of(handle)
    assert document["status"] == "completed"
    assert len(await chain_of(kept.client, handle)) > 2
    assert len(document["notes"]) == sent
    await kept.check_ended()
