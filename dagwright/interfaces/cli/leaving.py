"""The last way out of a command: it leaves when something that it waits for does not end.

A step can refuse to end: a tool that catches its cancelling, a library that never comes back. The run does not need the
command, so what refuses is left behind. This module must not import what runs plans.
"""

import asyncio
import os
import signal
import sys
import threading

from dagwright.interfaces.cli.exits import ExitCode
from dagwright.process.drain import writes_in_flight

LEAVING_S = 20.0
"""Seconds until it is used: a worker gives its steps 10 s to end by themselves, and then cancels them.

They count from the end of the last call of a `write` tool: such a call ends at its own timeout
(`dagwright.process.drain`)."""


class WayOut:
    """Ends the process some seconds after `open`, unless it is closed before: nothing else is sure to end it."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def open(self, code: int) -> None:
        """Begins to count; what has been written to stdout and stderr is out by then.

        Args:
            code: exit code of the process. The first one counts.
        """
        if self._timer is None:
            sys.stdout.flush()
            self._start(LEAVING_S, code)

    def _start(self, delay_s: float, code: int) -> None:
        # A thread: the event loop of a process that does not end may be blocked.
        self._timer = threading.Timer(delay_s, self._leave, (code,))
        self._timer.daemon = True
        self._timer.start()

    def _leave(self, code: int) -> None:
        left_s = LEAVING_S - writes_in_flight.quiet_s()
        if left_s > 0 and not self._is_closed:
            self._start(left_s, code)
            return
        # Not print: another thread may hold the lock of the stream for good.
        os.write(2, b"a step does not end, so the command exits without it\n")
        os._exit(code)

    def close(self) -> None:
        """Leaves the process to end by itself."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()


def stop_signal() -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; the second one ends the process at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        if stopped.is_set():
            # It came while the loop was at something else, and before what is set below.
            leave_at_once()
        stopped.set()
        for number in numbers:
            # Not by the loop, which a step that blocks keeps from its turn.
            loop.remove_signal_handler(number)
            signal.signal(number, leave_at_once)

    for number in numbers:
        loop.add_signal_handler(number, stop)
    return stopped


def leave_at_once(*_: object) -> None:
    """Ends the process at once, without cleaning up."""
    # Not sys.exit: a second Ctrl-C asks for no cleaning up, and the run is safe on the server.
    os._exit(ExitCode.INTERRUPTED)
