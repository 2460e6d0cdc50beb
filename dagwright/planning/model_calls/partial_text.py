"""The text of an answer while a model writes it, as the heartbeats of its call carry it and `describe` tells it.

Nothing of it comes into history. A call that tells its text says so with its first heartbeat, when there is none yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary.usage import USAGE_INDEX

TEXT_PLACE = USAGE_INDEX + 1
"""Where the details of a heartbeat tell a text, behind what was used."""
WINDOW_CHARACTERS = 32 * 1024
"""Of the end of a text that a heartbeat carries: each is written to the disk of the server."""


@dataclass(frozen=True, slots=True)
class TextSoFar:
    """What an attempt has written.

    Args:
        attempt: 1 for the first. The server keeps what an attempt has told until the next one tells something, so
            this says whose text it is.
        start: offset of `text` in all that was written, in characters; over 0 if that is longer than a heartbeat tells.
    """

    attempt: int
    start: int
    text: str

    def to_json(self) -> dict[str, Any]:
        """Returns the text as a heartbeat carries it."""
        return {"text": self.text, "from": self.start, "attempt": self.attempt}


def end_of(text: str, *, attempt: int) -> TextSoFar:
    """Returns as much of the end of a text as a heartbeat tells."""
    start = max(0, len(text) - WINDOW_CHARACTERS)
    return TextSoFar(attempt, start, text[start:])


def text_from_json(encoded: Any) -> TextSoFar | None:
    """Returns the text that a part of a heartbeat tells, `None` if it tells nothing of the kind."""
    if not isinstance(encoded, Mapping):
        return None
    attempt, start, text = encoded.get("attempt"), encoded.get("from"), encoded.get("text")
    if type(attempt) is not int or type(start) is not int or not isinstance(text, str) or start < 0:
        return None
    return TextSoFar(attempt, start, text)
