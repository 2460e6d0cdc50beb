"""The event loop of synchronous code."""

import asyncio
import signal
import threading

import pytest

from dagwright.core.errors import ClientClosed, DagwrightError
from dagwright.process.loop_thread import LoopThread


async def _thread_name() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_another_thread() -> None:
    with LoopThread() as loop:
        assert (loop.run(_thread_name()), loop.call(lambda: threading.current_thread().name)) == ("dagwright",) * 2


async def test_it_works_while_the_loop_of_the_caller_runs() -> None:
    with LoopThread() as loop:
        assert loop.run(_thread_name()) == "dagwright"


def test_errors_and_use_after_the_end_are_raised() -> None:
    async def fail() -> None:
        raise LookupError("no")

    async def nested() -> str:
        return loop.run(_thread_name())

    with LoopThread() as loop:
        with pytest.raises(LookupError, match="no"):
            loop.run(fail())
        with pytest.raises(DagwrightError, match="use Client there"):
            loop.run(nested())
    with pytest.raises(ClientClosed, match="the client is closed"):
        loop.run(_thread_name())


def test_interrupt_waits_for_the_end_of_the_coroutine() -> None:
    ends: list[str] = []

    async def long() -> None:
        try:
            while True:
                # A signal that comes just before the main thread waits does not wake it: it is sent again.
                await asyncio.sleep(0.1)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        finally:
            await asyncio.sleep(0)
            ends.append("cleaned up")

    # Processes in the background ignore the signal by default.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with LoopThread() as loop, pytest.raises(KeyboardInterrupt):
            loop.run(long())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ends == ["cleaned up"]
