"""The wrapper around a tool, without a server: arguments, secrets, results, failures and cancellation."""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import httpx
import pytest
import structlog
from temporalio import activity
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary.wire import HEADER_BINDINGS, HEADER_IDEMPOTENCY_KEY
from dagwright.logging import add_activity_fields
from dagwright.protocol.attempts import read_attempt
from dagwright.protocol.idempotency import idempotency_key
from dagwright.tools import AskPerson, GiveUp, NotStarted, RetryLater, context, tool
from dagwright.tools.spec import EffectsName
from tests.support.activity_harness import WORKER_SHUTDOWN
from tests.support.function_harness import SECRETS, FunctionHarness, failing_harness


@tool(name="shop.add")
def add(item_id: int, rest: str = "é") -> dict[str, Any]:
    return {"item": item_id, "rest": rest}


@tool(name="shop.add")
async def add_async(item_id: int, rest: str = "é") -> dict[str, Any]:
    return {"item": item_id, "rest": rest}


@pytest.mark.parametrize("function", [add, add_async])
async def test_tool_receives_keyword_arguments_and_its_result_is_json_with_metadata(
    function: Callable[..., Any],
) -> None:
    harness = FunctionHarness(function)
    payload = await harness.payload({"item-id": 4})
    assert activity._Definition.must_from_callable(harness.activity).name == "shop.add"
    assert payload.data == '{"item":4,"rest":"é"}'.encode()
    assert payload.metadata.keys() == {"encoding", "dagwright"}
    attempt = read_attempt(payload.metadata)
    assert (attempt.started_at, len(attempt.tool_version), attempt.count) == (1_706_933_106.789, 12, 2)


async def test_context_has_key_node_attempt_and_last_heartbeat() -> None:
    @tool
    def look() -> list[Any]:
        call = context()
        return [call.idempotency_key, call.node_id, call.run_id, call.attempt, call.last_heartbeat]

    harness = FunctionHarness(look)
    harness.set_info(heartbeat_details=[{"page": 3}, {"done": 1}])
    assert await harness.result({}, **{HEADER_IDEMPOTENCY_KEY: "dw1_x"}) == ["dw1_x", "n1", "test", 2, {"page": 3}]


async def test_idempotency_key_without_a_header_is_the_same_in_every_attempt() -> None:
    @tool
    def key() -> str:
        return context().idempotency_key

    harness = FunctionHarness(key)
    first_key = await harness.result({})
    harness.set_info(attempt=3)
    assert await harness.result({}) == first_key
    assert first_key == idempotency_key(str(harness.temporal.info.workflow_run_id), [["node", "n1"]])


TOKEN_BINDING = [[["token"], [{"secret": "TOKEN"}]]]


async def test_secrets_are_inserted_and_never_returned() -> None:
    @tool
    def echo(header: str, nested: list[dict[str, str]]) -> Any:
        return {"text": f"got {header}", "list": [nested[0]["a"] == SECRETS["TOKEN"]], SECRETS["TOKEN"]: 1}

    bindings = [[["header"], [{"text": "Bearer "}, {"secret": "TOKEN"}]], [["nested", 0, "a"], [{"secret": "TOKEN"}]]]
    arguments = {"header": None, "nested": [{"a": None}]}
    expected = {"text": "got Bearer ***", "list": [True], "***": 1}
    assert await FunctionHarness(echo).result(arguments, **{HEADER_BINDINGS: bindings}) == expected


async def test_secrets_are_hidden_in_failures_in_every_form() -> None:
    @tool
    def leak(token: str, pin: str) -> None:
        encoded_token = httpx.QueryParams({"t": token})
        raise RuntimeError(f"{token} {encoded_token} {json.dumps(token)} pin={pin}")

    bindings = [*TOKEN_BINDING, [["pin"], [{"secret": "PIN"}]]]
    failure = await FunctionHarness(leak).failure({}, **{HEADER_BINDINGS: bindings})
    assert failure.message == 'RuntimeError: *** t=*** "***" pin=***'


