"""`RunSubscriptions`: one reader for all subscribers, resumed from an offset, over several executions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.client.run_lists import RunFilter
from dagwright.client.runs import Runs as ClientRuns
from dagwright.client.starts import StartRequest
from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import START, Cursor, executions_of
from dagwright.history.run_reader import RunReader
from dagwright.history.run_subscriptions import RunSubscriptions, RunUpdate
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.store import open_store
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, document_of, serving_runs, with_run_error
from tests.support.tools import Bench

pytestmark = pytest.mark.server


class _Opened:
    """Opens subscriptions and counts them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.count = 0

    def __call__(self, workflow_id: str) -> RunReader:
        self.count += 1
        return RunReader(self._client, workflow_id)


def _chain(name: str) -> dict[str, Any]:
    return {
        "nodes": [
            {"id": "first", "tool": "echo", "arguments": {}},
            {"id": "held", "tool": "hold", "arguments": {"name": name}, "depends_on": ["first"]},
            {"id": "last", "tool": "echo", "arguments": {}, "depends_on": ["held"]},
        ]
    }


async def _all_of(subscriptions: RunSubscriptions, handle: Handle, *, after: Cursor | None = None) -> list[RunUpdate]:
    return [update async for update in subscriptions.subscribe(handle.id, after=after)]


def _states(updates: list[RunUpdate]) -> dict[str, str]:
    """Return the final states of the tasks in the events."""
    scheduler = updates[-1].view.scheduler
    assert scheduler is not None
    tasks = dict.fromkeys(task for update in updates for task in update.changed)
    return {task: record.status.value for task in tasks if (record := scheduler.record_of(task))}


async def test_a_hundred_subscribers_share_one_reader(
    client: Client, cached_runs: Runs, bench: Bench, unique: str
) -> None:
    opened = _Opened(client)
    subscriptions = RunSubscriptions(opened)
    handle = await cached_runs.start(_chain(unique))
    watching = [asyncio.create_task(_all_of(subscriptions, handle)) for _ in range(100)]
    await eventually(lambda: unique in bench.entered)
    bench.open(unique)
    written = await document_of(handle)
    result = await asyncio.gather(*watching)

    assert opened.count == 1
    assert [_states(updates) for updates in result] == [
        {"first": "completed", "held": "completed", "last": "completed"}
    ] * 100
    assert all(updates[-1].view.document() == with_run_error(written) for updates in result[:3])


async def test_reader_ends_with_the_last_subscriber(
    client: Client, cached_runs: Runs, bench: Bench, unique: str
) -> None:
    opened = _Opened(client)
    subscriptions = RunSubscriptions(opened)
    handle = await cached_runs.start(_chain(unique))
    tasks = set(asyncio.all_tasks())
    async with (
        aclosing(subscriptions.subscribe(handle.id)) as first,
        aclosing(subscriptions.subscribe(handle.id)) as second,
    ):
        await anext(first)
        await anext(second)
        assert opened.count == 1
    await eventually(lambda: not {task for task in asyncio.all_tasks() - tasks if "_Topic" in str(task.get_coro())})
    bench.open(unique)
    await document_of(handle)
    assert _states(await _all_of(subscriptions, handle))["last"] == "completed"
    assert opened.count == 2


async def test_subscriber_continues_from_its_cursor(
    client: Client, cached_runs: Runs, bench: Bench, unique: str
) -> None:
    subscriptions = RunSubscriptions(_Opened(client))
    handle = await cached_runs.start(_chain(unique))
    seen: list[str] = []
    async with aclosing(subscriptions.subscribe(handle.id)) as updates:
        async for update in updates:
            seen += update.changed
            scheduler = update.view.scheduler
            if scheduler is not None and scheduler.records[1].status == "running":
                cursor = Cursor.parse(str(update.view.cursor))
                break
    bench.open(unique)
    await document_of(handle)
    rest = await _all_of(subscriptions, handle, after=cursor)
    again = await _all_of(subscriptions, handle, after=START)
    nothing_new = await _all_of(subscriptions, handle, after=rest[-1].view.cursor)

    assert list(dict.fromkeys(seen)) == ["first", "held"]
    assert [update.changed for update in rest] == [("held", "last")]
    assert [update.changed for update in again] == [("first", "held", "last")]
    assert [update.changed for update in nothing_new] == [()]


async def test_offset_of_an_execution_that_is_not_kept_counts_for_nothing(client: Client, cached_runs: Runs) -> None:
    handle = await cached_runs.start({"nodes": [{"id": "a", "tool": "echo", "arguments": {}}]})
    await document_of(handle)
    subscriptions = RunSubscriptions(lambda workflow_id: RunReader(client, workflow_id))
    assert [update.changed for update in await _all_of(subscriptions, handle, after=Cursor(7, 3))] == [("a",)]


