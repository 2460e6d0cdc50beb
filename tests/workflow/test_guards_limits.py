"""Guards for limits and rules of the server: calls in flight, IDs, options, and the duration of a workflow task.

The numbers of guards refer to docs/contributing/guards.md.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import limits, wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import STILL_RUNNING_OUTSIDE
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.run_scheduler import create_scheduler
from dagwright.history.run_view import RunView
from dagwright.protocol.run_input import run_input_from_json
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.run_views import wait_for_view
from tests.support.runs import DEADLOCK, Runs, completed_node, document_of, raw_value, scheduled_calls, serving_runs
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, final_status_or_error_type

pytestmark = pytest.mark.server

_SERVER_LIMIT_IN_FLIGHT = 2_000


@pytest.fixture(scope="module")
async def deadlock_checked_runs(
    client: Client, harness: CallHarness, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    """Runs of a worker on which a workflow task of over two seconds fails."""
    settings = Settings(state_dir=tmp_path_factory.mktemp("deadlock-detection"))
    async with serving_runs(client, harness.registry(), settings=settings, detects_deadlocks=True) as runs:
        yield runs


def _compiled_input(*nodes: Any) -> dict[str, Any]:
    """Return the message that starts a compiled plan of these nodes."""
    return {"compiled": {"format": 1, "nodes": list(nodes), "tools": {}}}


def _compiled_input_with_echo(runs: Runs, *nodes: Any) -> dict[str, Any]:
    """Return a compiled input with the declaration of `echo`, so that the calls go to the queue of the worker."""
    message = _compiled_input(*nodes)
    message["compiled"]["tools"] = {"echo": {"effects": "read", "task_queue": runs.tools["echo"].task_queue}}
    return message


async def test_calls_in_flight_are_limited_if_two_thousand_are_ready(runs: Runs, gate: Gate) -> None:
    """Guard S6: the 2,001st pending activity would block the run."""
    # With a heartbeat timeout of 300 ms, 100 calls would send 1,000 heartbeats a second: too many for the server.
    node = {"tool": "hold", "arguments": {"name": gate.name}, "heartbeat": "3s"}
    nodes = [{"id": f"n{number}", **node} for number in range(_SERVER_LIMIT_IN_FLIGHT + 100)]
    handle = await gate.start_run(runs, {"nodes": nodes, "output": "{{n0.status}}"})
    history = await handle.fetch_history()
    await handle.signal(wire.CANCEL)
    document = await document_of(handle)
    # The activities of other types load the pages of the plan.
    activity_names = [scheduled_call.activity_type.name for scheduled_call in scheduled_calls(history)]
    assert 0 < activity_names.count("hold") <= MAX_IN_FLIGHT
    assert document["status"] == "cancelled"


def _raise_key_error(*arguments: Any, **keywords: Any) -> None:
    raise KeyError("x")


async def test_exception_in_workflow_code_ends_the_run(cached_runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard S7, F7: otherwise, the workflow task would be retried without end."""

    def raise_recursion_error(*arguments: Any, **keywords: Any) -> None:
        raise RecursionError("deep")

    monkeypatch.setattr(Scheduler, "start", raise_recursion_error)
    handle = await cached_runs.start({"nodes": [{"id": "a", "tool": "echo"}]})
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    cause = failure.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message) == (wire.ERROR_INTERNAL, "RecursionError: deep")
    cached_runs.exclude_from_checks(handle)


