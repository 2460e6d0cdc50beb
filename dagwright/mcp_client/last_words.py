"""What a server wrote to its standard error last: the only thing that says why it ended."""

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_LINES = 10
_LINE_CHARACTERS = 300
_STRAY_LINES_TOLD = 5
_READ_S = 1.0

# Not structlog, which writes to stdout in a command that has configured no log.
_LOG = logging.getLogger(__name__)


class _StrayLines(logging.Filter):
    """Tells of the first lines that are no messages of the protocol, each in one line: many servers print such lines.

    One that writes nothing else would fill the log of its worker, or the terminal.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Leaves out the traceback, and all but the first few."""
        record.exc_info = record.exc_text = None
        self._count += 1
        if self._count == _STRAY_LINES_TOLD:
            record.msg = f"{record.msg} (any more such lines are left out)"
        return self._count <= _STRAY_LINES_TOLD


logging.getLogger("mcp.client.stdio").addFilter(_StrayLines())


class LastWords:
    """Keeps the last lines that a server wrote; all of them are log lines of level `debug`.

    Args:
        server: its name, for the log.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reading: threading.Thread | None = None

    @property
    def text(self) -> str:
        """The last lines, joined to one; empty if there were none."""
        return " / ".join(self._lines)

    @contextmanager
    def listening(self) -> Iterator[TextIO]:
        """Yields the file that the server writes to, for as long as the block lasts."""
        reader, writer = os.pipe()
        # A thread, and one that ends with the last writer: a server that is slow to end may outlive the block.
        self._reading = threading.Thread(target=self._read, args=(reader,), name=f"mcp-{self._server}", daemon=True)
        self._reading.start()
        with os.fdopen(writer, "w", encoding="utf-8") as file:
            yield file

    def wait(self) -> None:
        """Waits until all is read that a server has written which has ended; not long, as others may write on."""
        if self._reading is not None:
            self._reading.join(_READ_S)

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace", newline=None) as file:
            while line := file.readline(_LINE_CHARACTERS):
                if words := line.strip():
                    self._lines.append(words)
                    _LOG.debug("the MCP server %s says: %s", self._server, words)
