"""Small tools for the tests of the engine, with every value of `effects`. Some tools wait until a test releases them.

A test and its tools run in one process and share a `CallHarness`, so held tools wait for the test and not for a clock.
"""

import asyncio
import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from dagwright.tools import AskPerson, GiveUp, RetryLater, ToolRegistry, context, tool

_PURE_TIMEOUT = timedelta(seconds=30)
"""Timeout of pure tools instead of 1 s: on a busy machine even an empty tool may take longer."""

Function = Callable[..., Any]


class UnprintableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ODD_FAILURES: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("wrong"),
    "keyboard": KeyboardInterrupt,
    "exit": lambda: SystemExit(3),
    "stop": lambda: StopIteration("end"),
    "stop_async": lambda: StopAsyncIteration("end"),
    "generator": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "no_text": UnprintableError,
    "memory": lambda: MemoryError("none left"),
    "group": lambda: BaseExceptionGroup("two", [ValueError("a"), KeyboardInterrupt()]),
    "surrogate": lambda: RuntimeError("half \ud800 a character"),
    "huge": lambda: RuntimeError("x" * 5_000_000),
}
"""Errors of a tool, by name."""

ODD_RESULTS: dict[str, Callable[[], Any]] = {
    "set": lambda: {1, 2},
    "nan": lambda: float("nan"),
    "function": lambda: len,
    "number_keys": lambda: {1: "a"},
    "surrogate": lambda: "half \ud800 a character",
    "deep": lambda: _nested_lists(20_000),
    "huge_number": lambda: 10**6_000,
}
"""Results that are not JSON or cannot be encoded, by name."""


