"""Runs that continue as new: no state is lost, no effect is repeated, and clients see one run.

The server of these tests suggests continue-as-new after 150 events. The fixture `low_history_limits` lowers the
limits of the run itself.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from dagwright.core.boundary import limits, wire
from dagwright.core.scheduler import map_items
from dagwright.protocol import run_snapshot
from dagwright.protocol.idempotency import idempotency_key
from dagwright.protocol.messages import read_message
from dagwright.settings import Settings
from dagwright.store.folder import FolderStore
from dagwright.tools import ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of
from tests.support.runs import (
    Handle,
    Runs,
    bare_document,
    cancelled_node,
    chain_of,
    completed_node,
    document_of,
    end_of,
    events_of,
    scheduled_calls,
    serving_runs,
    without_cache,
)
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, ended_document, wait_for_continue_as_new
from tests.workflow.test_store_outages import outage

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("low_history_limits")]


@pytest.fixture(scope="module")
def keys() -> dict[str, list[str]]:
    """The idempotency keys of the calls of `count`, by the argument `name`. The tool adds a key for each call."""
    return {}


@pytest.fixture(scope="module")
def registry(harness: CallHarness, keys: dict[str, list[str]]) -> ToolRegistry:
    @tool(effects="idempotent")
    async def count(name: str, values: list[int]) -> int:
        keys.setdefault(name, []).append(context().idempotency_key)
        return 1 + sum(values) % 1_000_003

    return ToolRegistry.of(*harness.registry(), count)


@pytest.fixture(scope="module")
async def cached_runs(
    short_history_client: Client, registry: ToolRegistry, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("cached"))
    async with serving_runs(short_history_client, registry, settings=settings) as runs:
        yield runs


@pytest.fixture(scope="module")
async def uncached_runs(
    short_history_client: Client, registry: ToolRegistry, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("uncached"))
    async with serving_runs(short_history_client, registry, settings=settings, has_workflow_cache=False) as runs:
        yield runs


def _counting_plan_and_values(size: int, *, width: int, prefix: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a plan in which every value depends on earlier values, and the expected value of every node."""
    random_source = random.Random(size)
    nodes: list[dict[str, Any]] = []
    values: dict[str, int] = {}
    for number in range(size):
        # Each node depends on nodes at least `width` positions earlier, so that `width` nodes can run concurrently.
        earlier_numbers = (
            sorted(random_source.sample(range(max(0, number - 3 * width), number - width + 1), 2))
            if number > width
            else []
        )
        needed_ids = [f"{prefix}{earlier}" for earlier in earlier_numbers]
        node_id = f"{prefix}{number}"
        values[node_id] = 1 + sum(values[needed_id] for needed_id in needed_ids) % 1_000_003
        arguments = {"name": node_id, "values": [f"{{{{{needed_id}.result}}}}" for needed_id in needed_ids]}
        nodes.append({"id": node_id, "tool": "count", "arguments": arguments})
    last_ids = list(values)[-width:]
    return {"nodes": nodes, "output": {node_id: f"{{{{{node_id}.result}}}}" for node_id in last_ids}}, values


