"""A loop that stands still: who is told to be at fault, and when."""

import asyncio
import threading

import pytest
import structlog

from dagwright import loop_watch


async def _blocks(until: threading.Event) -> None:
    until.wait(30)


async def test_where_the_loop_stands_still_is_told_once_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "LOOK_S", 0.01)
    monkeypatch.setattr(loop_watch, "STANDS_S", 0.05)
    is_told = threading.Event()

    def told(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        is_told.set()
        return line

    with structlog.testing.capture_logs(processors=[told]) as logs, loop_watch.standing_told():
        await _blocks(is_told)
        await asyncio.sleep(0)
    (line,) = logs
    assert line["event"].startswith("the event loop stands still, so no call of this worker can heartbeat")
    assert line["where"].startswith(f"_blocks ({__file__}:")
    assert line["since_s"] >= 0


async def test_a_loop_that_goes_on_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "LOOK_S", 0.01)
    with structlog.testing.capture_logs() as logs, loop_watch.standing_told():
        await asyncio.sleep(0.1)
    assert logs == []
