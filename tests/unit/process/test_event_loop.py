"""The event loop of a worker: the switch interval during CPU-bound work, and the watchdog."""

import asyncio
import sys
import threading

import pytest
import structlog

from dagwright.process import event_loop_watchdog
from dagwright.process.event_loop import SWITCH_INTERVAL_S, short_switch_interval


def test_switch_interval_is_short_until_the_last_cpu_bound_thread_ends() -> None:
    default_s = sys.getswitchinterval()
    started, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with short_switch_interval:
            started.set()
            may_end.wait(10)

    first = threading.Thread(target=work)
    with short_switch_interval:
        first.start()
        assert started.wait(10)
    interval_s = sys.getswitchinterval()
    may_end.set()
    first.join()
    assert (interval_s, sys.getswitchinterval()) == (SWITCH_INTERVAL_S, default_s)
    assert default_s > SWITCH_INTERVAL_S


async def _blocks(until: threading.Event) -> None:
    until.wait(30)


async def test_blocked_loop_is_logged_once_and_a_free_one_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_watchdog, "LOOK_S", 0.01)
    with structlog.testing.capture_logs() as logs, event_loop_watchdog.blocked_loop_logged():
        await asyncio.sleep(0.1)
    assert logs == []
    monkeypatch.setattr(event_loop_watchdog, "BLOCKED_S", 0.05)
    is_logged = threading.Event()

    def record(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        is_logged.set()
        return line

    with structlog.testing.capture_logs(processors=[record]) as logs, event_loop_watchdog.blocked_loop_logged():
        await _blocks(is_logged)
        await asyncio.sleep(0)
    (line,) = logs
    assert line["event"].startswith("the event loop is blocked, so no call of this worker can heartbeat")
    assert (line["where"].startswith(f"_blocks ({__file__}:"), line["since_s"] >= 0) == (True, True)
