"""Heartbeats of an attempt, and the start record.

The worker sends the start record to the server before the worker calls a tool with the effects `write`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutError, TimeoutType
from temporalio.testing import ActivityEnvironment

from dagwright.activities.call_starts import MAX_OPEN_RECORDS, CallStarts, CallStopped
from dagwright.activities.call_tool import CallGuards, activities_of_tools, callable_tools
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.paused_calls import PausedCalls
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.text_heartbeats import HEARTBEATS_PER_S, MIN_PAUSE_S, HeartbeatPace
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.usage_reports import Usage, started_attempt, usage_of_heartbeat
from dagwright.core.boundary.wire import HEADER_ATTEMPTS
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.run_scheduler import create_scheduler
from dagwright.planning.model_calls.heartbeat_text import TEXT_INDEX, HeartbeatText
from dagwright.protocol.outcomes import apply_failure, read_failure
from dagwright.server.tool_pauses import ToolPause
from dagwright.settings import Settings
from dagwright.store import open_store
from dagwright.tools import NotStarted, ToolRegistry, tool
from dagwright.tools.spec import EffectsName
from dagwright.toolset.toolset import load_toolset
from tests.support.activity_harness import ActivityHarness
from tests.support.plan_building import compiled_plan, node, plan_of, start_ready_tasks

_FIRST_START_DETAILS = [None, None, {"started": 1}]
_THIRD_START_DETAILS = [None, None, {"started": 3}]


class FakeCallStarts:
    """Fake `CallStarts` that records its start records as events."""

    record_slots = nullcontext()

    def __init__(self, events: list[str], *, stops_attempt: bool = False) -> None:
        self._events, self._stops_attempt = events, stops_attempt

    async def record(self, task_token: bytes, details: Sequence[Any]) -> None:
        assert task_token
        if self._stops_attempt:
            raise CallStopped("no")
        attempt = started_attempt(details)
        self._events.append("cleared" if attempt is None else f"recorded {attempt}")


async def _call_mail(
    folder: Path,
    events: list[str],
    *,
    earlier_details: Sequence[Any] = (),
    attempt: int = 1,
    fails: bool = False,
    stops_attempt: bool = False,
    max_attempts: int | None = None,
    paused_calls: PausedCalls | None = None,
    effects: EffectsName = "write",
) -> Any:
    @tool(effects=effects)
    async def mail() -> str:
        """Send a mail."""
        events.append("called")
        if fails:
            raise NotStarted("refused")
        return "sent"

    store = open_store(str(folder))
    guards = CallGuards(paused_calls, cast(CallStarts, FakeCallStarts(events, stops_attempt=stops_attempt)))
    environment = load_toolset(Settings(state_dir=folder)).environment
    registry = ToolRegistry.of(mail)
    [call] = activities_of_tools(
        callable_tools(registry, environment, values=LargeValues(store), cache=ResultCache(store), guards=guards)
    ).values()
    harness = ActivityHarness(call)
    harness.temporal.info = replace(
        ActivityEnvironment.default_info(), heartbeat_details=list(earlier_details), attempt=attempt, task_token=b"t"
    )
    harness.temporal.on_heartbeat = lambda *details: None
    headers = {} if max_attempts is None else {HEADER_ATTEMPTS: max_attempts}
    return await harness.payload({}, **headers)


@pytest.mark.parametrize(
    ("call_options", "expected_events"),
    [
        ({}, ["recorded 1", "called"]),
        ({"earlier_details": ["cursor"], "attempt": 2}, ["recorded 2", "called"]),
        # The tool is idempotent, but the plan declares the call as a `write`.
        ({"effects": "idempotent", "max_attempts": 3}, ["recorded 1", "called"]),
        ({"effects": "idempotent"}, ["called"]),
    ],
)
async def test_start_of_a_write_is_recorded_before_the_tool_is_called(
    tmp_path: Path, call_options: dict[str, Any], expected_events: list[str]
) -> None:
    events: list[str] = []
    await _call_mail(tmp_path, events, **call_options)
    assert events == expected_events


async def test_tool_is_not_called_if_its_start_record_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagwright.activities.call_tool._CANCEL_WAIT_S", 0.0)
    events: list[str] = []
    with pytest.raises(ApplicationError, match="mail was not called") as failure:
        await _call_mail(tmp_path, events, stops_attempt=True, max_attempts=1)
    # The failure is retryable, because the server may have paused the activity: only retryable activities are paused.
    assert (failure.value.type, failure.value.non_retryable, events) == ("not_started", False, [])


class SlowClient:
    """Fake Temporal client whose heartbeats take a millisecond."""

    def __init__(self) -> None:
        self.record_count = 0

    def get_async_activity_handle(self, **_: Any) -> "SlowClient":
        return self

    async def heartbeat(self, *_: Any, **__: Any) -> None:
        self.record_count += 1
        await asyncio.sleep(0.001)


async def test_at_most_two_calls_are_recorded_but_not_yet_made() -> None:
    client, call_count, max_open_records = SlowClient(), 0, 0
    starts = CallStarts(cast(Client, client))

    async def call() -> None:
        nonlocal call_count, max_open_records
        await Heartbeats(ActivityEnvironment.default_info(), starts=starts).record_start()
        max_open_records = max(max_open_records, client.record_count - call_count)
        call_count += 1

    await asyncio.gather(*(call() for _ in range(20)))
    assert (call_count, max_open_records) == (20, MAX_OPEN_RECORDS)


class FakePausedCalls:
    """Fake `PausedCalls`: each tool is paused."""

    async def pause_if_tool_is_paused(self, tool: str) -> ToolPause:
        return ToolPause(tool, 0.0)


@pytest.mark.parametrize(
    ("call_options", "expected_failure", "expected_events"),
    [
        pytest.param(
            {"earlier_details": _FIRST_START_DETAILS, "attempt": 2},
            ("outcome_unknown", True),
            [],
            id="start was recorded",
        ),
        pytest.param({"fails": True}, ("not_started", False), ["recorded 1", "called", "cleared"], id="not started"),
        # The server can pause the call, although the call has only one attempt.
        pytest.param({"max_attempts": 1, "paused_calls": FakePausedCalls()}, ("tool_paused", False), [], id="paused"),
    ],
)
async def test_failed_write_is_retryable_only_if_it_has_not_started(
    tmp_path: Path, call_options: dict[str, Any], expected_failure: tuple[str, bool], expected_events: list[str]
) -> None:
    events: list[str] = []
    with pytest.raises(ApplicationError) as failure:
        await _call_mail(tmp_path, events, **call_options)
    assert (failure.value.type, failure.value.non_retryable, events) == (*expected_failure, expected_events)
    assert failure.value.details[0]["attempt"] == 1


@pytest.mark.parametrize(
    ("earlier_details", "attempt", "is_final"),
    [
        ([], 1, False),
        # Two workers died before they called the tool.
        ([], 3, False),
        ([None, None, {"calls": [1, 1]}], 2, False),
        ([None, None, {"calls": [2, 4]}], 5, True),
        # The server has reset the attempt number, as after a pause.
        ([None, None, {"calls": [2, 2]}], 1, False),
    ],
)
async def test_max_attempts_counts_only_attempts_that_called_the_tool(
    tmp_path: Path, *, earlier_details: list[Any], attempt: int, is_final: bool
) -> None:
    with pytest.raises(ApplicationError) as failure:
        await _call_mail(tmp_path, [], earlier_details=earlier_details, attempt=attempt, fails=True, max_attempts=3)
    assert (failure.value.type, failure.value.non_retryable) == ("not_started", is_final)


def _timeout_failure(timeout_type: TimeoutType, details: list[Any], retry_state: RetryState) -> ActivityError:
    error = ActivityError(
        "lost",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="mail",
        activity_id="w",
        retry_state=retry_state,
    )
    error.__cause__ = TimeoutError("lost", type=timeout_type, last_heartbeat_details=details)
    return error


@pytest.mark.parametrize("records_starts", [True, False])
@pytest.mark.parametrize(
    ("timeout_type", "details", "retry_state", "has_not_started"),
    [
        (TimeoutType.HEARTBEAT, [], RetryState.MAXIMUM_ATTEMPTS_REACHED, True),
        (TimeoutType.HEARTBEAT, _THIRD_START_DETAILS, RetryState.MAXIMUM_ATTEMPTS_REACHED, False),
        (TimeoutType.HEARTBEAT, [], RetryState.CANCEL_REQUESTED, True),
        (TimeoutType.START_TO_CLOSE, [], RetryState.NON_RETRYABLE_FAILURE, True),
        (TimeoutType.START_TO_CLOSE, _THIRD_START_DETAILS, RetryState.NON_RETRYABLE_FAILURE, False),
    ],
)
def test_outcome_of_a_lost_write_is_unknown_only_if_the_write_may_have_started(
    timeout_type: TimeoutType,
    details: list[Any],
    retry_state: RetryState,
    *,
    has_not_started: bool,
    records_starts: bool,
) -> None:
    error = _timeout_failure(timeout_type, details, retry_state)
    failure, _ = read_failure(error, CompiledNode("w", tool="mail"), Effects.WRITE, records_starts=records_starts)
    expected = "not_started" if has_not_started and records_starts else "outcome_unknown"
    assert (failure.code, failure.retryable) == (expected, expected == "not_started")


@pytest.mark.parametrize("is_foreign", [False, True])
def test_outcome_of_a_lost_foreign_write_is_unknown_because_its_start_is_not_recorded(*, is_foreign: bool) -> None:
    mail = ToolDeclaration("mail", Effects.WRITE, task_queue="theirs" if is_foreign else None, is_foreign=is_foreign)
    scheduler = create_scheduler(compiled_plan(plan_of(node("w", tool="mail")), tools={"mail": mail}), {})
    scheduler.start(0.0)
    assert [task.id for task in start_ready_tasks(scheduler)] == ["w"]
    error = _timeout_failure(TimeoutType.HEARTBEAT, [], RetryState.MAXIMUM_ATTEMPTS_REACHED)
    failure = apply_failure(scheduler, "w", error, at=1.0)
    assert failure is not None
    assert failure.code == ("outcome_unknown" if is_foreign else "not_started")


TEXT = HeartbeatText(1, 0, "Oslo")


async def _run_attempt(
    work: Callable[[Heartbeats], Awaitable[None]],
    *,
    earlier_details: Sequence[Any] = (),
    attempt: int = 1,
    starts: Any = None,
) -> list[tuple[Any, ...]]:
    """Run `work` as an attempt, and return its heartbeats."""
    sent_heartbeats: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: sent_heartbeats.append(details)
    environment.info = replace(
        ActivityEnvironment.default_info(), heartbeat_details=list(earlier_details), attempt=attempt
    )

    async def run() -> None:
        await work(Heartbeats(environment.info, starts=starts))

    await environment.run(run)
    return sent_heartbeats


async def _heartbeats_of(
    work: Callable[[Heartbeats], None], *, earlier_details: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Return the heartbeats of an attempt that only calls `work`."""

    async def attempt_once(heartbeats: Heartbeats) -> None:
        with heartbeats.running():
            work(heartbeats)

    return await _run_attempt(attempt_once, earlier_details=earlier_details)


