"""`RunSubscriptions`: one reader serves all subscribers of a run, from any cursor and across executions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.client.run_lists import RunFilter
from dagwright.client.starts import StartRequest
from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import START, Cursor, executions_of
from dagwright.history.run_reader import RunReader
from dagwright.history.run_subscriptions import RunSubscriptions, RunUpdate
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import Handle, Runs, checked_runs, document_of, with_run_error
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, client_runs_of

pytestmark = pytest.mark.server


class _ReaderFactory:
    """Factory that counts the readers that it opens."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.count = 0

    def __call__(self, run_id: str) -> RunReader:
        self.count += 1
        return RunReader(self._client, run_id)


def _plan_with_held_node(gate_name: str) -> dict[str, Any]:
    return plan_of(
        call_node("first", "echo"),
        hold_node("held", gate_name, "first"),
        tool_node("last", "echo", "held", arguments={}),
    )


async def _read_updates(
    subscriptions: RunSubscriptions, handle: Handle, *, after: Cursor | None = None
) -> list[RunUpdate]:
    return [update async for update in subscriptions.subscribe(handle.id, after=after)]


def _statuses_of_changed_nodes(updates: list[RunUpdate]) -> dict[str, str]:
    """Return the status that each changed node has in the last view."""
    scheduler = updates[-1].view.scheduler
    assert scheduler is not None
    node_ids = dict.fromkeys(node_id for update in updates for node_id in update.changed_ids)
    return {node_id: record.status.value for node_id in node_ids if (record := scheduler.record_of(node_id))}


async def test_all_subscribers_of_a_run_share_one_reader(client: Client, cached_runs: Runs, gate: Gate) -> None:
    reader_factory = _ReaderFactory(client)
    subscriptions = RunSubscriptions(reader_factory)
    handle = await cached_runs.start(_plan_with_held_node(gate.name))
    subscription_tasks = [asyncio.create_task(_read_updates(subscriptions, handle)) for _ in range(100)]
    await gate.wait_for_call()
    gate.open()
    document = await document_of(handle)
    update_lists = await asyncio.gather(*subscription_tasks)

    assert reader_factory.count == 1
    expected = [{"first": "completed", "held": "completed", "last": "completed"}] * 100
    assert [_statuses_of_changed_nodes(updates) for updates in update_lists] == expected
    assert all(updates[-1].view.document() == with_run_error(document) for updates in update_lists[:3])


async def test_reader_ends_with_the_last_subscriber(client: Client, cached_runs: Runs, gate: Gate) -> None:
    reader_factory = _ReaderFactory(client)
    subscriptions = RunSubscriptions(reader_factory)
    handle = await cached_runs.start(_plan_with_held_node(gate.name))
    old_tasks = set(asyncio.all_tasks())
    async with (
        aclosing(subscriptions.subscribe(handle.id)) as first_updates,
        aclosing(subscriptions.subscribe(handle.id)) as second_updates,
    ):
        await anext(first_updates)
        await anext(second_updates)
        assert reader_factory.count == 1
    await eventually(lambda: not {task for task in asyncio.all_tasks() - old_tasks if "_Topic" in str(task.get_coro())})
    gate.open()
    await document_of(handle)
    assert _statuses_of_changed_nodes(await _read_updates(subscriptions, handle))["last"] == "completed"
    assert reader_factory.count == 2


async def test_subscriber_continues_from_its_cursor(client: Client, cached_runs: Runs, gate: Gate) -> None:
    subscriptions = RunSubscriptions(_ReaderFactory(client))
    handle = await cached_runs.start(_plan_with_held_node(gate.name))
    changed_ids: list[str] = []
    async with aclosing(subscriptions.subscribe(handle.id)) as updates:
        async for update in updates:
            changed_ids += update.changed_ids
            scheduler = update.view.scheduler
            if scheduler is not None and scheduler.records[1].status == "running":
                cursor = Cursor.parse(str(update.view.cursor))
                break
    gate.open()
    await document_of(handle)
    remaining_updates = await _read_updates(subscriptions, handle, after=cursor)
    all_updates = await _read_updates(subscriptions, handle, after=START)
    updates_after_end = await _read_updates(subscriptions, handle, after=remaining_updates[-1].view.cursor)

    assert list(dict.fromkeys(changed_ids)) == ["first", "held"]
    assert [update.changed_ids for update in remaining_updates] == [("held", "last")]
    assert [update.changed_ids for update in all_updates] == [("first", "held", "last")]
    assert [update.changed_ids for update in updates_after_end] == [()]


async def test_cursor_of_a_missing_execution_is_ignored(client: Client, cached_runs: Runs) -> None:
    handle = await cached_runs.start({"nodes": [call_node("a", "echo")]})
    await document_of(handle)
    subscriptions = RunSubscriptions(lambda run_id: RunReader(client, run_id))
    assert [update.changed_ids for update in await _read_updates(subscriptions, handle, after=Cursor(7, 3))] == [("a",)]