_SIZE = 90
_RANK = {NodeStatus.PENDING: 0, NodeStatus.READY: 1, NodeStatus.RUNNING: 2, NodeStatus.COMPLETED: 3}


@pytest.fixture
async def eager_runs(
    eager_client: Client, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("kept"))
    async with serving_runs(eager_client, bench.registry(), settings=settings) as runs:
        yield runs
        await runs.check_runs()


def _long_chain() -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for number in range(_SIZE):
        left = f"{{{{n{number - 1}.result}}}}" if number else 0
        nodes.append({"id": f"n{number}", "tool": "echo", "arguments": {"n": 1}, "depends_on": []})
        if number:
            nodes[-1]["arguments"] = {"before": left if number % 30 == 0 else number}
            nodes[-1]["depends_on"] = [f"n{number - 1}"]
    return {"nodes": nodes, "output": f"{{{{n{_SIZE - 1}.result}}}}", "title": "Long"}


async def _collect_updates(subscriptions: RunSubscriptions, handle: Handle) -> list[tuple[RunUpdate, list[NodeStatus]]]:
    """Return all updates, each with the states that it showed when it came."""
    actual = []
    async for update in subscriptions.subscribe(handle.id):
        scheduler = update.view.scheduler
        actual.append((update, [record.status for record in scheduler.records] if scheduler else []))
    return actual


async def test_run_is_followed_over_executions_from_any_offset(eager_client: Client, eager_runs: Runs) -> None:
    subscriptions = RunSubscriptions(lambda workflow_id: RunReader(eager_client, workflow_id))
    handle = await eager_runs.start(_long_chain())
    watching = asyncio.create_task(_collect_updates(subscriptions, handle))
    written = await document_of(handle)
    seen = await watching
    newest = await eager_client.get_workflow_handle(handle.id).describe()
    executions = await executions_of(
        eager_client, handle.id, first_run_id=str(handle.first_execution_run_id), last_run_id=newest.run_id
    )

    offsets = [update.view.cursor for update, _ in seen]
    assert len(executions) > 2
    assert offsets == sorted(offsets)
    assert offsets[-1].run == len(executions)
    # Readers do not see a node go back or the plan disappear when a new execution starts.
    planned = [states for _, states in seen if states]
    assert [states for _, states in seen[len(seen) - len(planned) :]] == planned
    for before, after in pairwise(planned):
        assert all(_RANK[old] <= _RANK[new] for old, new in zip(before, after, strict=True))

    document = seen[-1][0].view.document()
    assert document == written
    assert (document["execution_id"], document["nodes"]["n0"]["started_at"]) == (
        executions[-1],
        written["nodes"]["n0"]["started_at"],
    )
    started = [(await RunReader(eager_client, handle.id, run_id=run).read()).started_at for run in executions]
    assert len(set(started)) == 1

    result = {task for update, _ in seen for task in update.changed}
    assert result == {f"n{number}" for number in range(_SIZE)}
    for offset in (Cursor(1, 40), Cursor(2, 10), offsets[len(offsets) // 2]):
        at_offset = await RunReader(eager_client, handle.id).states_at(offset)
        done_before = {task for task, state in at_offset.items() if state.status is NodeStatus.COMPLETED}
        rest = [update async for update in subscriptions.subscribe(handle.id, after=offset)]
        assert [set(update.changed) for update in rest] == [result - done_before]
        assert offset.run == 1 or done_before


async def test_list_shows_a_run_of_many_executions_once(eager_client: Client, eager_runs: Runs, tmp_path: Path) -> None:
    connection = Connection(eager_client, Server("here", eager_client.namespace), frozenset())
    runs = ClientRuns(connection, task_queue=eager_runs.task_queue, store=open_store(str(tmp_path)))
    started_run = await runs.start(StartRequest(prepare_plan(check_plan(_long_chain(), eager_runs.tools), {})))
    await document_of(eager_client.get_workflow_handle(started_run.workflow_id))
    first = await eager_client.get_workflow_handle(started_run.workflow_id, run_id=started_run.run_id).describe()

    async def is_listed() -> bool:
        return bool(await runs.list_runs(run_filter=RunFilter(title=started_run.workflow_id, status="completed")))

    await eventually(is_listed)
    (mine,) = await runs.list_runs(run_filter=RunFilter(title=started_run.workflow_id))
    assert (mine.status, mine.nodes_done, mine.nodes_total) == ("completed", _SIZE, _SIZE)
    assert mine.started_at is not None
    assert abs(mine.started_at - first.start_time) < timedelta(milliseconds=10)
