"""Progress of a long load: a line on the terminal, and a report when Ctrl-C or SIGTERM interrupts the load."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dagwright.plugins.commands import CommandError, CommandErrorCode, Output, end_process_at_once
from dagwright_onboarding.party_loading import ProgressCallback, describe_progress

UPDATE_INTERVAL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CLEAR_LINE = "\r\x1b[K"
"""Clears the terminal line and moves the cursor to its start."""


@contextmanager
def report_load_progress(output: Output) -> Iterator[ProgressCallback]:
    """Yield a progress callback. After a signal, the callback ends the load at the end of the current transaction.

    The second signal exits at once. The signal handlers need the main thread.

    Raises:
        CommandError: a signal came; the message says how many rows were loaded.
    """
    progress_line = _ProgressLine(output)
    first_signal, is_loading = 0, False

    def on_signal(number: int, _: object) -> None:
        nonlocal first_signal
        if first_signal:
            end_process_at_once()
        first_signal = number
        if not is_loading:
            raise KeyboardInterrupt

    def on_progress(loaded_count: int, row_count: int) -> None:
        nonlocal is_loading
        is_loading = True
        if first_signal and loaded_count < row_count:
            raise _interruption_error(loaded_count, row_count)
        progress_line.update(loaded_count, row_count)

    previous_handlers = {signal_number: signal.signal(signal_number, on_signal) for signal_number in _SIGNALS}
    try:
        yield on_progress
    except KeyboardInterrupt:
        raise _interruption_error(0, 0) from None
    finally:
        for signal_number, handler in previous_handlers.items():
            signal.signal(signal_number, handler)
        progress_line.clear()


def _interruption_error(loaded_count: int, row_count: int) -> CommandError:
    return CommandError(f"interrupted; {describe_progress(loaded_count, row_count)}", code=CommandErrorCode.INTERRUPTED)


class _ProgressLine:
    """A terminal line that is overwritten with each update; no output if standard error is not a terminal."""

    def __init__(self, output: Output) -> None:
        self._is_enabled = not output.is_json and sys.stderr.isatty()
        self._started_at = self._next_update_at = time.monotonic()
        self._is_shown = False

    def update(self, loaded_count: int, row_count: int) -> None:
        now = time.monotonic()
        if not self._is_enabled or now < self._next_update_at:
            return
        self._next_update_at, self._is_shown = now + UPDATE_INTERVAL_S, True
        rows_per_s = round(loaded_count / max(now - self._started_at, 0.001))
        sys.stderr.write(f"{_CLEAR_LINE}{loaded_count:,} of {row_count:,} rows loaded, {rows_per_s:,} rows/s")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