@pytest.mark.parametrize("method", ["complete", "fail"])
async def test_exception_while_a_result_is_applied_ends_the_run(
    cached_runs: Runs, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Guard S7: an exception in the handling of an activity result ends the run like any exception."""
    monkeypatch.setattr(Scheduler, method, _raise_key_error)
    tool = {"complete": "echo", "fail": "fail"}[method]
    handle = await cached_runs.start({"nodes": [{"id": "a", "tool": tool}]})
    assert await final_status_or_error_type(handle) == wire.ERROR_INTERNAL
    cached_runs.exclude_from_checks(handle)


async def test_exception_in_a_message_handler_is_noted_and_the_run_continues(
    runs: Runs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard S7, F7: an unexpected error of a handler is recorded as a note of the run."""
    for function_name in ("sub_plan_end_from_json", "decode_command"):
        monkeypatch.setattr(f"dagwright.protocol.commands.{function_name}", _raise_key_error)
    node = {"id": "a", "tool": "hold", "arguments": {"name": gate.name}, "heartbeat": "3s"}
    handle = await gate.start_run(runs, {"nodes": [node]})
    await handle.signal(wire.SIGNAL_SUB_PLAN_ENDED, {"task": "a"})
    await handle.signal(wire.CANCEL, {"reason": "enough"})
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert {note["code"] for note in document["notes"]} >= {"message_rejected"}
    await runs.check_runs()


async def test_id_over_a_thousand_bytes_is_reported_before_the_run_starts(runs: Runs) -> None:
    """Guard S9, F8: an activity ID of over 1,000 bytes would block the run."""
    ids = ["計" * 400, "nul\x00" * 300, "a" * 999 + "é"]
    nodes = [{"id": node_id, "tool": "echo"} for node_id in ids]
    sub_plans = [{"id": "s", "kind": "plan", "sub_plan": _compiled_input(node)["compiled"]} for node in nodes]
    documents = await asyncio.gather(*(runs.run_raw(_compiled_input(node)) for node in (*nodes, *sub_plans)))
    errors = [f"invalid: invalid input: the id {node_id[:40]!r} must be 1-200 bytes of UTF-8" for node_id in ids]
    assert [document["error"] for document in documents] == [*errors, *errors]


async def test_long_ids_of_items_and_sub_plans_are_shortened_and_stay_unique(runs: Runs) -> None:
    """Guard S9, S11, F8: the combined IDs may have far more than 1,000 bytes."""
    node_id = "計" * 66
    child_plan: dict[str, Any] = {
        "nodes": [{"id": node_id, "tool": "echo", "arguments": {"n": 0}}],
        "output": f"{{{{{node_id}.result.n}}}}",
    }
    for _ in range(6):
        child_plan = {"nodes": [{"id": node_id, "plan": child_plan}], "output": f"{{{{{node_id}.result}}}}"}
    keys = [f"{'k' * 198}{number}" for number in range(9)]
    nodes = [
        {"id": node_id, "plan": child_plan},
        {"id": f"{'i' * 199}1", "tool": "echo", "for_each": keys, "key": "{{item}}", "arguments": {"n": "{{index}}"}},
        {"id": f"{'i' * 199}2", "tool": "echo", "for_each": keys, "key": "{{item}}", "arguments": {"n": "{{index}}"}},
    ]
    document = await runs.run({"nodes": nodes})
    item_results = [{"n": number} for number in range(9)]
    expected = [completed_node(0), completed_node(item_results), completed_node(item_results)]
    assert [document["nodes"][node["id"]] for node in nodes] == expected


_CYCLE_MESSAGE = "the dependencies of the nodes form a cycle"
_NOT_NUMBERS_MESSAGE = "the dependencies of '0' are not node numbers"


async def test_invalid_edges_of_a_compiled_plan_are_reported(runs: Runs) -> None:
    """Guard S7: a plan in which no node can start would wait without end."""
    cases: list[tuple[list[Any], str]] = [
        *(
            ([[1], [0]], _CYCLE_MESSAGE),
            ([[0], []], _CYCLE_MESSAGE),
            ([[5], []], _NOT_NUMBERS_MESSAGE),
            ([[-1], []], _NOT_NUMBERS_MESSAGE),
        ),
        *(([[True], []], _NOT_NUMBERS_MESSAGE), ([["0"], []], _NOT_NUMBERS_MESSAGE)),
    ]
    plans = (
        [
            {"id": str(number), "tool": "echo", "dependencies": node_dependencies}
            for number, node_dependencies in enumerate(dependencies)
        ]
        for dependencies, _ in cases
    )
    documents = await asyncio.gather(*(runs.run_raw(_compiled_input(*nodes)) for nodes in plans))
    assert [document["error"] for document in documents] == [f"invalid: invalid input: {error}" for _, error in cases]


async def test_options_that_temporal_rejects_fail_their_node(runs: Runs) -> None:
    """Guard S9, S10, F8: each of these options would leave the run open, in some cases without a reason."""
    invalid_options: list[dict[str, Any]] = [
        *({"retry": {"max_attempts": -1}}, {"retry": {"max_attempts": 2**31}}, {"retry": {"factor": 0.5}}),
        *({"retry": {"max_delay_s": -1}}, {"retry": {"first_delay_s": -5}}, {"timeout_s": -0.001}),
        *({"timeout_s": 10**300}, {"heartbeat_s": 0}, {"heartbeat_s": 1e12}, {"priority": -5}, {"priority": 2**40}),
    ]
    valid_node = {"id": "valid", "tool": "echo"}
    messages = [
        _compiled_input_with_echo(runs, {"id": "invalid", "tool": "echo", **fields}, valid_node)
        for fields in invalid_options
    ]
    for document in await asyncio.gather(*map(runs.run_raw, messages)):
        assert document["nodes"]["invalid"]["status"] == "failed"
        assert document["nodes"]["invalid"]["error"].startswith("invalid_field: ")
        assert document["nodes"]["valid"]["status"] == "completed"


async def test_retry_delay_of_a_tool_is_limited_to_a_day(runs: Runs) -> None:
    """Guard F8: a tool that requests a delay of 400,000 days would keep its run open."""
    handle = await runs.start({"nodes": [{"id": "busy", "tool": "busy_for", "arguments": {"days": 400_000}}]})

    async def is_backing_off() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        return any(call.HasField("current_retry_interval") and call.attempt == 2 for call in pending)

    await eventually(is_backing_off)
    [call] = (await handle.describe()).raw_description.pending_activities
    delay_s = call.current_retry_interval.ToTimedelta().total_seconds()
    await handle.signal(wire.CANCEL)
    assert round(delay_s) == limits.MAX_DELAY_S
    assert (await document_of(handle))["status"] == "cancelled"


async def test_unlimited_foreign_retry_delay_is_reported_and_can_be_cancelled(foreign_runs: Runs) -> None:
    """Guard F8: the retry delay of an activity of another program cannot be limited."""
    node = {"id": "later", "tool": "foreign.later", "arguments": {"days": 400_000}}
    handle = await foreign_runs.start({"nodes": [node]})

    def is_backing_off(view: RunView) -> bool:
        return "later" in view.pending_calls and view.pending_calls["later"].state == "backing_off"

    view = await wait_for_view(foreign_runs.client, handle.id, is_backing_off)
    assert view.pending_calls["later"].last_failure == "not today"
    await handle.signal(wire.CANCEL)
    assert (await document_of(handle))["status"] == "cancelled"


async def test_run_of_a_plan_with_colliding_ids_ends(runs: Runs) -> None:
    """Guard S11, F9: two calls in flight with the same activity ID would block the run."""
    plans: list[list[dict[str, Any]]] = [
        [{"id": "a", "tool": "echo"}, {"id": "a", "tool": "echo"}],
        [{"id": "m", "tool": "echo", "for_each": [1, 2]}, {"id": "m[0]", "tool": "echo"}],
        [{"id": "m[0]", "tool": "echo"}, {"id": "m", "tool": "echo", "for_each": [1, 2]}],
        [{"id": "s", "tool": "echo"}, {"id": "s", "kind": "plan", "sub_plan": {"format": 1, "nodes": [], "tools": {}}}],
        [{"id": str(number), "tool": "echo"} for number in range(1, 12)],
    ]
    messages = [
        *(_compiled_input_with_echo(runs, *nodes) for nodes in plans),
        *({"plan": _raw_plan(nodes)} for nodes in plans),
    ]
    handles = await asyncio.gather(*(runs.start_raw(message) for message in messages))
    statuses_or_errors = await asyncio.gather(*map(final_status_or_error_type, handles))
    assert set(statuses_or_errors) <= {"completed", "completed_with_failures", "failed", wire.ERROR_INTERNAL}


def _raw_plan(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a raw plan of compiled nodes. A valid raw sub-plan replaces each compiled sub-plan."""
    sub_plan = {"nodes": [{"id": "a", "tool": "echo"}]}
    return {"nodes": [{"id": node["id"], "plan": sub_plan} if "kind" in node else node for node in nodes]}


async def test_run_does_not_wait_for_a_node_that_ignores_cancellation(
    foreign_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard F9: a cancellation waits for running activities, but not longer than the grace period."""
    monkeypatch.setattr(limits, "CANCEL_GRACE_S", 0.3)
    node = {"id": "uncancelled", "tool": "foreign.deaf", "arguments": {"seconds": 3}}
    handle = await foreign_runs.start({"nodes": [node, {"id": "after", "tool": "echo", "depends_on": ["uncancelled"]}]})

    async def is_running() -> bool:
        return bool((await handle.describe()).raw_description.pending_activities)

    await eventually(is_running)
    await handle.signal(wire.CANCEL)
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    assert document["nodes"]["uncancelled"]["reason"] == STILL_RUNNING_OUTSIDE


async def test_run_completes_despite_hundreds_of_concurrent_results_and_signals(runs: Runs, gate: Gate) -> None:
    """Guard S12, F12: a workflow task fails if over 100 events are buffered during it."""
    node = {"id": "each", "tool": "hold", "for_each": list(range(90)), "arguments": {"name": gate.name}}
    handle = await runs.start({"nodes": [node], "output": "{{each.status}}"})
    await eventually(lambda: gate.running_count == 90)
    signals = [handle.signal("unknown_signal", number) for number in range(300)]
    gate.open()
    await asyncio.gather(*signals, return_exceptions=True)
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", "completed")


@pytest.mark.alone
async def test_many_failing_items_do_not_trigger_the_deadlock_detector(deadlock_checked_runs: Runs) -> None:
    """20,000 items fail at the same moment. The workflow code of a single run would need a second for all of them."""
    table_node = {"id": "list", "tool": "table", "arguments": {"rows": 2_000}}
    map_fields = {"tool": "echo", "for_each": "{{list.result.rows}}", "arguments": {"x": "{{item.gone}}"}}
    plan = {"nodes": [table_node, *({"id": f"m{number}", **map_fields} for number in range(10))]}
    handle = await deadlock_checked_runs.start(plan)
    document = await document_of(handle)
    assert document["status"] == "failed"
    assert [node.get("items") for node in document["nodes"].values()] == [None, *[{"failed": 2_000}] * 10]
    message = "2000 of 2000 items failed; the first: m7[0]: Missing data: item.gone: 'gone' not found in item; "
    assert document["nodes"]["m7"]["error"]["message"] == f"{message}it has name, text"
    await deadlock_checked_runs.check_runs()


@pytest.mark.alone
async def test_compiled_plan_with_very_many_nodes_fails_within_the_deadlock_timeout(
    deadlock_checked_runs: Runs,
) -> None:
    """Guard S15, F6: workflow code that takes over two seconds would block the run."""
    nodes = b",".join(b'{"id":"%d"}' % number for number in range(120_000))
    handle = await deadlock_checked_runs.start_raw(raw_value(b'{"compiled":{"format":1,"nodes":[%s]}}' % nodes))
    assert await final_status_or_error_type(handle) == "failed"
    await deadlock_checked_runs.check_runs(allowed_failure=DEADLOCK)


def _message_with_very_many_edges() -> bytes:
    dependencies = b",".join(b"%d" % number for number in range(90))
    nodes = b",".join(
        b'{"id":"%d","tool":"echo","dependencies":[%s]}' % (number, dependencies if number >= 90 else b"")
        for number in range(5_000)
    )
    return b'{"compiled":{"format":1,"nodes":[%s]}}' % nodes


@pytest.mark.alone
def test_compiled_plan_with_very_many_edges_takes_under_a_second() -> None:
    """Guard S15: the test measures processor time, because the machine may be busy."""
    message, times_s = _message_with_very_many_edges(), []
    for _ in range(3):
        started_at = time.process_time()
        scheduler = create_scheduler(run_input_from_json(json_from_bytes(message)).compiled or CompiledPlan(()), {})
        scheduler.start(0.0)
        scheduler.cancel(0.0, reason=None)
        times_s.append(time.process_time() - started_at)
        assert scheduler.is_finished
    assert min(times_s) < 1


@pytest.mark.alone
async def test_raw_plan_with_very_many_nodes_is_compiled_in_an_activity(deadlock_checked_runs: Runs) -> None:
    """Guard S15, F6: workflow code would take too long to compile the plan."""
    nodes = b",".join(b'{"id":"%d"}' % number for number in range(100_000))
    handle = await deadlock_checked_runs.start_raw(raw_value(b'{"plan":{"nodes":[%s]}}' % nodes))
    assert await final_status_or_error_type(handle) == "failed"
    await deadlock_checked_runs.check_runs(allowed_failure=DEADLOCK)