async def test_missing_secret_is_not_retried_and_the_failure_names_its_variable() -> None:
    bindings = [[["rest"], [{"secret": "NOPE"}]]]
    failure = await FunctionHarness(add).failure({"item-id": 4, "rest": None}, **{HEADER_BINDINGS: bindings})
    assert (failure.type, failure.non_retryable) == ("missing_secret", True)
    assert "DAGWRIGHT_SECRET_NOPE" in failure.message


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [
        ("echo", {}, None),
        ("mail", {}, "The secret 'TOKEN' is not bound to 'mail': declare it with @tool"),
        ("mail", {"secrets": ["TOKEN"]}, None),
        ("mail", {"secrets": ["PIN"]}, "is not bound to 'mail'"),
        ("echo", {"secrets": []}, "'echo' takes no secrets"),
        ("echo", {"effects": "pure"}, "'echo' takes no secrets"),
    ],
)
async def test_secret_is_passed_only_to_tools_that_declare_it(
    name: str, fields: dict[str, Any], problem: str | None
) -> None:
    calls: list[str] = []

    @tool(**{"name": name, "effects": "read", **fields})
    def use_token(token: str) -> None:
        calls.append(token)

    if problem is None:
        assert await FunctionHarness(use_token).result({"token": None}, **{HEADER_BINDINGS: TOKEN_BINDING}) is None
        assert calls == [SECRETS["TOKEN"]]
        return
    failure = await FunctionHarness(use_token).failure({"token": None}, **{HEADER_BINDINGS: TOKEN_BINDING})
    assert (failure.type, failure.non_retryable, calls) == ("secret_not_allowed", True, [])
    assert problem in failure.message


@pytest.mark.parametrize("arguments", [(), ([1],), ({}, {}), (None,), ("x",)])
async def test_arguments_that_are_not_a_single_object_are_rejected_without_retry(arguments: tuple[Any, ...]) -> None:
    @tool
    def nothing() -> None: ...

    failure = await FunctionHarness(nothing).failure(*arguments)
    assert (failure.type, failure.non_retryable) == ("invalid_arguments", True)
    assert failure.message == "Invalid arguments: 'nothing' takes one JSON object"


async def test_invalid_arguments_and_results_are_not_retried() -> None:
    @tool
    def nan_result(text: str) -> Any:
        return {"at": {text: float("nan")}}

    argument_failure = await FunctionHarness(nan_result).failure({"txt": 1})
    assert (argument_failure.type, argument_failure.non_retryable) == ("invalid_arguments", True)
    assert argument_failure.message == "Invalid arguments: /txt: no such parameter; /text: Field required"
    result_failure = await FunctionHarness(nan_result).failure({"text": "x"})
    assert (result_failure.type, result_failure.non_retryable) == ("invalid_result", True)
    assert result_failure.message == "The value is not JSON at /at/x: nan is not a JSON number"


async def test_result_over_the_limit_is_rejected_with_its_size_and_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def large() -> str:
        return "x" * 300_000

    monkeypatch.setattr("dagwright.activities.call_tool.STORED_VALUE_LIMIT_BYTES", 262_144)
    failure = await FunctionHarness(large).failure({})
    assert (failure.type, failure.non_retryable) == ("too_large", True)
    assert "300,002 bytes" in failure.message
    assert "262,144" in failure.message


