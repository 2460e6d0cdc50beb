"""End a process that waits for an endless step.

A step is an activity that the process runs. Some steps never end, for example if a tool catches its cancellation or a
library call never returns. The run does not depend on this process, so such a step is abandoned. This module must not
import modules that run plans.
"""

import asyncio
import os
import signal
import sys
import threading

from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.process.drain import writes_in_flight

EXIT_TIMEOUT_S = 20.0
"""Seconds until the watchdog ends the process: a worker gives its steps 10 s to finish, and then cancels them.

The time starts again at the end of each call of a `write` tool, which has its own timeout
(`dagwright.process.drain`)."""


class ExitWatchdog:
    """Timer that ends the process `EXIT_TIMEOUT_S` seconds after `start`, unless the timer is closed before."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def start(self, code: int) -> None:
        """Flush stdout and start the timer. Later calls of this method change nothing.

        Args:
            code: exit code of the process.
        """
        if self._timer is None:
            sys.stdout.flush()
            self._start_timer(EXIT_TIMEOUT_S, code)

    def _start_timer(self, delay_s: float, code: int) -> None:
        # The timer runs in a thread, because the event loop may be blocked.
        self._timer = threading.Timer(delay_s, self._end_process, (code,))
        self._timer.daemon = True
        self._timer.start()

    def _end_process(self, code: int) -> None:
        remaining_s = EXIT_TIMEOUT_S - writes_in_flight.quiet_s()
        if remaining_s > 0 and not self._is_closed:
            self._start_timer(remaining_s, code)
            return
        # `print` could wait forever, because another thread may hold the lock of the stream.
        os.write(2, b"a step does not end; exiting without waiting for it\n")
        os._exit(code)

    def close(self) -> None:
        """Stop the timer, because the process ends by itself."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()


def create_stop_event() -> asyncio.Event:
    """Return an event that the first SIGINT or SIGTERM sets; the second signal ends the process immediately."""
    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    signal_numbers = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        if stop_event.is_set():
            # The second signal arrived before its handler was set.
            end_process_at_once()
        stop_event.set()
        for signal_number in signal_numbers:
            # A step may block the event loop, so the handler for the second signal is not a handler of the loop.
            loop.remove_signal_handler(signal_number)
            signal.signal(signal_number, end_process_at_once)

    for signal_number in signal_numbers:
        loop.add_signal_handler(signal_number, stop)
    return stop_event


def end_process_at_once(*_: object) -> None:
    """End the process immediately, without cleanup."""
    # `sys.exit` would clean up, but a second Ctrl-C skips the cleanup. The server stores the state of all runs.
    os._exit(ExitCode.INTERRUPTED)
