"""The activity `call_batch`, without a server: its calls, its records, and the calls that it detaches.

A separate activity continues a detached call.
"""

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic_core
import pytest
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities import batch_records, call_batch, detached_calls
from dagwright.activities.batch_records import RecordsFactory, StoreRecords
from dagwright.activities.call_batch import BatchSetup, CallSlots, batch_activity
from dagwright.activities.call_tool import CallGuards, activities_of_tools, callable_tools
from dagwright.activities.detached_calls import BatchHeartbeats, DetachedCalls, RunningCall
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.wire import HEADER_BATCH_FAILURE
from dagwright.features.batch_followers import can_start_batch, followers_of
from dagwright.features.run_scheduler import create_scheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.attempts import read_attempt
from dagwright.protocol.call_batches import CallBatchResult, call_batch_result_from_json, encode_call_batch
from dagwright.protocol.ready_calls import next_call
from dagwright.protocol.sent_headers import headers_of_call
from dagwright.tools import RetryLater, ToolRegistry, context, tool
from dagwright.tools.environment import ToolEnvironment
from tests.support.activity_harness import ActivityHarness
from tests.support.eventually import eventually
from tests.support.memory_store import MemoryStore


@dataclass
class MemoryRecords:
    """Records in memory. With `is_down`, no record can be written."""

    recorded_ids: list[list[str]] = field(default_factory=list)
    earlier_results: CallBatchResult = field(default_factory=CallBatchResult)
    is_down: bool = False

    async def read_earlier_results(self) -> CallBatchResult:
        return self.earlier_results

    async def record(self, result: CallBatchResult) -> bool:
        if not self.is_down:
            self.recorded_ids.append([end.task_id for end in result.call_ends])
        return not self.is_down