def json_of(value: Any) -> str:
    """Return the JSON text of a value, as in a plan."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def digest_of(value: Any) -> str:
    """Return the expected result of the tool `digest`."""
    return f"{type(value).__name__} {hashlib.sha256(json_of(value).encode()).hexdigest()[:16]}"


class CallHarness:
    """Record and hold the calls of test tools; a test and its tools share this state.

    Attributes:
        effects: name -> the idempotency key of each execution of the effect, in order.
        entered: name of each call of a held tool, in order.
        thread_gates: name -> the event that releases a `pure_hold` of that name.
        clean_ups: name of each held call that has cleaned up after a cancellation, in order.
    """

    def __init__(self) -> None:
        self.effects: defaultdict[str, list[str]] = defaultdict(list)
        self.entered: list[str] = []
        self.clean_ups: list[str] = []
        self.thread_gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.running: defaultdict[str, int] = defaultdict(int)
        self.max_running: defaultdict[str, int] = defaultdict(int)

    def open(self, name: str) -> None:
        """Release every `hold` of that name."""
        self._gates[name].set()

    async def wait(self, name: str) -> None:
        """Wait until the test calls `open`. Tools call this method."""
        await self._gates[name].wait()

    def enter(self, name: str) -> None:
        """Record the start of a call of that name."""
        self.entered.append(name)
        self.running[name] += 1
        self.max_running[name] = max(self.max_running[name], self.running[name])

    def leave(self, name: str) -> None:
        """Record the end of a call of that name."""
        self.running[name] -= 1

    async def hold(self, name: str) -> str:
        """Record the start of a call, and wait until the test opens the gate of that name; record a cancellation."""
        self.enter(name)
        try:
            await self.wait(name)
        except asyncio.CancelledError:
            self.clean_ups.append(name)
            raise
        return name

    def registry(self) -> ToolRegistry:
        return ToolRegistry.of(
            *_plain_tools(),
            *_failing_tools(),
            *_pure_tools(self),
            *_batch_tools(self),
            *_holding_tools(self),
            *_effect_tools(self),
            *_tools_with_requests(self),
        )


def _nested_lists(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _plain_tools() -> list[Function]:
    @tool(effects="read")
    async def echo(**arguments: Any) -> dict[str, Any]:
        return arguments

    @tool(effects="pure")
    def add(left: float, right: float) -> Any:
        """Return the sum. The tool declares no return type, so plans may refer to missing parts of the result."""
        return left + right

    @tool(effects="read")
    def plus(left: float, right: float) -> float:
        """Same as `add`, but each call is a separate activity."""
        return left + right

    @tool(effects="pure")
    def nap(ms: int) -> int:
        time.sleep(ms / 1000)
        return ms

    @tool(effects="pure")
    def total(values: list[int]) -> int:
        return sum(values)

    @tool(effects="pure")
    def text(size: int) -> str:
        return "x" * size

    @tool(effects="pure")
    def length(text: str) -> int:
        return len(text)

    @tool(effects="read")
    def table(rows: int, size: int = 20) -> dict[str, Any]:
        return {"n": rows, "rows": [{"name": f"row {number}", "text": "x" * size} for number in range(rows)]}

    @tool(effects="read")
    async def digest(value: Any) -> str:
        return digest_of(value)

    @tool(effects="read")
    def find(outcome: str) -> dict[str, Any]:
        return {"status": outcome, "outputs": {"found": 1}, "error": "no luck" if outcome == "failed" else None}

    return [echo, add, plus, nap, total, text, length, table, digest, find]


def _failing_tools() -> list[Function]:
    @tool(effects="read")
    def fail(message: str = "no") -> None:
        raise ValueError(message)

    @tool(effects="read")
    def give_up(message: str = "no") -> None:
        raise GiveUp(message)

    @tool(effects="read")
    def flaky(succeeds_at: int) -> int:
        if context().attempt < succeeds_at:
            raise RuntimeError(f"attempt {context().attempt}")
        return context().attempt

    @tool(effects="read", max_attempts=5)
    def busy(succeeds_at: int) -> int:
        if context().attempt < succeeds_at:
            raise RetryLater("busy", after=timedelta(milliseconds=20))
        return context().attempt

    @tool(effects="read")
    def busy_for(days: int) -> None:
        raise RetryLater("busy", after=timedelta(days=days))

    @tool(effects="read")
    def odd_failure(kind: str) -> None:
        raise ODD_FAILURES[kind]()

    @tool(effects="read")
    async def odd_failure_async(kind: str) -> None:
        raise ODD_FAILURES[kind]()

    @tool(effects="read")
    def odd_result(kind: str) -> Any:
        return ODD_RESULTS[kind]()

    return [fail, give_up, flaky, busy, busy_for, odd_failure, odd_failure_async, odd_result]


def _pure_tools(harness: CallHarness) -> list[Function]:
    """Return pure tools for regions. Some of the tools break the rules for pure tools."""

    @tool(effects="pure", timeout=_PURE_TIMEOUT)
    def pure_failure(kind: str) -> None:
        raise ODD_FAILURES[kind]()

    @tool(effects="pure", timeout=_PURE_TIMEOUT)
    async def pure_failure_async(kind: str) -> None:
        raise ODD_FAILURES[kind]()

    @tool(effects="pure", timeout=_PURE_TIMEOUT)
    def pure_result(kind: str) -> Any:
        return ODD_RESULTS[kind]()

    @tool(effects="pure", timeout=_PURE_TIMEOUT)
    def pure_secret(token: str) -> str:
        return f"<{token}>"

    @tool(effects="pure", timeout=_PURE_TIMEOUT)
    def pure_flaky(succeeds_at: int) -> int:
        if context().attempt < succeeds_at:
            raise RuntimeError(f"attempt {context().attempt}")
        return context().attempt

    @tool(effects="pure", timeout=_PURE_TIMEOUT)
    def pure_change(values: list[Any]) -> list[Any]:
        """Change the arguments in place."""
        values[0]["changed"] = True
        return values

    @tool(effects="pure")
    def pure_hold(name: str) -> str:
        """Block the thread until the test releases it, or the run is cancelled."""
        harness.entered.append(name)
        while not harness.thread_gates[name].wait(0.01) and not context().cancelled:
            pass
        return name

    return [pure_failure, pure_failure_async, pure_result, pure_secret, pure_flaky, pure_change, pure_hold]


def _batch_tools(harness: CallHarness) -> list[Function]:
    @tool(effects="idempotent", batch=True)
    def short(name: str, value: Any = None) -> Any:
        harness.effects[name].append(context().idempotency_key)
        return value

    @tool(effects="read", batch=True, max_attempts=5)
    async def short_busy(succeeds_at: int) -> int:
        if context().attempt < succeeds_at:
            raise RetryLater("busy", after=timedelta(milliseconds=20))
        return context().attempt

    @tool(effects="read", batch=True)
    def short_table(rows: int) -> list[str]:
        return [f"row {number}" for number in range(rows)]

    @tool(effects="read", batch=True)
    async def short_hold(name: str) -> str:
        """Same as `hold`, but as a tool for batches of calls."""
        return await harness.hold(name)

    return [short, short_busy, short_table, short_hold]


def _holding_tools(harness: CallHarness) -> list[Function]:
    @tool(effects="read")
    async def hold(name: str) -> str:
        """Wait until the test opens the gate of that name."""
        try:
            return await harness.hold(name)
        finally:
            harness.leave(name)

    @tool(effects="read")
    def hold_in_thread(name: str) -> str:
        """Wait for cancellation, in a thread."""
        harness.enter(name)
        while not context().cancelled:
            context().wait_for_cancellation(5)
        harness.clean_ups.append(name)
        harness.leave(name)
        return name

    @tool(effects="write")
    async def hold_write(name: str) -> str:
        """Same as `hold`, but make an effect first."""
        harness.effects[name].append(context().idempotency_key)
        harness.enter(name)
        await harness.wait(name)
        return name

    return [hold, hold_in_thread, hold_write]


def _tools_with_requests(harness: CallHarness) -> list[Function]:
    @tool(effects="idempotent")
    async def order(name: str, choices: list[str]) -> dict[str, Any]:
        """Make an effect, ask for a choice, then ask for a word, and make a second effect."""
        checkpoint, answers = context().checkpoint, context().answers
        if checkpoint is None:
            harness.effects[f"{name} started"].append(context().idempotency_key)
            checkpoint = {"started": len(harness.effects[f"{name} started"])}
        if not answers:
            question = {"type": "SELECTION", "prompt": f"Which of {name}?", "options": choices, "assignee": "ann"}
            raise AskPerson(question, checkpoint=checkpoint)
        if len(answers) == 1:
            raise AskPerson("And why?", checkpoint=checkpoint | {"chosen": answers[0]["selected"]})
        harness.effects[name].append(context().idempotency_key)
        return {**checkpoint, "why": answers[1]["text"]}

    @tool(effects="read")
    def ask_wrongly(request: Any) -> None:
        raise AskPerson(request)

    @tool(effects="write")
    def change(name: str) -> str:
        harness.effects[name].append(context().idempotency_key)
        return name

    return [order, ask_wrongly, change]


def _effect_tools(harness: CallHarness) -> list[Function]:
    @tool(effects="idempotent")
    def return_key(name: str, succeeds_at: int = 1) -> str:
        """Record the key at each attempt and succeed at the attempt `succeeds_at`."""
        harness.effects[name].append(context().idempotency_key)
        if context().attempt < succeeds_at:
            raise RuntimeError("again")
        return context().idempotency_key

    @tool(effects="write")
    def write(name: str, error: str = "") -> str:
        """Make an effect, and then fail if there is an `error`."""
        harness.effects[name].append(context().idempotency_key)
        if error:
            raise RuntimeError(error)
        return name

    @tool(effects="write")
    def fail_at_first_call(name: str) -> str:
        """Record the key, and fail permanently at the first call."""
        harness.effects[name].append(context().idempotency_key)
        if len(harness.effects[name]) == 1:
            raise GiveUp("not the first time")
        return name

    return [return_key, write, fail_at_first_call]
