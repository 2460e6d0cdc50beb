"""Partial text of a model response, sent in the heartbeats of its call and returned by Temporal's `describe`.

The text is never written to history. The first heartbeat of a streaming call reports that the call streams, before
there is any text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary.usage_reports import USAGE_INDEX

TEXT_INDEX = USAGE_INDEX + 1
"""Index of the text in the details of a heartbeat, after the usage."""
WINDOW_CHARACTERS = 32 * 1024
"""Maximum length of the text in a heartbeat, because the Temporal server writes each heartbeat to its disk."""


@dataclass(frozen=True, slots=True)
class HeartbeatText:
    """Partial text of an attempt.

    Args:
        attempt: number of the attempt, starting at 1. The server keeps the details of an attempt until the next attempt
            sends a heartbeat, so the number identifies the attempt that wrote the text.
        start: offset of `text` in the whole text, in characters; greater than 0 if the whole text exceeds a heartbeat.
    """

    attempt: int
    start: int
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the text in the JSON form of a heartbeat."""
        return {"text": self.text, "from": self.start, "attempt": self.attempt}


def tail_for_heartbeat(text: str, *, attempt: int) -> HeartbeatText:
    """Return the end of a text, cut to the size of a heartbeat."""
    start = max(0, len(text) - WINDOW_CHARACTERS)
    return HeartbeatText(attempt, start, text[start:])


def heartbeat_text_from_json(encoded: Any) -> HeartbeatText | None:
    """Decode the text from a part of a heartbeat; `None` if that part is not a text."""
    if not isinstance(encoded, Mapping):
        return None
    attempt, start, text = encoded.get("attempt"), encoded.get("from"), encoded.get("text")
    if type(attempt) is not int or type(start) is not int or not isinstance(text, str) or start < 0:
        return None
    return HeartbeatText(attempt, start, text)