class BatchHarness:
    """A worker with tools for call batches, and the records of a batch."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        """Node, idempotency key and attempt of each call."""
        self.release_event = asyncio.Event()
        self.running_count = 0
        self.max_running = 0
        self.records, self.detached_calls, store = MemoryRecords(), DetachedCalls(), MemoryStore()
        self._registry = ToolRegistry.of(*self._tools())
        tools = callable_tools(
            self._registry,
            ToolEnvironment(Path(), find_secret=lambda _: None),
            values=LargeValues(store),
            cache=ResultCache(store),
            guards=CallGuards(detached_calls=self.detached_calls),
        )
        self.activities = activities_of_tools(tools)
        self.paused_tools: set[str] = set()
        self.slots = CallSlots(100)
        # A batch uses only the method `is_paused`, which this class has.
        pause_checker: Any = self
        self._batch = batch_activity(
            BatchSetup(tools, lambda _: self.records, self.slots, pause_checker, self.detached_calls)
        )

    async def is_paused(self, tool: str) -> bool:
        return tool in self.paused_tools

    def _tools(self) -> list[Any]:
        def record_call() -> None:
            self.calls.append((context().node_id, context().idempotency_key, context().attempt))

        @tool(effects="idempotent", batch=True)
        def short(value: Any = None) -> Any:
            record_call()
            if value == "bad":
                raise RetryLater("not now", timedelta(seconds=5))
            return value

        @tool(effects="read", batch=True)
        async def hold(value: Any = None) -> Any:
            record_call()
            self.running_count += 1
            self.max_running = max(self.max_running, self.running_count)
            await self.release_event.wait()
            self.running_count -= 1
            return value

        return [short, hold]

    def batch_input(self, *nodes: dict[str, Any], max_parallel: int = 9) -> dict[str, Any]:
        """Return the input that a run of these nodes sends to the activity."""
        plan = prepare_plan(check_plan({"nodes": list(nodes)}, self._registry.declarations()), {})
        scheduler = create_scheduler(plan, {})
        scheduler.start(1.0)
        calls = []
        while (ready_call := next_call(scheduler, 1.0)) is not None:
            assert can_start_batch(scheduler, ready_call.task)
            calls.append(ready_call)
        follower_ids, follower_plan = followers_of(
            scheduler, [call.task for call in calls], task_queue=None, separate_tools=()
        )
        headers = [
            headers_of_call(call, key=f"key of {call.task.id}", tool=plan.tools[call.task.node.tool], model=None)
            for call in calls
        ]
        keys = {name: f"key of {name}" for name in follower_ids}
        encoded_input = encode_call_batch(
            calls, headers, plan=follower_plan, keys=keys, max_parallel=max_parallel, model=None
        )
        decoded_input: dict[str, Any] = pydantic_core.from_json(encoded_input)
        return decoded_input

    async def run(self, *nodes: dict[str, Any], attempt: int = 1, max_parallel: int = 9) -> CallBatchResult:
        harness = ActivityHarness(self._batch)
        harness.temporal.info = replace(harness.temporal.info, attempt=attempt)
        payload = await harness.payload(self.batch_input(*nodes, max_parallel=max_parallel))
        return call_batch_result_from_json(json.loads(payload.data))

    def separate_activity(self, tool: str, node_id: str) -> ActivityHarness:
        """Return a harness for the first attempt of the separate activity of a call."""
        harness = ActivityHarness(self.activities[tool])
        harness.temporal.info = replace(harness.temporal.info, activity_id=node_id, attempt=1)
        return harness


@pytest.fixture
async def batch_harness() -> BatchHarness:
    return BatchHarness()


def call_node(name: str, value: Any = 1, *, tool: str = "short", **fields: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": {"value": value}, **fields}


def results_by_node(batch_result: CallBatchResult) -> dict[str, Any]:
    return {end.task_id: json.loads(end.payload.data) for end in batch_result.call_ends}


_CHAIN = (call_node("a", 7), call_node("b", "{{a.result}}"), call_node("c", "{{b.result}}", when="b.result > 6"))


async def test_each_result_is_recorded_before_its_dependents_start(batch_harness: BatchHarness) -> None:
    result = await batch_harness.run(
        *_CHAIN, call_node("skipped", "{{a.result}}", when="a.result > 7"), call_node("other")
    )
    assert results_by_node(result) == {"a": 7, "other": 1, "b": 7, "c": 7}
    assert (result.detached_failures, result.separate_tools) == ({}, [])
    assert batch_harness.calls == [(name, f"key of {name}", 1) for name in ("a", "other", "b", "c")]
    assert [task_ids[-1] for task_ids in batch_harness.records.recorded_ids] == ["other", "b"], (
        "nothing depends on the last call"
    )
    [end] = [end for end in result.call_ends if end.task_id == "b"]
    attempt = read_attempt(end.payload.metadata)
    assert (attempt.count, attempt.started_at is None, attempt.tool_version == "") == (1, False, False)


async def test_next_attempt_repeats_only_calls_without_a_record(batch_harness: BatchHarness) -> None:
    complete_result = await batch_harness.run(*_CHAIN)
    batch_harness.calls.clear()
    batch_harness.records.earlier_results = CallBatchResult(complete_result.call_ends[:1])
    assert results_by_node(await batch_harness.run(*_CHAIN, attempt=2)) == {"a": 7, "b": 7, "c": 7}
    # The dead worker may have called `b`, so `b` is called as the second attempt. No worker called `c` before.
    assert batch_harness.calls == [("b", "key of b", 2), ("c", "key of c", 1)]


async def test_dependent_is_not_started_if_the_result_cannot_be_recorded(batch_harness: BatchHarness) -> None:
    batch_harness.records.is_down = True
    assert results_by_node(await batch_harness.run(*_CHAIN)) == {"a": 7}
    assert [name for name, _, _ in batch_harness.calls] == ["a"]


async def test_failed_call_is_detached_and_a_separate_activity_reports_its_failure(
    batch_harness: BatchHarness,
) -> None:
    result = await batch_harness.run(call_node("a", "bad"), call_node("b", "{{a.result}}"), call_node("c"))
    assert results_by_node(result) == {"c": 1}
    assert [*result.detached_failures] == ["a"]
    separate_activity = batch_harness.separate_activity("short", "a")
    failure = await separate_activity.failure({"value": "bad"}, **{HEADER_BATCH_FAILURE: result.detached_failures["a"]})
    assert (failure.message, failure.non_retryable) == ("not now", False)
    assert failure.next_retry_delay == timedelta(seconds=5)
    assert failure.details[0]["attempt"] == 1
    assert len(batch_harness.calls) == 2, "the first attempt is not repeated"
    separate_activity.temporal.info = replace(separate_activity.temporal.info, attempt=2)
    payload = await separate_activity.payload({"value": 5}, **{HEADER_BATCH_FAILURE: result.detached_failures["a"]})
    assert payload.data == b"5"


async def test_slow_call_is_detached_and_continued_by_a_separate_activity(
    batch_harness: BatchHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_batch, "SLOW_CALL_S", 0.02)
    result = await batch_harness.run(call_node("slow", 3, tool="hold"), call_node("next", "{{slow.result}}"))
    assert (results_by_node(result), result.detached_failures, result.separate_tools) == ({}, {"slow": None}, ["hold"])
    separate_task = asyncio.ensure_future(batch_harness.separate_activity("hold", "slow").payload({"value": 3}))
    await asyncio.sleep(0)
    batch_harness.release_event.set()
    assert (await separate_task).data == b"3"
    assert [name for name, _, _ in batch_harness.calls] == ["slow"], "the call is made once"
    assert (await batch_harness.separate_activity("hold", "slow").payload({"value": 4})).data == b"4", (
        "only one activity continues the detached call"
    )


@pytest.mark.parametrize(("max_parallel", "slot_count"), [(2, 100), (9, 2)], ids=["run", "worker"])
async def test_calls_of_a_batch_stay_within_the_limits_of_run_and_worker(
    batch_harness: BatchHarness, monkeypatch: pytest.MonkeyPatch, max_parallel: int, slot_count: int
) -> None:
    batch_harness.slots.limit = slot_count
    monkeypatch.setattr(call_batch, "SLOW_CALL_S", 0.02)
    result = await batch_harness.run(*(call_node(f"n{n}", tool="hold") for n in range(5)), max_parallel=max_parallel)
    assert (batch_harness.max_running, [*result.detached_failures], batch_harness.slots.in_use) == (2, ["n0", "n1"], 2)
    batch_harness.release_event.set()
    await eventually(lambda: batch_harness.slots.in_use == 0)


async def test_batch_that_is_cancelled_between_two_starts_returns_its_results_and_cancels_its_open_calls(
    batch_harness: BatchHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_call_event = asyncio.Event()

    async def hang_after_two_calls(_: str) -> bool:
        if len(batch_harness.calls) < 2:
            return False
        second_call_event.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(batch_harness, "is_paused", hang_after_two_calls)
    batch = asyncio.ensure_future(
        batch_harness.run(
            call_node("a"),
            call_node("slow", tool="hold"),
            call_node("b", "{{a.result}}"),
            call_node("c", "{{a.result}}"),
        )
    )
    await second_call_event.wait()
    batch.cancel()
    result = await batch
    assert (results_by_node(result), {*result.detached_failures}) == ({"a": 1}, {"slow"})
    await eventually(lambda: batch_harness.slots.in_use == 0)


async def test_calls_of_a_paused_tool_are_detached(batch_harness: BatchHarness) -> None:
    batch_harness.paused_tools.add("short")
    result = await batch_harness.run(call_node("a"), call_node("b", "{{a.result}}"))
    assert result.call_ends == []
    assert result.detached_failures == {"a": None}
    assert result.separate_tools == ["short"]
    assert batch_harness.calls == []


async def test_call_of_a_tool_that_the_worker_lacks_is_detached(batch_harness: BatchHarness) -> None:
    batch_input = batch_harness.batch_input(call_node("a"), call_node("b", tool="hold"))
    batch_input["calls"][0][2] = "gone"
    payload = await ActivityHarness(batch_harness._batch).payload(batch_input)
    batch_harness.release_event.set()
    result = call_batch_result_from_json(json.loads(payload.data))
    assert (result.detached_failures["a"], result.separate_tools[0]) == (None, "gone")


async def test_input_that_is_not_a_call_batch_is_rejected(batch_harness: BatchHarness) -> None:
    with pytest.raises(ApplicationError, match="not a call batch"):
        await ActivityHarness(batch_harness._batch).payload({"calls": [1]})


async def test_stored_records_are_read_only_by_attempts_of_the_same_activity_and_are_deleted_later() -> None:
    store, info = MemoryStore(), ActivityHarness(len).temporal.info
    deleted_keys: list[str] = []

    def records_of(attempt: int, activity_id: str = info.activity_id) -> StoreRecords:
        activity_info = replace(info, attempt=attempt, activity_id=activity_id)
        return StoreRecords(store, activity_info, delete_later=deleted_keys.append)

    first_records, second_records = records_of(1), records_of(2)
    assert await first_records.record(CallBatchResult(detached_failures={"a": None}))
    assert (await second_records.read_earlier_results()).detached_failures == {"a": None}
    assert (await records_of(2, "x").read_earlier_results()).detached_failures == {}
    assert len(deleted_keys) == len(store.cached_contents) == 1
    store.is_down = True
    assert not await first_records.record(CallBatchResult())
    assert (await second_records.read_earlier_results()).detached_failures == {}


class _FakeClient:
    def get_async_activity_handle(self, *, task_token: bytes) -> None:
        assert isinstance(task_token, bytes)


async def test_records_are_in_heartbeats_if_the_store_is_not_a_folder() -> None:
    info = ActivityHarness(len).temporal.info
    assert isinstance(RecordsFactory(MemoryStore(), _FakeClient()).records_of(info), batch_records.HeartbeatRecords)  # type: ignore[arg-type]


_ACTIVITY_INFO: Any = SimpleNamespace(workflow_run_id="r", activity_id="n")


def _hanging_call() -> RunningCall:
    async def run() -> RawValue:
        await asyncio.Event().wait()
        raise AssertionError

    return RunningCall(asyncio.ensure_future(run()), BatchHeartbeats.__new__(BatchHeartbeats))


async def test_call_of_a_later_attempt_replaces_the_call_of_an_earlier_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached_calls, "activity", SimpleNamespace(info=lambda: _ACTIVITY_INFO))
    monkeypatch.setattr(detached_calls, "DETACHED_CALL_S", 0.01)
    calls, (first_call, second_call) = DetachedCalls(), (_hanging_call(), _hanging_call())
    calls.add("n", first_call)
    monkeypatch.setattr(detached_calls, "DETACHED_CALL_S", 60)
    calls.add("n", second_call)
    await asyncio.wait([first_call.task])
    assert (first_call.task.cancelled(), second_call.task.done()) == (True, False)
    # The timer of the first call has fired, and the second call is still detached.
    await asyncio.wait([second_call.task], timeout=0.03)
    assert calls.pop(_ACTIVITY_INFO) is second_call
    assert calls.pop(_ACTIVITY_INFO) is None
    second_call.task.cancel()


async def test_detached_call_that_no_activity_continues_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached_calls, "activity", SimpleNamespace(info=lambda: _ACTIVITY_INFO))
    monkeypatch.setattr(detached_calls, "DETACHED_CALL_S", 0.01)
    calls, call = DetachedCalls(), _hanging_call()
    calls.add("n", call)
    await asyncio.wait([call.task])
    assert (call.task.cancelled(), calls.pop(_ACTIVITY_INFO)) == (True, None)