_CHAIN_NODES = 90
_STATUS_RANKS = {NodeStatus.PENDING: 0, NodeStatus.READY: 1, NodeStatus.RUNNING: 2, NodeStatus.COMPLETED: 3}


@pytest.fixture
async def short_history_runs(
    short_history_client: Client, harness: CallHarness, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("kept"))
    async with checked_runs(short_history_client, harness.registry(), settings=settings) as runs:
        yield runs


def _long_chain_plan() -> dict[str, Any]:
    """Return a plan of a chain. Every 30th node reads the result of the previous node; the others only depend on it."""
    nodes: list[dict[str, Any]] = []
    for number in range(_CHAIN_NODES):
        previous_result = f"{{{{n{number - 1}.result}}}}" if number else 0
        nodes.append(call_node(f"n{number}", "echo", n=1))
        if number:
            nodes[-1]["arguments"] = {"previous": previous_result if number % 30 == 0 else number}
            nodes[-1]["depends_on"] = [f"n{number - 1}"]
    return {"nodes": nodes, "output": f"{{{{n{_CHAIN_NODES - 1}.result}}}}", "title": "Long"}


async def _collect_updates(subscriptions: RunSubscriptions, handle: Handle) -> list[tuple[RunUpdate, list[NodeStatus]]]:
    """Return all updates, each with the statuses that the nodes had when the update arrived."""
    updates = []
    async for update in subscriptions.subscribe(handle.id):
        scheduler = update.view.scheduler
        updates.append((update, [record.status for record in scheduler.records] if scheduler else []))
    return updates


async def test_run_can_be_followed_across_executions_from_any_cursor(
    short_history_client: Client, short_history_runs: Runs
) -> None:
    subscriptions = RunSubscriptions(lambda run_id: RunReader(short_history_client, run_id))
    handle = await short_history_runs.start(_long_chain_plan())
    subscription = asyncio.create_task(_collect_updates(subscriptions, handle))
    document = await document_of(handle)
    updates = await subscription
    newest_execution = await short_history_client.get_workflow_handle(handle.id).describe()
    execution_ids = await executions_of(
        short_history_client,
        handle.id,
        first_execution_id=str(handle.first_execution_run_id),
        last_execution_id=newest_execution.run_id,
    )

    cursors = [update.view.cursor for update, _ in updates]
    assert len(execution_ids) > 2
    assert cursors == sorted(cursors)
    assert cursors[-1].execution == len(execution_ids)
    # When a new execution starts, no node returns to an earlier status, and each view still has the plan.
    nonempty_statuses = [statuses for _, statuses in updates if statuses]
    assert [statuses for _, statuses in updates[len(updates) - len(nonempty_statuses) :]] == nonempty_statuses
    for earlier_statuses, later_statuses in pairwise(nonempty_statuses):
        assert all(
            _STATUS_RANKS[earlier] <= _STATUS_RANKS[later]
            for earlier, later in zip(earlier_statuses, later_statuses, strict=True)
        )

    assert updates[-1][0].view.document() == document
    assert document["execution_id"] == execution_ids[-1]
    start_times = [
        (await RunReader(short_history_client, handle.id, execution_id=run_id).read()).started_at
        for run_id in execution_ids
    ]
    assert len(set(start_times)) == 1

    all_changed_ids = {node_id for update, _ in updates for node_id in update.changed_ids}
    assert all_changed_ids == {f"n{number}" for number in range(_CHAIN_NODES)}
    for cursor in (Cursor(1, 40), Cursor(2, 10), cursors[len(cursors) // 2]):
        states_at_cursor = await RunReader(short_history_client, handle.id).states_at(cursor)
        completed_ids_at_cursor = {
            node_id for node_id, state in states_at_cursor.items() if state.status is NodeStatus.COMPLETED
        }
        remaining_updates = [update async for update in subscriptions.subscribe(handle.id, after=cursor)]
        assert [set(update.changed_ids) for update in remaining_updates] == [all_changed_ids - completed_ids_at_cursor]
        assert cursor.execution == 1 or completed_ids_at_cursor


async def test_run_with_many_executions_is_listed_once(short_history_client: Client, short_history_runs: Runs) -> None:
    runs = client_runs_of(short_history_runs)
    started_run = await runs.start(
        StartRequest(prepare_plan(check_plan(_long_chain_plan(), short_history_runs.tools), {}))
    )
    await document_of(short_history_client.get_workflow_handle(started_run.run_id))
    first_execution = await short_history_client.get_workflow_handle(
        started_run.run_id, run_id=started_run.execution_id
    ).describe()

    async def is_listed() -> bool:
        return bool(await runs.list_runs(run_filter=RunFilter(title=started_run.run_id, status="completed")))

    await eventually(is_listed)
    (listed_run,) = await runs.list_runs(run_filter=RunFilter(title=started_run.run_id))
    expected = ("completed", _CHAIN_NODES, _CHAIN_NODES)
    assert (listed_run.status, listed_run.nodes_done, listed_run.nodes_total) == expected
    assert listed_run.started_at is not None
    assert abs(listed_run.started_at - first_execution.start_time) < timedelta(milliseconds=10)
