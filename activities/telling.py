"""Tells the text of an answer while a model writes it, in the heartbeats of the call (docs/decisions/0060).

The first words are told at once, what follows at a pace that goes down with the number of answers that are written in
this process. This module must not import workflows.
"""

import asyncio
from types import TracebackType
from typing import Self

from dagwright.activities.heartbeats import Heartbeats
from dagwright.llm.client import ModelStream
from dagwright.llm.people_text import PeopleText
from dagwright.planning.model_calls.partial_text import end_of

SHORTEST_PAUSE_S = 0.1
"""Between two heartbeats of one answer: people see a text run that comes ten times a second."""
HEARTBEATS_PER_S = 100.0
"""Of all answers of a process together: each is a write on the server's disk, and these take it half a core."""


class Pace:
    """How often the answers that are written in one process are told."""

    def __init__(self) -> None:
        self.writing = 0
        """Answers that are being written."""

    @property
    def pause_s(self) -> float:
        """Returns the seconds between two heartbeats of one answer."""
        return max(SHORTEST_PAUSE_S, self.writing / HEARTBEATS_PER_S)


class TextTold:
    """The text of one answer; used as `with` around the writing, on the event loop of the activity.

    Args:
        field: as `PeopleText` takes it.
        pace: shared by all calls of the process.
    """

    def __init__(self, field: str, *, heartbeats: Heartbeats, attempt: int, pace: Pace) -> None:
        self._text = PeopleText(field)
        self._heartbeats = heartbeats
        self._attempt = attempt
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._told = ""
        self._told_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._pace.writing += 1
        # Who looks knows from now on that a text is about to come, and that what an earlier attempt told is over.
        self._heartbeats.tell(end_of("", attempt=self._attempt))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pace.writing -= 1
        if self._timer is not None:
            self._timer.cancel()

    def take(self, stream: ModelStream, words: str) -> None:  # noqa: ARG002 - what takes the pieces of a stream
        """Takes the next piece of the answer."""
        self._text.take(words)
        if self._timer is not None:
            return
        wait_s = self._told_at + self._pace.pause_s - self._loop.time() if self._told else 0.0
        if wait_s <= 0:
            self._tell()
        else:
            self._timer = self._loop.call_later(wait_s, self._tell)

    def _tell(self) -> None:
        self._timer = None
        text = self._text.text
        if text != self._told:
            self._told, self._told_at = text, self._loop.time()
            self._heartbeats.tell(end_of(text, attempt=self._attempt))
