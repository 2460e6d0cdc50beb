"""Last lines of a server's standard error, usually the only explanation of why the server ended."""

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_MAX_LINES = 10
_MAX_LINE_CHARACTERS = 300
_MAX_STRAY_LINES = 5
_READ_TIMEOUT_S = 1.0

# structlog would write to stdout in a command that has not configured logging.
_LOG = logging.getLogger(__name__)


class _StrayLineFilter(logging.Filter):
    """Limits the log lines about server output that is not a protocol message.

    Many servers print such lines, which could fill the log of the worker or the terminal.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the traceback, and all lines after the first `_MAX_STRAY_LINES`."""
        record.exc_info = record.exc_text = None
        self._count += 1
        if self._count == _MAX_STRAY_LINES:
            record.msg = f"{record.msg} (further lines like this are omitted)"
        return self._count <= _MAX_STRAY_LINES


logging.getLogger("mcp.client.stdio").addFilter(_StrayLineFilter())


class StderrTail:
    """Stores the last lines that a server wrote to its standard error, and logs all lines at level `debug`.

    Args:
        server: name of the server, for the log.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._thread: threading.Thread | None = None

    @property
    def text(self) -> str:
        """Last lines, joined to one line; empty if the server wrote nothing."""
        return " / ".join(self._lines)

    @contextmanager
    def capture(self) -> Iterator[TextIO]:
        """Yield a file for the server's standard error, open for the duration of the block."""
        reader, writer = os.pipe()
        # The thread ends when the last writer closes the pipe. A slow server may close the pipe after the block.
        self._thread = threading.Thread(target=self._read, args=(reader,), name=f"mcp-{self._server}", daemon=True)
        self._thread.start()
        with os.fdopen(writer, "w", encoding="utf-8") as file:
            yield file

    def wait(self) -> None:
        """Wait for the output of an ended server, at most `_READ_TIMEOUT_S`: other processes may keep the pipe open."""
        if self._thread is not None:
            self._thread.join(_READ_TIMEOUT_S)

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace", newline=None) as file:
            while line := file.readline(_MAX_LINE_CHARACTERS):
                if message := line.strip():
                    self._lines.append(message)
                    _LOG.debug("the MCP server %s says: %s", self._server, message)
