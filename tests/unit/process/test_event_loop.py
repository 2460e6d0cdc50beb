"""Event loops of workers and of the synchronous client: the switch interval, the watchdog, and the loop thread."""

import asyncio
import signal
import sys
import threading
import traceback

import pytest
import structlog

from dagwright.core.errors import ClientClosed, DagwrightError
from dagwright.process import event_loop_watchdog
from dagwright.process.event_loop import SWITCH_INTERVAL_S, short_switch_interval
from dagwright.process.loop_thread import LoopThread


def test_switch_interval_is_short_until_the_last_thread_releases_it() -> None:
    default_s = sys.getswitchinterval()
    started_event, release_event = threading.Event(), threading.Event()

    def hold_short_interval() -> None:
        with short_switch_interval:
            started_event.set()
            release_event.wait(10)

    first_thread = threading.Thread(target=hold_short_interval)
    with short_switch_interval:
        first_thread.start()
        assert started_event.wait(10)
    interval_s = sys.getswitchinterval()
    release_event.set()
    first_thread.join()
    assert (interval_s, sys.getswitchinterval()) == (SWITCH_INTERVAL_S, default_s)
    assert default_s > SWITCH_INTERVAL_S


async def _block_loop(unblock_event: threading.Event) -> None:
    unblock_event.wait(30)


async def test_blocked_loop_is_logged_once_and_a_free_loop_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_watchdog, "CHECK_INTERVAL_S", 0.01)
    with structlog.testing.capture_logs() as logs, event_loop_watchdog.logging_blocked_loop():
        await asyncio.sleep(0.1)
    assert logs == []
    monkeypatch.setattr(event_loop_watchdog, "BLOCKED_AFTER_S", 0.05)
    logged_event = threading.Event()

    def record(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        logged_event.set()
        return line

    with structlog.testing.capture_logs(processors=[record]) as logs, event_loop_watchdog.logging_blocked_loop():
        await _block_loop(logged_event)
        await asyncio.sleep(0)
    (line,) = logs
    assert line["event"].startswith("the event loop is blocked, so the calls of this worker cannot heartbeat")
    assert (line["where"].startswith(f"_block_loop ({__file__}:"), line["blocked_s"] >= 0) == (True, True)


async def _thread_name() -> str:
    return threading.current_thread().name


def test_coroutines_and_functions_run_in_the_loop_thread() -> None:
    with LoopThread() as loop:
        assert (loop.run(_thread_name()), loop.call(lambda: threading.current_thread().name)) == ("dagwright",) * 2


async def test_loop_thread_works_inside_a_running_loop() -> None:
    with LoopThread() as loop:
        assert loop.run(_thread_name()) == "dagwright"


def test_loop_raises_errors_of_coroutines_and_rejects_calls_after_its_end() -> None:
    async def fail() -> None:
        raise LookupError("no")

    async def run_nested() -> str:
        return loop.run(_thread_name())

    with LoopThread() as loop:
        with pytest.raises(LookupError, match="no"):
            loop.run(fail())
        with pytest.raises(DagwrightError, match="use Client there"):
            loop.run(run_nested())
        with pytest.raises(DagwrightError) as caught:
            loop.run(_raise_error())
        assert [frame.name for frame in caught.traceback][1:] == ["run"]
        assert "handled" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ClientClosed, match="the client is closed"):
        loop.run(_thread_name())


async def _raise_error() -> None:
    try:
        raise LookupError("handled")
    except LookupError:
        raise DagwrightError("refused")  # noqa: B904 - the test needs the context


def test_interrupt_waits_until_the_coroutine_has_cleaned_up() -> None:
    events: list[str] = []

    async def send_interrupts() -> None:
        try:
            while True:
                # Repeat the signal: a signal that arrives just before the main thread waits does not wake that thread.
                await asyncio.sleep(0.1)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        finally:
            await asyncio.sleep(0)
            events.append("cleaned up")

    # Background processes ignore SIGINT by default.
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with LoopThread() as loop, pytest.raises(KeyboardInterrupt):
            loop.run(send_interrupts())
    finally:
        signal.signal(signal.SIGINT, previous_handler)
    assert events == ["cleaned up"]