def status_error(status: int, retry_after: str | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://example.org")
    response = httpx.Response(status, headers={"Retry-After": retry_after} if retry_after else {}, request=request)
    return httpx.HTTPStatusError("no luck", request=request, response=response)


def unprintable_error(error_in_str: type[BaseException] = RuntimeError) -> Exception:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise error_in_str

    return Unprintable()


NO_LUCK = "HTTPStatusError: no luck"
NO_TEXT = "Unprintable: its text could not be read"


@pytest.mark.parametrize(
    ("error", "effects", "expected"),
    [
        (RuntimeError("x"), "read", ("tool_failed", False, None, "RuntimeError: x")),
        (RuntimeError("x"), "idempotent", ("tool_failed", False, None, "RuntimeError: x")),
        (RuntimeError("x"), "write", ("tool_failed", True, None, "RuntimeError: x")),
        (ValueError("bad"), "read", ("tool_failed", True, None, "bad")),
        (TypeError("bad"), "read", ("tool_failed", True, None, "TypeError: bad")),
        (KeyError("k"), "read", ("tool_failed", False, None, "KeyError: 'k'")),
        (GiveUp("over"), "read", ("tool_failed", True, None, "over")),
        (NotStarted("down"), "write", ("not_started", False, None, "down")),
        (httpx.ConnectError("down"), "write", ("not_started", False, None, "ConnectError: down")),
        (RetryLater("soon", timedelta(seconds=9)), "read", ("tool_failed", False, 9, "soon")),
        (RetryLater("soon", timedelta(days=400_000)), "read", ("tool_failed", False, 86400, "soon")),
        (RetryLater("soon", timedelta(days=-1)), "read", ("tool_failed", False, 0, "soon")),
        (SystemExit(3), "read", ("tool_failed", False, None, "SystemExit: 3")),
        (KeyboardInterrupt(), "read", ("tool_failed", False, None, "KeyboardInterrupt")),
        (StopIteration(7), "read", ("tool_failed", False, None, "StopIteration: 7")),
        (GeneratorExit(), "read", ("tool_failed", False, None, "GeneratorExit")),
        (asyncio.CancelledError(), "read", ("tool_failed", False, None, "CancelledError")),
        (unprintable_error(), "read", ("tool_failed", False, None, NO_TEXT)),
        (unprintable_error(SystemExit), "read", ("tool_failed", False, None, NO_TEXT)),
        (RuntimeError("a\ud800b"), "read", ("tool_failed", False, None, "RuntimeError: a?b")),
        (ApplicationError("custom", type="own_code", non_retryable=True), "read", ("own_code", True, None, "custom")),
        (AskPerson("Which one?"), "read", ("ask_person", True, None, "Which one?")),
        (status_error(404), "read", ("tool_failed", True, None, NO_LUCK)),
        (status_error(500), "read", ("tool_failed", False, None, NO_LUCK)),
        (status_error(500), "write", ("tool_failed", True, None, NO_LUCK)),
        (status_error(429, "7"), "write", ("tool_failed", False, 7, NO_LUCK)),
        (status_error(503, "Fri, 01 Jan 2100 00:00:00 GMT"), "read", ("tool_failed", False, 86400, NO_LUCK)),
        (status_error(503, "tomorrow"), "read", ("tool_failed", False, None, NO_LUCK)),
    ],
)
async def test_each_failure_has_a_code_a_retry_decision_and_a_delay(
    error: BaseException, effects: EffectsName, expected: tuple[str, bool, float | None, str]
) -> None:
    failure = await failing_harness(error, effects).failure({})
    delay_s = None if failure.next_retry_delay is None else failure.next_retry_delay.total_seconds()
    assert (failure.type, failure.non_retryable, delay_s, failure.message) == expected
    [details] = failure.details
    assert (details["attempt"], details["started_at"]) == (2, "2024-02-03T04:05:06.789Z")
    assert failure.__cause__ is None


async def test_async_tool_may_raise_any_base_exception() -> None:
    for error in (SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()):

        @tool
        async def failing(raised: Any = error) -> NoReturn:
            raise raised

        assert (await FunctionHarness(failing).failure({})).type == "tool_failed"


@pytest.mark.parametrize(
    "not_json", [float("nan"), "\ud800", object(), {1}], ids=["nan", "lone_surrogate", "object", "set"]
)
async def test_request_to_a_person_that_is_not_json_fails_the_call(not_json: Any) -> None:
    for request_to_person in (AskPerson({"prompt": not_json}), AskPerson("Which?", checkpoint=[not_json])):
        failure = await failing_harness(request_to_person).failure({})
        assert (failure.type, failure.non_retryable) == ("invalid_result", True)
        assert failure.message.startswith("AskPerson: request and checkpoint must be JSON: The value is not JSON at /")
        json.dumps(failure.details).encode()


async def test_too_large_request_to_a_person_fails_the_call() -> None:
    failure = await failing_harness(AskPerson("Which?", checkpoint="x" * 65_536)).failure({})
    assert (failure.type, failure.message) == (
        "invalid_result",
        "request and checkpoint of AskPerson have 65,572 bytes as JSON, over the limit of 65,536",
    )


async def test_request_to_a_person_is_in_the_failure_details() -> None:
    request_to_person = AskPerson({"type": "SELECTION", "prompt": "Which?"}, checkpoint={"done": 3})
    failure = await failing_harness(request_to_person).failure({})
    assert failure.details[0]["request"] == {"type": "SELECTION", "prompt": "Which?"}
    assert failure.details[0]["checkpoint"] == {"done": 3}


async def test_messages_and_traces_are_cut_at_whole_characters() -> None:
    def descend(depth: int) -> NoReturn:
        if depth:
            descend(depth - 1)
        raise RuntimeError("é" * 10_000)

    @tool
    def deep() -> None:
        descend(400)

    failure = await FunctionHarness(deep).failure({})
    assert len(failure.message.encode()) <= 4096
    assert failure.message.endswith("é…")
    encoded_failure = Failure()
    await DataConverter.default.encode_failure(failure, encoded_failure)
    assert len(encoded_failure.stack_trace.encode()) <= 16 * 1024
    assert "raise RuntimeError" in encoded_failure.stack_trace


async def test_endless_recursion_is_an_ordinary_failure() -> None:
    @tool(effects="read")
    def forever() -> Any:
        return forever()

    failure = await FunctionHarness(forever).failure({})
    assert failure.message.startswith("RecursionError")


async def test_message_includes_the_cause() -> None:
    @tool
    def save_report() -> None:
        try:
            raise OSError("disk full")
        except OSError as error:
            raise GiveUp("cannot save") from error

    assert (await FunctionHarness(save_report).failure({})).message == "cannot save (caused by OSError: disk full)"


async def test_heartbeats_of_the_wrapper_repeat_the_details_of_the_tool() -> None:
    heartbeat_event = asyncio.Event()
    sent_heartbeats: list[tuple[Any, ...]] = []

    @tool
    async def slow() -> None:
        context().heartbeat({"page": 1})
        context().progress(1, 4)
        await heartbeat_event.wait()

    def record_heartbeat(*details: Any) -> None:
        sent_heartbeats.append(details)
        if len(sent_heartbeats) == 5:
            heartbeat_event.set()

    harness = FunctionHarness(slow)
    harness.set_info(heartbeat_timeout=timedelta(milliseconds=60))
    harness.temporal.on_heartbeat = record_heartbeat
    await harness.result({})
    assert sent_heartbeats[-1] == ({"page": 1}, {"done": 1, "total": 4})


async def test_first_heartbeats_repeat_the_details_of_the_last_attempt_until_the_tool_reports() -> None:
    heartbeat_event = threading.Event()
    sent_heartbeats: list[tuple[Any, ...]] = []

    @tool
    def slow() -> bool:
        return heartbeat_event.wait(120)

    def record_heartbeat(*details: Any) -> None:
        sent_heartbeats.append(details)
        heartbeat_event.set()

    harness = FunctionHarness(slow)
    harness.set_info(heartbeat_timeout=timedelta(milliseconds=30), heartbeat_details=["cursor"])
    harness.temporal.on_heartbeat = record_heartbeat
    assert await harness.result({}) is True
    assert sent_heartbeats[0] == ("cursor",)


async def test_cancelled_async_tool_runs_its_clean_up() -> None:
    started_event, release_event = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> None:
        started_event.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.wait_for(release_event.wait(), 120)

    harness = FunctionHarness(slow)
    tool_call = await harness.start_and_cancel(harness.payload({}), started_event)
    release_event.set()
    with pytest.raises(asyncio.CancelledError):
        await tool_call


async def test_async_tool_cannot_suppress_its_cancellation() -> None:
    started_event = asyncio.Event()

    @tool
    async def suppress_cancellation() -> str:
        started_event.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "swallowed"
        return "unreachable"

    harness = FunctionHarness(suppress_cancellation)
    tool_call = await harness.start_and_cancel(harness.payload({}), started_event)
    with pytest.raises(asyncio.CancelledError):
        await tool_call


async def test_cancelled_sync_tool_detects_its_cancellation_and_finishes() -> None:
    started_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    was_cancelled: list[bool] = []

    @tool
    def slow() -> str:
        loop.call_soon_threadsafe(started_event.set)
        was_cancelled.append(context().wait_for_cancellation(10))
        return "cleaned up"

    harness = FunctionHarness(slow)
    tool_call = await harness.start_and_cancel(harness.payload({}), started_event)
    with pytest.raises(asyncio.CancelledError):
        await tool_call
    assert was_cancelled == [True]


async def test_sync_tool_that_ignores_its_cancellation_keeps_its_result() -> None:
    started_event, release_event = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def ignore_cancellation() -> str:
        loop.call_soon_threadsafe(started_event.set)
        return "done" if release_event.wait(120) else "never"

    harness = FunctionHarness(ignore_cancellation)
    tool_call = await harness.start_and_cancel(harness.result({}), started_event)
    loop.call_later(0.01, release_event.set)
    assert await tool_call == "done"


async def test_call_fails_with_worker_stopped_if_its_worker_shuts_down() -> None:
    started_event = asyncio.Event()

    @tool(effects="read")
    async def slow() -> None:
        started_event.set()
        await asyncio.Event().wait()

    harness = FunctionHarness(slow)
    tool_call = await harness.start_and_cancel(harness.failure({}), started_event, WORKER_SHUTDOWN)
    failure = await tool_call
    assert (failure.type, failure.non_retryable) == ("worker_stopped", False)


async def test_log_lines_have_run_node_and_attempt() -> None:
    @tool
    def log_line() -> None:
        structlog.get_logger().info("inside")

    events: list[Any] = []

    def record_event(_logger: Any, _name: str, event: Any) -> Any:
        events.append(add_activity_fields(_logger, _name, event))
        raise structlog.DropEvent

    configuration = structlog.get_config()
    structlog.configure(processors=[record_event])
    try:
        await FunctionHarness(log_line).result({})
    finally:
        structlog.configure(**configuration)
    assert events == [{"event": "inside", "run_id": "test", "node_id": "n1", "attempt": 2}]


async def test_blocking_async_tool_is_logged_by_the_worker() -> None:
    @tool(effects="read")
    async def blocking() -> None:
        await asyncio.sleep(0)
        threading.Event().wait(1.5)

    harness = FunctionHarness(blocking)
    harness.set_info(heartbeat_timeout=timedelta(milliseconds=300))
    with structlog.testing.capture_logs() as logs:
        await harness.payload({})
    assert [(line["log_level"], line["event"].partition(":")[0]) for line in logs] == [
        ("warning", "the event loop was blocked, so no heartbeat could be sent")
    ]