async def test_only_first_and_last_of_many_heartbeats_are_sent() -> None:
    def work(heartbeats: Heartbeats) -> None:
        for _ in range(1_000):
            heartbeats.add_usage(Usage(calls=1))

    sent_heartbeats = await _heartbeats_of(work)
    assert [usage_of_heartbeat(details).calls for details in sent_heartbeats] == [1, 1_000]


async def test_heartbeat_with_text_keeps_the_details_of_the_tool_and_the_usage() -> None:
    def work(heartbeats: Heartbeats) -> None:
        heartbeats.report_text(TEXT)
        heartbeats.add_usage(Usage(calls=1))
        heartbeats.report_text(HeartbeatText(1, 0, "Oslo has"))

    first_heartbeat, second_heartbeat = await _heartbeats_of(work, earlier_details=["cursor"])
    assert first_heartbeat == ("cursor", None, None, TEXT.to_json())
    assert second_heartbeat[0] == "cursor"
    assert usage_of_heartbeat(second_heartbeat).calls == 1
    assert second_heartbeat[TEXT_INDEX]["text"] == "Oslo has"


@pytest.mark.parametrize(
    ("open_response_count", "pause_s"), [(0, MIN_PAUSE_S), (10, MIN_PAUSE_S), (50, 0.5), (400, 4.0)]
)
def test_heartbeat_rate_of_all_streamed_responses_is_limited(open_response_count: int, pause_s: float) -> None:
    pace = HeartbeatPace()
    pace.open_response_count = open_response_count
    assert pace.pause_s == pytest.approx(pause_s)
    assert open_response_count / pace.pause_s <= HEARTBEATS_PER_S + 1e-9


