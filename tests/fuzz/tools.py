"""Tools for the plans of the fuzzer, with all effects. The tools return odd values and raise odd errors."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError

from dagwright.tools import AskPerson, GiveUp, NotStarted, RetryLater, ToolRegistry, context, tool
from tests.support.tools import ODD_FAILURES, ODD_RESULTS, Function

EFFECTS = ("pure", "read", "idempotent", "write")
MAX_MS = 400
"""Maximum time that a tool takes, for any input."""


class _Model(BaseModel):
    name: str = "n"
    value: Any = None


@dataclasses.dataclass
class _Point:
    x: float = 1.5


class _Colour(enum.Enum):
    RED = "red"


class _Text(str):
    """A subclass of `str`."""


class _BadIterable:
    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("no items")


class _HugeText(Exception):
    def __str__(self) -> str:
        return "y" * 5_000_000


class _BaseError(BaseException):
    """An exception that is not a subclass of `Exception`."""


def _cycle() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def _deep_recursion(depth: int = 0) -> int:
    return _deep_recursion(depth + 1) + 1


def _cyclic_causes() -> BaseException:
    value_error, runtime_error = ValueError("first"), RuntimeError("second")
    value_error.__cause__, runtime_error.__cause__ = runtime_error, value_error
    return value_error


def _status_error(status: int, retry_after: str | None) -> BaseException:
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    request = httpx.Request("GET", "http://unknown.invalid")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, headers=headers))


RESULTS: dict[str, Callable[[], Any]] = {
    **ODD_RESULTS,
    "none": lambda: None,
    "empty": dict,
    "object": lambda: {"x": 1, "items": [1, 2, 3], "deep": {"y": [{"z": None}]}, "a b": "c"},
    "list": lambda: [{"x": 1, "name": "p"}, {"x": 2, "name": "q"}],
    "infinite": lambda: {"a": [float("inf")]},
    "bytes": lambda: b"\xff\x00",
    "cycle": _cycle,
    "model": lambda: _Model(value=[_Model()]),
    "model_with_nan": lambda: _Model(value=float("nan")),
    "dataclass": _Point,
    "class": lambda: _Point,
    "generator": lambda: (number for number in range(3)),
    "enum": lambda: _Colour.RED,
    "date": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "decimal": lambda: decimal.Decimal("0.1"),
    "text_subclass": lambda: _Text("t"),
    "bad_iterable": _BadIterable,
    "exception": lambda: ValueError("as a value"),
    "raw": lambda: RawValue(Payload(data=b"x")),
    "large_text": lambda: "x" * 10_000,
    "larger_text": lambda: "ü" * 200_000,
    "too_large_text": lambda: "x" * 3_000_000,
    "many_numbers": lambda: list(range(20_000)),
    "many_objects": lambda: [{"n": number, "t": "t" * 20} for number in range(3_000)],
    "many_keys": lambda: {f"k{number}": number for number in range(2_000)},
    "reference": lambda: {"ref": "node:a", "bytes": 10_000, "preview": "x"},
    "stored": lambda: {"ref": f"sha256-{'0' * 64}", "bytes": 10_000, "projections": []},
    "successful_worker_result": lambda: {"status": "success", "outputs": {"found": [1]}, "error": None},
    "partial_worker_result": lambda: {"status": "partial", "outputs": {"found": []}, "error": "half"},
    "odd_worker_result": lambda: {"status": 5, "outputs": "x"},
    "template": lambda: "{{a.result}} {{secret.X}} ${x} {{",
    "nul": lambda: "a\x00b\u2028\ufeff",
}
"""Functions that return the results of tools, by name."""

FAILURES: dict[str, Callable[[], BaseException]] = {
    **ODD_FAILURES,
    "later": lambda: RetryLater("later", after=timedelta(milliseconds=10)),
    "later_at_past_time": lambda: RetryLater("later", after=timedelta(days=-3)),
    "later_forever": lambda: RetryLater("later", after=timedelta(days=400_000)),
    "later_without_time": lambda: RetryLater("later"),
    "give_up": lambda: GiveUp("enough"),
    "not_started": lambda: NotStarted("before"),
    "ask": lambda: AskPerson({"type": "APPROVAL", "prompt": "?", "deadline": "50ms"}),
    "ask_oddly": lambda: AskPerson({"prompt": float("nan"), "x": "\ud800"}),
    "own_base_exception": _BaseError,
    "text_is_a_number": type("TextIsANumber", (Exception,), {"__str__": lambda _: 7}),
    "huge_text": _HugeText,
    "named_oddly": lambda: type("K\ud800" + "x" * 3_000, (Exception,), {})("odd"),
    "cyclic_causes": _cyclic_causes,
    # The call of the tool was neither cancelled nor terminated.
    "temporal_cancelled": lambda: CancelledError("another call was cancelled"),
    "temporal_terminated": lambda: TerminatedError("another call was terminated"),
    "application": lambda: ApplicationError("a", {"b": 1}, type="Own"),
    "application_with_odd_details": lambda: ApplicationError("a", object(), float("nan"), type="Own"),
    "application_with_long_type": lambda: ApplicationError("a", type="t" * 5_000),
    "application_delay_in_the_past": lambda: ApplicationError("a", next_retry_delay=timedelta(seconds=-5)),
    "application_final": lambda: ApplicationError("a", type="", non_retryable=True),
    "group": lambda: ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b")])]),
    "time_out": TimeoutError,
    "throttled": lambda: _status_error(429, "1"),
    "throttled_oddly": lambda: _status_error(429, "soon"),
    "throttled_forever": lambda: _status_error(503, "99999999999999999999"),
    "permanent_status": lambda: _status_error(404, None),
    "key": lambda: KeyError("\x00"),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
    "without_text": lambda: RuntimeError(""),
}
"""Functions that return the exceptions of tools, by name."""


def registry() -> ToolRegistry:
    """Return every tool of the fuzzer."""
    return ToolRegistry.of(
        *(function for effects in EFFECTS for function in _tools_with(effects)), *_tools_with_fixed_effects()
    )


def _tools_with(effects: Any) -> list[Function]:
    @tool(name=f"{effects}.echo", effects=effects)
    def echo(**arguments: Any) -> Any:
        return arguments

    @tool(name=f"{effects}.give", effects=effects)
    def give(kind: str, **_ignored: Any) -> Any:
        return RESULTS[kind]()

    @tool(name=f"{effects}.give_async", effects=effects)
    async def give_async(kind: str, **_ignored: Any) -> Any:
        return RESULTS[kind]()

    @tool(name=f"{effects}.fail", effects=effects)
    def fail(kind: str, **_ignored: Any) -> Any:
        raise FAILURES[kind]()

    @tool(name=f"{effects}.fail_async", effects=effects)
    async def fail_async(kind: str, **_ignored: Any) -> Any:
        raise FAILURES[kind]()

    @tool(name=f"{effects}.flaky", effects=effects)
    def flaky(kind: str, **_ignored: Any) -> Any:
        if context().attempt < 2:
            raise FAILURES[kind]()
        return context().attempt

    return [echo, give, give_async, fail, fail_async, flaky]


def _tools_with_fixed_effects() -> list[Function]:
    @tool(name="t", effects="read")
    def anything(**arguments: Any) -> Any:
        """Accept any arguments. The plans of all dialects (`tests.conformance.kit`) call this tool `t`."""
        return {"id": "x", "found": arguments}

    @tool(name="slow", effects="read")
    async def slow(ms: int) -> int:
        await asyncio.sleep(min(abs(ms), MAX_MS) / 1000)
        return ms

    @tool(name="slow_in_thread", effects="write")
    def slow_in_thread(ms: int) -> int:
        time.sleep(min(abs(ms), MAX_MS) / 1000)
        return ms

    @tool(name="ignores_cancellation", effects="idempotent")
    async def ignores_cancellation(ms: int) -> str:
        """Ignore cancellation and continue."""
        end = time.monotonic() + min(abs(ms), MAX_MS) / 1000
        while (remaining_s := end - time.monotonic()) > 0:
            try:
                await asyncio.sleep(remaining_s)
            except asyncio.CancelledError:
                continue
        return "ended"

    @tool(name="limited_parallel", effects="read", max_parallel=1)
    async def limited_parallel(**arguments: Any) -> Any:
        await asyncio.sleep(0.01)
        return arguments

    @tool(name="sends_heartbeats", effects="read")
    def sends_heartbeats(details: Any = None, **_ignored: Any) -> Any:
        """Send a heartbeat with any details, and report progress."""
        context().heartbeat(details)
        context().progress(1, 3)
        return context().last_heartbeat

    @tool(name="recursive", effects="pure")
    def recursive() -> int:
        return _deep_recursion()

    return [anything, slow, slow_in_thread, ignores_cancellation, limited_parallel, sends_heartbeats, recursive]
