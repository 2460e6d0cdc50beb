"""`RunReader` on a real server: its documents agree with the run, both while the run is open and after its end."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.history.replay import HistoryReplay
from dagwright.history.run_view import RunView
from dagwright.protocol.compact_documents import compact_document
from dagwright.protocol.conversion import data_converter
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry, tool
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.run_views import view_of, wait_for_view
from tests.support.runs import (
    Runs,
    bare_document,
    bare_node,
    cancelled_node,
    completed_node,
    document_of,
    scheduled_calls,
    serving_runs,
)
from tests.workflow.building import Gate, pure_node

pytestmark = pytest.mark.server

_MAX_CONCURRENT_CALLS = 20
_CALL_COUNT = _MAX_CONCURRENT_CALLS + 10
"""More calls than may run concurrently."""


async def test_only_scheduled_calls_are_shown_as_running(cached_runs: Runs, gate: Gate) -> None:
    nodes = [hold_node(f"n{number}", gate.name) for number in range(_CALL_COUNT)]
    handle = await cached_runs.start({"nodes": nodes, "output": "{{n0.result}}"}, max_in_flight=_MAX_CONCURRENT_CALLS)
    try:
        await gate.wait_for_call()
        scheduled_count = len(scheduled_calls(await handle.fetch_history()))
        nodes_of_open_run = (await view_of(cached_runs, handle)).document()["nodes"]
    finally:
        gate.open()
    assert 0 < scheduled_count < _CALL_COUNT
    counts = Counter(node["status"] for node in nodes_of_open_run.values())
    assert counts == {"running": scheduled_count, "ready": _CALL_COUNT - scheduled_count}

    document = await document_of(handle)
    assert compact_document((await view_of(cached_runs, handle)).document(), node_count=_CALL_COUNT) == document


async def test_reader_has_every_node_status_before_the_closing_event(cached_runs: Runs, client: Client) -> None:
    def echo_node(node_id: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
        return {"id": node_id, "tool": "echo", "arguments": {}, "depends_on": list(depends_on), **fields}

    child_plan = {"nodes": [echo_node("inner")], "output": "{{inner.result}}"}
    nodes = [
        *(
            echo_node("low_priority", priority=5),
            echo_node("high_priority", priority=1),
            echo_node("items", for_each=[1, 2, 3, 4], max_parallel=2),
        ),
        *(
            {"id": "child", "plan": child_plan},
            echo_node("failed", "high_priority", arguments={"text": "{{high_priority.result.nothing}}"}),
        ),
        *(
            echo_node("blocked", "failed"),
            echo_node("skipped", "high_priority", when="false"),
            echo_node("last", "low_priority", "items", "child"),
        ),
    ]
    handle = await cached_runs.start({"nodes": nodes})
    document = await document_of(handle)

    replay = HistoryReplay(handle.id, data_converter)
    scheduled_ids = set()
    events = [event async for event in handle.fetch_history_events()]
    # The last event closes the run.
    for event in events[:-1]:
        await replay.apply(event)
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled_ids.add(event.activity_task_scheduled_event_attributes.activity_id)
        running_ids = {node_id for node_id in _running_ids(replay) if node_id != "child"}
        assert running_ids <= scheduled_ids
    await replay.complete_state()

    assert replay.scheduler is not None
    expected = [document["nodes"][node["id"]]["status"] for node in nodes]
    assert [record.status.value for record in replay.scheduler.records] == expected


def _running_ids(replay: HistoryReplay) -> list[str]:
    if replay.scheduler is None:
        return []
    ids = []
    for node, record in zip(replay.scheduler.plan.nodes, replay.scheduler.records, strict=True):
        ids += [f"{node.id}[{item.key}]" for item in record.items if item.record.status == "running"]
        if record.status == "running" and not record.items:
            ids.append(node.id)
    return ids


async def test_reader_restores_nodes_if_the_document_has_only_counts(cached_runs: Runs) -> None:
    nodes = [call_node(f"n{number}", "text", size=8_000) for number in range(140)]
    handle = await cached_runs.start({"nodes": nodes, "output": "{{n0.status}}"})
    document_with_counts = await document_of(handle)
    document = (await view_of(cached_runs, handle)).document()

    assert (document_with_counts["nodes"], document_with_counts["nodes_ref"]["counts"]) == ({}, {"completed": 140})
    assert document["output"] == "completed"
    assert [bare_node(node) for node in document["nodes"].values()] == [completed_node("x" * 8_000)] * 140


async def test_unfinished_nodes_of_a_terminated_run_are_shown_as_cancelled(cached_runs: Runs, gate: Gate) -> None:
    nodes = [
        pure_node("first", 1, 2),
        hold_node("held", gate.name, "first"),
        hold_node("items", gate.name, "held", for_each=[1, 2]),
    ]
    handle = await cached_runs.start({"nodes": nodes})
    cached_runs.exclude_from_checks(handle)
    try:
        await gate.wait_for_call()
        await handle.terminate(reason="enough")
        view = await view_of(cached_runs, handle)
    finally:
        gate.open()
    reason = "the run was terminated: enough"
    assert bare_document(view.document()) == {
        "status": "failed",
        "output": None,
        "nodes": {"first": completed_node(3.0), "held": cancelled_node(reason), "items": cancelled_node(reason)},
        "error": f"terminated: {reason}",
    }
    assert (view.is_closed, view.nodes_done) == (True, 1)


async def test_last_failure_of_a_retried_call_is_not_shortened(client: Client, tmp_path: Path) -> None:
    cause = "the cause of it " + "x" * 3_900

    @tool(effects="read")
    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        raise RuntimeError(cause)

    retry = {"max_attempts": 2, "first_delay": "1h"}
    async with serving_runs(client, ToolRegistry.of(deep), settings=Settings(state_dir=tmp_path)) as runs:
        handle = await runs.start({"nodes": [tool_node("a", "deep", arguments={"depth": 200}, retry=retry)]})

        def has_failed(view: RunView) -> bool:
            return "a" in view.pending_calls and view.pending_calls["a"].last_failure is not None

        view = await wait_for_view(client, handle.id, has_failed)
        await handle.signal("cancel")
        await document_of(handle)
    pending_call = view.pending_calls["a"]
    assert (pending_call.state, pending_call.last_failure) == ("backing_off", f"RuntimeError: {cause}")
