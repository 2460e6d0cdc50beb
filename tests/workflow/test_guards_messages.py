"""Guards against floods of messages, and against too many writes by the run itself."""

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

from dagwright.client.runs import Runs as Client
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
from tests.support.runs import Runs, document_of, events_of, serving_runs
from tests.support.server import LiveServer, live_server
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_AT_ONCE = 100


async def _outcomes(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await calls, a hundred at a time; return the result or exception of each."""
    found: list[Any] = []
    for first in range(0, len(calls), _AT_ONCE):
        found += await asyncio.gather(*calls[first : first + _AT_ONCE], return_exceptions=True)
    return found


def _held_plan(name: str) -> dict[str, Any]:
    return {"nodes": [{"id": "a", "tool": "hold", "arguments": {"name": name}, "heartbeat": "1s"}]}


@pytest.fixture(scope="module")
async def strict_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """A server that takes 100 signals and 100 updates for one execution, instead of 10,000 and 100,000."""
    few = {"history.maximumSignalsPerExecution": "100", "history.maxTotalUpdates": "100"}
    with patch.dict(local.DYNAMIC_CONFIG, few):
        async with live_server(tmp_path_factory.mktemp("strict")) as live:
            yield live


@pytest.fixture(scope="module")
async def strict_runs(
    strict_server: LiveServer, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("strict_runs"))
    async with serving_runs(await strict_server.start(), bench.registry(), settings=settings) as runs:
        yield runs


async def test_run_with_as_many_signals_as_the_server_takes_can_still_be_cancelled(
    strict_runs: Runs, strict_server: LiveServer, bench: Bench, unique: str
) -> None:
    """Guard S13, F14: the first signal over the limit is rejected, a `cancel` too."""
    handle = await strict_runs.start(_held_plan(unique))
    await eventually(lambda: unique in bench.entered)
    sent = await _outcomes([handle.signal("nobody_knows", number) for number in range(130)])
    assert Counter(type(outcome) for outcome in sent) == {type(None): 100, RPCError: 30}
    with pytest.raises(RPCError):
        await handle.signal(wire.CANCEL, {})
    connection = Connection(strict_runs.client, strict_server.server, frozenset())
    await Steering(connection).cancel(handle.id, CommandAuthor(reason="enough"))
    document = await document_of(handle)
    assert document["status"] == "cancelled"
    await strict_runs.check_runs()


async def test_too_many_refused_updates_leave_the_run_unchanged(strict_runs: Runs, bench: Bench, unique: str) -> None:
    """Guard S17: the server limits the updates of a run; a rejected update does not count."""
    handle = await strict_runs.start(_held_plan(unique))
    await eventually(lambda: unique in bench.entered)
    refused = await _outcomes([handle.execute_update("nobody_knows", number) for number in range(130)])
    assert {type(outcome) for outcome in refused} == {WorkflowUpdateFailedError}
    bench.open(unique)
    document = await document_of(handle)
    assert document["nodes"]["a"]["result"] == unique
    events = (await handle.fetch_history()).events
    assert len(events) < 100
    await strict_runs.check_runs()


async def test_nodes_have_no_timers_of_their_own(runs: Runs) -> None:
    """Guard F17: a timer for each of a thousand waits would be two thousand events."""
    nodes = [
        {"id": f"n{number}", "tool": "add", "arguments": {"left": 1, "right": 1}, "timeout": "5s"}
        for number in range(60)
    ]
    handle = await runs.start({"nodes": nodes, "deadline": "1h", "output": "{{n0.result}}"})
    assert (await document_of(handle))["output"] == 2.0
    timers = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_TIMER_STARTED)
    assert [timer.user_metadata.summary.data.decode() for timer in timers] == [f'"{wire.TIMER_DEADLINE}"']


async def test_state_of_a_run_is_written_once_at_its_end(runs: Runs) -> None:
    """Guard F18: each upsert is an event, and a write to visibility."""
    attributes = TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(wire.SEARCH_STATE), "running")]
    )
    nodes = [{"id": f"n{number}", "tool": "echo"} for number in range(30)]
    handle = await runs.start_raw({"plan": {"nodes": nodes}}, search_attributes=attributes)
    assert (await document_of(handle))["status"] == "completed"
    upserts = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    assert len(upserts) == 1


async def test_run_on_a_server_without_our_search_attributes_writes_none(cached_runs: Runs, server: LiveServer) -> None:
    """Guard S9, F18: an attribute that is not registered would wedge the run."""
    connection = Connection(cached_runs.client, server.server, frozenset({wire.SEARCH_STATE}))
    client = Client(connection, task_queue=cached_runs.task_queue, store=cached_runs.store)
    run = await client.start(StartRequest(_compile(cached_runs, {"nodes": [{"id": "a", "tool": "echo"}]})))
    handle = cached_runs.client.get_workflow_handle(run.workflow_id)
    assert (await document_of(handle))["nodes"]["a"]["status"] == "completed"
    assert events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES) == []
    with pytest.raises(SearchAttributesMissing, match="--name DagwrightState --type Keyword"):
        await client.list_runs()


async def test_run_of_any_starter_there_writes_none_either(server: LiveServer, bench: Bench, tmp_path: Path) -> None:
    """The same, with a plan that a worker compiles: it reads the limits of the namespace."""
    client = await dial(server.address, namespace=f"bare-{uuid4().hex}")
    await prepare_namespace(client)
    async with serving_runs(client, bench.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        await eventually(partial(_is_known, client))
        for tool in ("echo", "nobody"):
            handle = await runs.start_raw({"plan": {"nodes": [{"id": "a", "tool": tool}]}})
            await document_of(handle)
            history = await handle.fetch_history()
            assert events_of(history, EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES) == []
        await runs.check_runs()


async def _is_known(client: temporalio.client.Client) -> bool:
    """Return whether a new namespace takes runs: the server gets to know it after seconds."""
    try:
        await client.count_workflows()
    except RPCError:
        return False
    return True


def _compile(runs: Runs, plan: Any) -> CompiledPlan:
    return prepare_plan(check_plan(plan, runs.tools), {})


async def test_details_of_a_run_have_at_most_fifty_lines_and_cost_no_event(runs: Runs) -> None:
    """Guard F18: the live table is created on demand, and stays short."""
    nodes = [{"id": f"n{number}", "tool": "echo", "title": f"Step {number}\n| {'x' * 500}"} for number in range(80)]
    handle = await runs.start({"nodes": nodes, "output": "{{n0.status}}"})
    assert (await document_of(handle))["status"] == "completed"
    before = len((await handle.fetch_history()).events)
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    lines = metadata.current_details.splitlines()
    rows = [line for line in lines if line.startswith("| Step")]
    assert len(rows) == limits.DETAIL_LINES
    assert lines[-1] == "30 more nodes are not shown."
    assert len((await handle.fetch_history()).events) == before


async def test_title_of_a_megabyte_is_shortened_in_the_memo(cached_runs: Runs, server: LiveServer) -> None:
    """Guard F8: the memo of a plan is short, for any plan."""
    connection = Connection(cached_runs.client, server.server, frozenset())
    client = Client(connection, task_queue=cached_runs.task_queue, store=cached_runs.store)
    compiled = _compile(cached_runs, {"title": "t" * 900_000, "nodes": [{"id": "a", "tool": "echo"}]})
    run = await client.start(StartRequest(compiled))
    handle = cached_runs.client.get_workflow_handle(run.workflow_id)
    assert (await document_of(handle))["status"] == "completed"
    memo = await (await handle.describe()).memo()
    assert len(memo[wire.MEMO_TITLE]) <= limits.SUMMARY_CHARACTERS
