"""The last way out of a command: it leaves when something that it waits for does not end.

A step can refuse to end: a tool that catches its cancelling, a library that never comes back. The run does not need the
command, so what refuses is left behind. This module must not import what runs plans.
"""

import os
import sys
import threading

LEAVING_S = 20.0
"""Seconds until it is used: a worker gives its steps 10 s to end by themselves, and then cancels them."""


class WayOut:
    """Ends the process some seconds after `open`, unless it is closed before: nothing else is sure to end it."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def open(self, code: int) -> None:
        """Begins to count; what has been written to stdout and stderr is out by then.

        Args:
            code: exit code of the process. The first one counts.
        """
        if self._timer is None:
            sys.stdout.flush()
            # A thread: the loop of whoever does not end may stand still.
            self._timer = threading.Timer(LEAVING_S, _leave, (code,))
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Leaves the process to end by itself."""
        if self._timer is not None:
            self._timer.cancel()


def _leave(code: int) -> None:
    # Not print: another thread may hold the lock of the stream for good.
    os.write(2, b"a step does not end, so the command leaves it behind\n")
    os._exit(code)
