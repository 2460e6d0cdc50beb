"""Guards against too many messages to a run, and against too many writes by a run.

The numbers of guards refer to docs/contributing/guards.md.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
import temporalio.client
from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from dagwright.client.runs import Runs as ClientRuns
from dagwright.client.starts import StartRequest
from dagwright.client.steering import CommandAuthor, Steering
from dagwright.core.boundary import limits, wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import Connection, SearchAttributesMissing, local
from dagwright.server.local import dial
from dagwright.server.namespace import prepare_namespace
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.runs import Runs, checked_runs, document_of, events_of, serving_runs
from tests.support.server import LiveServer, live_server
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, client_runs_of, pure_node

pytestmark = pytest.mark.server

_MAX_CONCURRENT_CALLS = 100


async def _await_calls(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await calls, up to a hundred concurrently, and return the result or exception of each call."""
    outcomes: list[Any] = []
    for start in range(0, len(calls), _MAX_CONCURRENT_CALLS):
        outcomes += await asyncio.gather(*calls[start : start + _MAX_CONCURRENT_CALLS], return_exceptions=True)
    return outcomes


def _plan_with_held_node(gate_name: str) -> dict[str, Any]:
    return {"nodes": [hold_node("a", gate_name, heartbeat="1s")]}


@pytest.fixture(scope="module")
async def strict_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """A server that accepts 100 signals and 100 updates per execution; the defaults are 10,000 and 100,000."""
    low_limits = {"history.maximumSignalsPerExecution": "100", "history.maxTotalUpdates": "100"}
    with patch.dict(local.DYNAMIC_CONFIG, low_limits):
        async with live_server(tmp_path_factory.mktemp("strict")) as test_server:
            yield test_server


@pytest.fixture(scope="module")
async def strict_runs(
    strict_server: LiveServer, harness: CallHarness, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("strict_runs"))
    async with serving_runs(await strict_server.start(), harness.registry(), settings=settings) as runs:
        yield runs


async def test_run_at_the_signal_limit_of_the_server_can_be_cancelled(
    strict_runs: Runs, strict_server: LiveServer, gate: Gate
) -> None:
    """Guard S13, F14: the server rejects every signal above the limit, including `cancel`."""
    handle = await gate.start_run(strict_runs, _plan_with_held_node(gate.name))
    outcomes = await _await_calls([handle.signal("unknown_signal", number) for number in range(130)])
    assert Counter(type(outcome) for outcome in outcomes) == {type(None): 100, RPCError: 30}
    with pytest.raises(RPCError):
        await handle.signal(wire.CANCEL, {})
    connection = Connection(strict_runs.client, strict_server.server, frozenset())
    await Steering(connection).cancel(handle.id, CommandAuthor(reason="enough"))
    assert (await document_of(handle))["status"] == "cancelled"
    await strict_runs.check_runs()


async def test_rejected_updates_do_not_count_towards_the_update_limit(strict_runs: Runs, gate: Gate) -> None:
    """Guard S17: the server limits the accepted updates of a run."""
    handle = await gate.start_run(strict_runs, _plan_with_held_node(gate.name))
    outcomes = await _await_calls([handle.execute_update("unknown_update", number) for number in range(130)])
    assert {type(outcome) for outcome in outcomes} == {WorkflowUpdateFailedError}
    gate.open()
    assert (await document_of(handle))["nodes"]["a"]["result"] == gate.name
    assert len((await handle.fetch_history()).events) < 100
    await strict_runs.check_runs()


async def test_run_with_many_timeouts_has_only_the_timer_of_its_deadline(runs: Runs) -> None:
    """Guard F17: a timer for each of a thousand nodes would add two thousand events."""
    nodes = [pure_node(f"n{number}", 1, timeout="5s") for number in range(60)]
    handle = await runs.start({"nodes": nodes, "deadline": "1h", "output": "{{n0.result}}"})
    assert (await document_of(handle))["output"] == 2.0
    timers = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_TIMER_STARTED)
    assert [timer.user_metadata.summary.data.decode() for timer in timers] == [f'"{wire.TIMER_DEADLINE}"']


