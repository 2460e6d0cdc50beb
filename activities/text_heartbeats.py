"""Report the text of a response in the heartbeats of the call, while the model writes the text (docs/decisions/0060).

The first words are reported at once. Later text is reported less often if the process receives many responses at the
same time. This module must not import workflows.
"""

import asyncio
from types import TracebackType
from typing import Self

from dagwright.activities.heartbeats import Heartbeats
from dagwright.llm.client import ModelStream
from dagwright.llm.visible_text import VisibleText
from dagwright.planning.model_calls.heartbeat_text import tail_for_heartbeat

MIN_PAUSE_S = 0.1
"""Minimum interval of heartbeats for one response: text that arrives ten times a second looks continuous."""
HEARTBEATS_PER_S = 100.0
"""Limit for all responses of a process: each heartbeat is a disk write on the server. At this rate, the writes take
half a core."""


class HeartbeatPace:
    """Heartbeat rate of the responses that are written in one process."""

    def __init__(self) -> None:
        self.open_response_count = 0
        """Number of responses that are being written."""

    @property
    def pause_s(self) -> float:
        """Return the seconds between two heartbeats of one response."""
        return max(MIN_PAUSE_S, self.open_response_count / HEARTBEATS_PER_S)


class TextHeartbeats:
    """Partial text of one response; use it as `with` around the model call, on the event loop of the activity.

    Args:
        field: field of the JSON output that contains the text to report; empty if the whole output is the text.
        pace: shared by all calls of the process.
    """

    def __init__(self, field: str, *, heartbeats: Heartbeats, attempt: int, pace: HeartbeatPace) -> None:
        self._visible_text = VisibleText(field)
        self._heartbeats = heartbeats
        self._attempt = attempt
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._reported_text = ""
        self._reported_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._pace.open_response_count += 1
        # The empty text announces the response and replaces the partial text of an earlier attempt.
        self._heartbeats.report_text(tail_for_heartbeat("", attempt=self._attempt))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pace.open_response_count -= 1
        if self._timer is not None:
            self._timer.cancel()

    def feed(self, stream: ModelStream, text: str) -> None:  # noqa: ARG002 - the signature of a stream callback
        """Feed the next piece of the response."""
        self._visible_text.add(text)
        if self._timer is not None:
            return
        wait_s = self._reported_at + self._pace.pause_s - self._loop.time() if self._reported_text else 0.0
        if wait_s <= 0:
            self._report()
        else:
            self._timer = self._loop.call_later(wait_s, self._report)

    def _report(self) -> None:
        self._timer = None
        text = self._visible_text.text
        if text != self._reported_text:
            self._reported_text, self._reported_at = text, self._loop.time()
            self._heartbeats.report_text(tail_for_heartbeat(text, attempt=self._attempt))