async def test_each_node_runs_once_across_executions(
    cached_runs: Runs, keys: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_AT_EVENTS", 150)
    plan, values = _counting_plan_and_values(140, width=10, prefix="w")
    handle = await cached_runs.start(plan)
    document = await document_of(handle)
    chain = await chain_of(cached_runs.client, handle)
    assert len(chain) > 2
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["completed"]
    assert {node_id: keys[node_id] for node_id in values} == {
        node_id: [idempotency_key(str(handle.first_execution_run_id), [["node", node_id]])] for node_id in values
    }
    assert document["output"] == {node_id: values[node_id] for node_id in document["output"]}
    assert document["execution_id"] == chain[-1].run_id
    memo = await (await handle.describe()).memo()
    start_time = (await cached_runs.client.get_workflow_handle(handle.id, run_id=chain[0].run_id).describe()).start_time
    assert memo == {wire.MEMO_STARTED_AT: start_time.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    await cached_runs.check_runs()


async def test_no_signal_is_lost_while_a_run_continues_as_new(
    cached_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each signal of this test is rejected and adds a note to the run. A missing note would be a lost signal."""
    monkeypatch.setattr(limits, "MAX_NOTES", 10_000)
    monkeypatch.setattr(limits, "DRAIN_AT_EVENTS", 150)
    plan, _ = _counting_plan_and_values(110, width=10, prefix="s")
    handle = await cached_runs.start(plan)
    sent_count = 0
    with suppress(RPCError):
        # An ended run accepts no more signals.
        while True:
            signal = ("unknown_signal", wire.SIGNAL_SUB_PLAN_ENDED)[sent_count % 2]
            await cached_runs.client.get_workflow_handle(handle.id).signal(signal, {"task": "s1"})
            sent_count += 1
    document = await document_of(handle)
    assert document["status"] == "completed"
    assert len(await chain_of(cached_runs.client, handle)) > 2
    assert len(document["notes"]) == sent_count
    await cached_runs.check_runs()


async def test_large_snapshot_is_stored_in_the_payload_store(runs: Runs) -> None:
    with patch.multiple(limits, MAX_INLINE_STATE_BYTES=100), patch.object(run_snapshot, "MAX_PIECE_CHARACTERS", 300):
        handle = await runs.start({"nodes": [*_chains(60, "n"), tool_node("after", "echo", "n59")]})
        assert bare_document(await document_of(handle))["output"] == {"after": {}}
        chain = await chain_of(runs.client, handle)
        await runs.check_runs()
    start_attributes = [history.events[0].workflow_execution_started_event_attributes for history in chain[1:]]
    snapshots = [read_message(attributes.input.payloads[0])["snapshot"] for attributes in start_attributes]
    assert all(len(snapshot["refs"]) > 1 and "state" not in snapshot for snapshot in snapshots)
    assert len(chain) > 1


async def _snapshot_activity_ids(handle: Handle) -> list[str]:
    """Return the IDs of the activities that store the snapshot of a run."""
    activity_ids = [scheduled_call.activity_id for scheduled_call in scheduled_calls(await handle.fetch_history())]
    return [activity_id for activity_id in activity_ids if activity_id.startswith(wire.ID_PUT_STATE)]


async def test_deadline_applies_during_an_outage_of_the_store(
    short_history_client: Client, registry: ToolRegistry, tmp_path: Path
) -> None:
    (tmp_path / "payloads").mkdir()
    small_snapshots = patch.multiple(limits, MAX_INLINE_STATE_BYTES=100)
    async with serving_runs(short_history_client, registry, settings=Settings(state_dir=tmp_path)) as runs:
        with small_snapshots, outage(tmp_path):
            handle = await runs.start({"deadline": "9s", "nodes": _chains(40, "n")})
            document = bare_document(await document_of(handle))
            await runs.check_runs()
    message = "deadline_exceeded: the run exceeded its deadline"
    assert (document["status"], document["error"]) == ("failed", message)
    assert await _snapshot_activity_ids(handle) == ["~put state 1"]


async def test_run_whose_snapshot_is_permanently_rejected_fails_and_keeps_its_results(
    short_history_client: Client, registry: ToolRegistry, harness: CallHarness, tmp_path: Path, unique_name: str
) -> None:
    """Neither an error of the store nor a manual failure by an operator is reported as a bug.

    This is guard F21 of docs/contributing/guards.md.
    """
    error = ApplicationError("given up manually", non_retryable=True)
    small_snapshots = patch.multiple(limits, MAX_INLINE_STATE_BYTES=100)
    async with serving_runs(short_history_client, registry, settings=Settings(state_dir=tmp_path)) as runs:
        with small_snapshots, patch.object(FolderStore, "put", side_effect=error):
            handle = await runs.start({"nodes": [_held_sub_plan_node(unique_name), *_chains(60, "n")]})
            document = bare_document(await document_of(handle))
            await runs.check_runs()
    message = "the history is full, and the payload store permanently rejected the state of the run: given up manually"
    assert (document["status"], document["error"]) == ("failed", f"store_rejected: {message}")
    assert document["nodes"]["n0"] == completed_node(1.0)
    assert document["nodes"]["n59"] == cancelled_node(message)
    assert document["nodes"]["sub"] == cancelled_node("the sub-plan was cancelled")


async def test_snapshot_is_stored_again_with_a_new_activity_id_when_a_sub_plan_ends(
    short_history_client: Client, registry: ToolRegistry, harness: CallHarness, tmp_path: Path, unique_name: str
) -> None:
    (tmp_path / "payloads").mkdir()
    plan = {"nodes": [_held_sub_plan_node(unique_name), *_chains(60, "n")]}
    small_snapshots = patch.multiple(limits, MAX_INLINE_STATE_BYTES=100)
    async with serving_runs(short_history_client, registry, settings=Settings(state_dir=tmp_path)) as runs:
        with small_snapshots:
            with outage(tmp_path):
                handle = await runs.start(plan)
                first_execution = runs.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)

                async def has_snapshot_activities(count: int) -> bool:
                    return len(await _snapshot_activity_ids(first_execution)) >= count

                await eventually(partial(has_snapshot_activities, 1), timeout_s=30)
                harness.open(unique_name)
                await eventually(partial(has_snapshot_activities, 2), timeout_s=30)
            document = bare_document(await document_of(handle))
            await runs.check_runs()
    assert document["output"] == {"sub": unique_name, "n59": 60.0}
    activity_ids = await _snapshot_activity_ids(first_execution)
    assert activity_ids == [f"~put state {number}" for number in range(1, len(activity_ids) + 1)]


# Sub-plans of runs that continue as new.


def _chains(count: int, prefix: str, *, width: int = 1) -> list[dict[str, Any]]:
    """Return `count` nodes in `width` chains."""
    nodes = []
    for number in range(count):
        left: Any = f"{{{{{prefix}{number - width}.result}}}}" if number >= width else 0
        nodes.append(call_node(f"{prefix}{number}", "plus", left=left, right=1))
    return nodes


async def test_large_map_completes_while_parent_and_batches_continue_as_new(
    cached_runs: Runs, keys: dict[str, list[str]], unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent continues as new while its map batches run, and each batch continues as new between its items."""
    monkeypatch.setattr(map_items, "MAP_BATCH_ITEMS", 60)
    map_node = tool_node(
        "many",
        "count",
        for_each=list(range(201)),
        key="k{{item}}",
        when="item < 50 || item > 190",
        max_parallel=4,
        arguments={"name": f"{unique_name} {{{{index}}}}", "values": ["{{item}}"]},
    )
    dependent_node = call_node("after", "echo", last="{{many.result[200]}}")
    plan = {"nodes": [map_node, *_chains(60, "n"), dependent_node], "output": "{{after.result}}"}
    handle = await cached_runs.start(plan)
    document = await document_of(handle)
    assert document["output"] == {"last": 201}
    assert document["nodes"]["many"]["items"] == {"completed": 60, "skipped": 141}
    executed_items = [*range(50), *range(191, 201)]
    full_document = await cached_runs.read_document(handle, full=True)
    assert full_document["nodes"]["many"]["result"] == [1 + n if n in executed_items else None for n in range(201)]
    execution_id = str(handle.first_execution_run_id)
    assert {name: name_keys for name, name_keys in keys.items() if name.startswith(f"{unique_name} ")} == {
        f"{unique_name} {n}": [idempotency_key(execution_id, [["node", "many"], ["item", f"k{n}"]])]
        for n in executed_items
    }
    assert len(await chain_of(cached_runs.client, handle)) > 1
    batch_history = await cached_runs.client.get_workflow_handle(f"{handle.id}/many[0-50]").fetch_history()
    assert batch_history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    await cached_runs.check_runs()


def _held_sub_plan_node(gate_name: str) -> dict[str, Any]:
    return {"id": "sub", "plan": {"nodes": [hold_node("hold", gate_name, heartbeat="1s")], "output": "{{hold.result}}"}}


async def _start_with_held_sub_plan(runs: Runs, gate: Gate) -> tuple[Handle, Handle]:
    """Start a run with a held sub-plan, and wait until it has continued as new; return its first and newest handle."""
    dependent_node = call_node("after", "echo", output="{{sub.result}}")
    plan = plan_of(_held_sub_plan_node(gate.name), *_chains(60, "n"), dependent_node, output="{{after.result}}")
    handle = await gate.start_run(runs, plan)
    return handle, await wait_for_continue_as_new(runs, handle)


async def test_sub_plan_of_an_earlier_execution_reports_to_the_newest_execution(runs: Runs, gate: Gate) -> None:
    handle, newest_execution = await _start_with_held_sub_plan(runs, gate)
    forged_report = {"task": "n59", "status": "completed", "output": "forged"}
    await newest_execution.signal(wire.SIGNAL_SUB_PLAN_ENDED, forged_report)
    gate.open()
    document = bare_document(await document_of(handle))
    assert (document["status"], document["output"]) == ("completed", {"output": gate.name})
    assert document["nodes"]["n59"] == completed_node(60.0)
    message = "sub_plan_ended: 'n59' is not a sub-plan of this run"
    assert document["notes"] == [{"code": "message_rejected", "node_id": None, "message": message}]


@without_cache
async def test_second_report_of_a_sub_plan_has_no_effect(runs: Runs, gate: Gate) -> None:
    handle, newest_execution = await _start_with_held_sub_plan(runs, gate)
    for output in ("first", "second"):
        report = {"task": "sub", "status": "completed", "output": output}
        await newest_execution.signal(wire.SIGNAL_SUB_PLAN_ENDED, report)
    gate.open()
    document = bare_document(await document_of(handle))
    assert document["output"] == {"output": "first"}
    assert "notes" not in document


async def test_cancellation_reaches_the_sub_plan_of_an_earlier_execution(runs: Runs, gate: Gate) -> None:
    handle, newest_execution = await _start_with_held_sub_plan(runs, gate)
    await newest_execution.signal("cancel", {"reason": "enough"})
    document = bare_document(await document_of(handle))
    assert document["status"] == "cancelled"
    assert document["nodes"]["sub"] == cancelled_node("the sub-plan was cancelled")
    assert gate.clean_up_count == 1


async def test_terminated_sub_plan_of_an_earlier_execution_fails_its_node(runs: Runs, gate: Gate) -> None:
    handle, _ = await _start_with_held_sub_plan(runs, gate)
    await runs.client.get_workflow_handle(f"{handle.id}/sub").terminate("terminated manually")
    gate.open()
    document = bare_document(await document_of(handle))
    failure = "sub_plan_failed: the sub-plan failed: the sub-plan was terminated"
    assert document["nodes"]["sub"] == {"status": "failed", "error": failure}
    runs.exclude_from_checks(handle)


# Reasons that delay continue-as-new, and state that must survive it.


async def test_run_starts_calls_again_if_a_call_outlasts_the_drain(runs: Runs, gate: Gate) -> None:
    """A timer ends the drain. The run does not continue as new before the end of the long call."""
    handle = await runs.start({"nodes": [hold_node("hold", gate.name, heartbeat="1s"), *_chains(120, "n")]})
    newest_execution = runs.client.get_workflow_handle(handle.id)

    async def has_started_calls_again() -> bool:
        history = await newest_execution.fetch_history()
        # The drain starts at 400 events, and adds few events.
        return len(events_of(history, EventType.EVENT_TYPE_TIMER_FIRED)) == 1 and len(history.events) > 480

    await eventually(has_started_calls_again)
    assert (await newest_execution.describe()).run_id == handle.first_execution_run_id
    gate.open()
    assert bare_document(await document_of(handle))["output"] == {"hold": gate.name, "n119": 120.0}


async def test_deadline_counts_from_the_first_execution(runs: Runs, harness: CallHarness, unique_name: str) -> None:
    held_node = hold_node("hold", unique_name, "n39", heartbeat="1s")
    handle = await runs.start({"deadline": "6s", "nodes": [*_chains(40, "n"), held_node]})
    document = bare_document(await document_of(handle))
    assert document["error"].startswith("deadline_exceeded: the run exceeded its deadline; still running: ")
    chain = await chain_of(runs.client, handle)
    assert len(chain) > 1
    start_time = chain[0].events[0].event_time.ToDatetime()
    timer_ends_s = [round((_end_of_first_timer(history) - start_time).total_seconds(), 1) for history in chain]
    assert timer_ends_s == [6.0] * len(chain)


async def test_run_whose_deadline_was_removed_continues_as_new(runs: Runs, gate: Gate) -> None:
    held_node = hold_node("hold", gate.name, heartbeat="1s")
    first_node, *later_nodes = _chains(50, "n")
    # Each execution loads the snapshot of the previous execution from the store.
    with patch.multiple(limits, MAX_INLINE_STATE_BYTES=100):
        plan = {"deadline": "2s", "nodes": [held_node, {**first_node, "depends_on": ["hold"]}, *later_nodes]}
        handle = await runs.start(plan)
        started_at = time.time()
        await handle.execute_update(wire.SET_LIMITS, {"deadline": None, "by": "ann"})
        await eventually(lambda: time.time() > started_at + 2.5)
        gate.open()
        document = await ended_document(runs, handle)
        await runs.check_runs()
    assert document["status"] == "completed"
    assert len(await chain_of(runs.client, handle)) > 1


async def test_changed_limits_apply_after_continue_as_new(runs: Runs, gate: Gate) -> None:
    held_nodes = [hold_node(f"h{number}", gate.name, "n49", heartbeat="1s") for number in range(3)]
    handle = await runs.start({"deadline": "1h", "nodes": [*_chains(50, "n"), *held_nodes]}, max_in_flight=1)
    await handle.execute_update(wire.SET_LIMITS, {"max_parallel": 2, "deadline": "2h", "by": "ann"})
    await eventually(lambda: gate.running_count == 2)
    view = await view_of(runs, handle)
    assert [view.document()["nodes"][f"h{number}"]["status"] for number in range(3)] == ["running", "running", "ready"]
    gate.open()
    document = await ended_document(runs, handle)
    assert (document["status"], gate.max_running_count) == ("completed", 2)
    assert [note["message"] for note in document["notes"]] == ["max_parallel 2 and deadline 2h set by ann"]
    chain = await chain_of(runs.client, handle)
    assert len(chain) > 1
    start_time = chain[0].events[0].event_time.ToDatetime()
    timer_ends_s = [round((_end_of_first_timer(history) - start_time).total_seconds(), 1) for history in chain[1:]]
    assert timer_ends_s == [7200.0] * len(timer_ends_s)


def _end_of_first_timer(history: WorkflowHistory) -> datetime:
    """Return the workflow time at which the first timer of an execution ends."""
    # The workflow time is constant in a workflow task.
    events = {event.event_id: event for event in history.events}
    timer = events_of(history, EventType.EVENT_TYPE_TIMER_STARTED)[0].timer_started_event_attributes
    task = events[timer.workflow_task_completed_event_id].workflow_task_completed_event_attributes
    return events[task.started_event_id].event_time.ToDatetime() + timer.start_to_fire_timeout.ToTimedelta()


async def test_cancellation_during_continue_as_new_is_not_lost(cached_runs: Runs, unique_name: str) -> None:
    """Some of the cancellations arrive while a run continues as new. The last node runs until the cancellation."""
    held_node = hold_node("hold", unique_name, "n99", heartbeat="1s")
    handles = [await cached_runs.start({"nodes": [*_chains(100, "n", width=4), held_node]}) for _ in range(4)]

    async def cancel_and_get_status(number: int, handle: Handle) -> str:
        newest_execution = await wait_for_continue_as_new(cached_runs, handle)
        await (newest_execution.signal("cancel") if number % 2 else newest_execution.cancel())
        return str((await document_of(handle))["status"])

    statuses = await asyncio.gather(*(cancel_and_get_status(number, handle) for number, handle in enumerate(handles)))
    assert statuses == ["cancelled"] * 4
    await cached_runs.check_runs()


async def test_run_with_many_signals_continues_as_new(runs: Runs, gate: Gate) -> None:
    with patch.multiple(limits, DRAIN_AT_SIGNALS=20, SIGNALS_LIMIT=25):
        handle = await gate.start_run(runs, {"nodes": [_held_sub_plan_node(gate.name)]})
        newest_execution = runs.client.get_workflow_handle(handle.id)
        for _ in range(25):
            await newest_execution.signal("unknown_signal")
        await wait_for_continue_as_new(runs, handle)
        gate.open()
        document = await document_of(handle)
        assert len(document["notes"]) == 25
        assert document["output"] == {"sub": gate.name}
        await runs.check_runs()