async def test_run_upserts_its_search_attributes_once(runs: Runs) -> None:
    """Guard F18: each upsert is an event in history and a write to visibility."""
    attributes = TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(wire.SEARCH_STATE), "running")]
    )
    nodes = [call_node(f"n{number}", "echo") for number in range(30)]
    handle = await runs.start_raw({"plan": {"nodes": nodes}}, search_attributes=attributes)
    assert (await document_of(handle))["status"] == "completed"
    upserts = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    assert len(upserts) == 1


async def test_run_does_not_upsert_search_attributes_that_are_missing_on_the_server(
    cached_runs: Runs, server: LiveServer
) -> None:
    """Guard S9, F18: a search attribute that is not registered would block the run."""
    connection = Connection(cached_runs.client, server.server, frozenset({wire.SEARCH_STATE}))
    client_runs = ClientRuns(connection, task_queue=cached_runs.task_queue, store=cached_runs.store)
    run = await client_runs.start(StartRequest(_compile_plan(cached_runs, {"nodes": [call_node("a", "echo")]})))
    handle = cached_runs.client.get_workflow_handle(run.run_id)
    assert (await document_of(handle))["nodes"]["a"]["status"] == "completed"
    assert events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES) == []
    with pytest.raises(SearchAttributesMissing, match="--name DagwrightState --type Keyword"):
        await client_runs.list_runs()


async def test_raw_run_does_not_upsert_unregistered_search_attributes(
    server: LiveServer, harness: CallHarness, tmp_path: Path
) -> None:
    """The worker compiles a raw plan, and checks which search attributes are registered in the namespace."""
    client = await dial(server.address, namespace=f"bare-{uuid4().hex}")
    await prepare_namespace(client)
    async with checked_runs(client, harness.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        await eventually(partial(_accepts_requests, client))
        for tool in ("echo", "unknown_tool"):
            handle = await runs.start_raw({"plan": {"nodes": [call_node("a", tool)]}})
            await document_of(handle)
            history = await handle.fetch_history()
            assert events_of(history, EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES) == []


async def _accepts_requests(client: temporalio.client.Client) -> bool:
    """Return whether the server accepts requests for a new namespace. It may reject them for some seconds."""
    try:
        await client.count_workflows()
    except RPCError:
        return False
    return True


def _compile_plan(runs: Runs, plan: Any) -> CompiledPlan:
    return prepare_plan(check_plan(plan, runs.tools), {})


async def test_details_of_a_run_are_limited_and_add_no_event(runs: Runs) -> None:
    """Guard F18: the table of nodes in the Temporal UI is created on demand, and has at most 50 lines."""
    nodes = [tool_node(f"n{number}", "echo", title=f"Step {number}\n| {'x' * 500}") for number in range(80)]
    handle = await runs.start({"nodes": nodes, "output": "{{n0.status}}"})
    assert (await document_of(handle))["status"] == "completed"
    event_count = len((await handle.fetch_history()).events)
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    lines = metadata.current_details.splitlines()
    rows = [line for line in lines if line.startswith("| Step")]
    assert len(rows) == limits.MAX_DETAIL_LINES
    assert lines[-1] == "30 more nodes are not shown."
    assert len((await handle.fetch_history()).events) == event_count


async def test_title_of_a_megabyte_is_shortened_in_the_memo(cached_runs: Runs) -> None:
    """Guard F8: the memo of a run is short for any plan."""
    compiled = _compile_plan(cached_runs, {"title": "t" * 900_000, "nodes": [call_node("a", "echo")]})
    run = await client_runs_of(cached_runs).start(StartRequest(compiled))
    handle = cached_runs.client.get_workflow_handle(run.run_id)
    assert (await document_of(handle))["status"] == "completed"
    memo = await (await handle.describe()).memo()
    assert len(memo[wire.MEMO_TITLE]) <= limits.MAX_SUMMARY_CHARACTERS