class _UnresponsiveStarts:
    """Fake `CallStarts` of a server that does not respond."""

    record_slots = nullcontext()

    async def record(self, task_token: bytes, details: Sequence[Any]) -> None:
        assert started_attempt(details) == 1, task_token
        await asyncio.Event().wait()


async def test_heartbeat_after_a_cancelled_start_record_does_not_have_the_record() -> None:
    sent_heartbeats: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: sent_heartbeats.append(details)

    async def attempt() -> None:
        heartbeats = Heartbeats(environment.info, starts=cast(CallStarts, _UnresponsiveStarts()))
        record_task = asyncio.create_task(heartbeats.record_start())
        await asyncio.sleep(0)
        heartbeats.report_text(TEXT)
        assert sent_heartbeats == []
        record_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await record_task

    await environment.run(attempt)
    # This heartbeat clears the record, which the server may have received although the call was not made.
    assert sent_heartbeats == [(None, None, None, TEXT.to_json())]


async def test_heartbeats_keep_the_start_that_an_earlier_attempt_recorded() -> None:
    records: list[str] = []

    async def work(heartbeats: Heartbeats) -> None:
        heartbeats.report_text(TEXT)
        await heartbeats.record_end()
        heartbeats.stop()

    sent_heartbeats = await _run_attempt(
        work, earlier_details=_FIRST_START_DETAILS, attempt=2, starts=FakeCallStarts(records)
    )
    assert [started_attempt(details) for details in sent_heartbeats] == [1]
    assert records == []
