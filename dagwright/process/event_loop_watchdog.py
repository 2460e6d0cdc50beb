"""Log where the event loop of a worker is blocked, while it is blocked.

An async tool that works without `await` keeps all other calls of its worker from heartbeating. Temporal then times all
these calls out with the same message. While the loop is blocked, only another thread can report the cause.
"""

import asyncio
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import structlog

CHECK_INTERVAL_S = 1.0
BLOCKED_AFTER_S = 2.0
"""The watchdog logs a loop that has been blocked for at least this long. The watchdog checks the loop once per second,
so the log line may appear one second later.

The shortest heartbeat timeout is 3 s, counted from the last heartbeat of a call. A call may therefore time out before
the log line.
"""

_LOG = structlog.stdlib.get_logger("dagwright.process.event_loop")
_LIBRARY_FOLDERS = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@contextmanager
def logging_blocked_loop() -> Iterator[None]:
    """Watch the running loop until the `with` block ends.

    Each time the loop is blocked, log a warning with the location of the code that blocks it.
    """
    watchdog = _Watchdog(asyncio.get_running_loop())
    thread = threading.Thread(target=watchdog.run, name="event loop watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watchdog.stop_event.set()
        thread.join()


class _Watchdog:
    """The watchdog thread. The object is created in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.stop_event = threading.Event()
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._responded_at = time.monotonic()
        """Time at which the loop last executed a callback of the watchdog."""

    def run(self) -> None:
        is_logged = False
        checked_at = time.monotonic()
        while not self.stop_event.wait(CHECK_INTERVAL_S):
            now = time.monotonic()
            if now - checked_at > CHECK_INTERVAL_S + BLOCKED_AFTER_S:
                # The whole process was suspended, for example by SIGSTOP.
                self._responded_at = now
            checked_at = now
            silent_s = now - self._responded_at
            # The last response may be one check interval older than the start of the blockage.
            if silent_s < BLOCKED_AFTER_S + CHECK_INTERVAL_S:
                is_logged = False
            elif not is_logged:
                is_logged = True
                self._log_blocked_loop(silent_s)
            # The loop may be closed already.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._record_response)

    def _record_response(self) -> None:
        self._responded_at = time.monotonic()

    def _log_blocked_loop(self, silent_s: float) -> None:
        frame = sys._current_frames().get(self._thread_id)
        _LOG.warning(
            "the event loop is blocked, so the calls of this worker cannot heartbeat, and Temporal times them out: "
            "an async tool must not block; write it as a plain def, which runs in a thread, or await slow operations",
            where=_location_of(frame) if frame is not None else None,
            blocked_s=round(silent_s, 1),
        )


def _location_of(frame: FrameType) -> str:
    """Return function, file and line of the innermost frame outside of libraries."""
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith(_LIBRARY_FOLDERS):
        caller = caller.f_back
    shown_frame = caller or frame
    return f"{shown_frame.f_code.co_qualname} ({shown_frame.f_code.co_filename}:{shown_frame.f_lineno})"
