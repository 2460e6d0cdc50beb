"""What a session keeps of the answer of a turn, and what the next request is told of that turn.

The answer of the newest turn counts most: it may be a question that the next request answers. So all of it is kept
that a run itself holds of an answer, and less of the answers before it, in the middle of which something is left out:
what an answer asks stands at its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.contracts.documents import encoded_size
from dagwright.contracts.limits import INLINE_VALUE_BYTES
from dagwright.plan.stored import StoredValue

RESPONSE_BYTES = INLINE_VALUE_BYTES
"""JSON of the answer of the newest turn: room for every one that lies in no store."""
OLDER_RESPONSE_BYTES = 2_000
"""The same of a turn before it."""
RESPONSES_BYTES = 16_000
"""The same of all turns in sum; of the oldest ones only a line is kept."""
CUT = "\n[… cut here …]\n"
"""Stands where something was left out."""


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """A turn as the next request is told of it.

    Args:
        turn_id: number of the turn in its session; 1 for the first.
        human_message: what was asked.
        ai_response: the answer, or what became of the turn that has none.
    """

    turn_id: int
    human_message: str
    ai_response: str

    def to_json(self) -> dict[str, Any]:
        """Returns the summary as it travels."""
        return {"turn_id": self.turn_id, "human_message": self.human_message, "ai_response": self.ai_response}


def turn_summary_from_json(encoded: Any) -> TurnSummary:
    """Returns the summary that `TurnSummary.to_json` told.

    Raises:
        ValueError: it is none; the text says what one is.
    """
    if isinstance(encoded, Mapping):
        number, said, answered = (encoded.get(key) for key in ("turn_id", "human_message", "ai_response"))
        if type(number) is int and isinstance(said, str) and isinstance(answered, str):
            return TurnSummary(number, said, answered)
    raise ValueError('a turn is an object such as {"turn_id": 1, "human_message": "…", "ai_response": "…"}')


def response_of(output: Any) -> str | None:
    """Returns the answer that the output of a run is, as far as a session keeps it; `None` if it is no text.

    Args:
        output: as the run has it, so it may lie in the payload store.
    """
    if isinstance(output, StoredValue):
        told = output.told
        if told is None or told.shape is None or told.shape.type != "text":
            return None
        output = told.value if told.state == "whole" else f"{told.shape.preview}{CUT}"
    if not isinstance(output, str) or not output.strip():
        return None
    return cut_inside(output.strip(), max_bytes=RESPONSE_BYTES)


def cut_inside(text: str, *, max_bytes: int) -> str:
    """Returns a text of at most so many bytes as JSON: of a longer one two parts of the beginning and one of the end.

    Args:
        max_bytes: far more than the mark that shows the cut has.
    """
    encoded = text.encode(errors="replace")
    found, kept = encoded.decode(), len(encoded)
    # A sign takes one to six bytes in JSON, so how much of the text has room is known only when it is tried.
    while (size := encoded_size(found)) > max_bytes:
        kept = min(kept - 1, kept * max_bytes // size)
        end = kept // 3
        first, last = encoded[: kept - end], encoded[len(encoded) - end :]
        found = first.decode(errors="ignore") + CUT + last.decode(errors="ignore")
    return found


def shortened(responses: Sequence[str | None]) -> list[str | None]:
    """Returns the answers of turns, the newest last, as a session keeps them: the oldest ones go first."""
    kept: list[str | None] = []
    left, most = RESPONSES_BYTES, RESPONSE_BYTES
    for response in reversed(responses):
        text = None if response is None else cut_inside(response, max_bytes=most)
        if text is not None:
            most = OLDER_RESPONSE_BYTES
            left -= encoded_size(text)
        kept.append(text if left >= 0 else None)
    return kept[::-1]
