"""The conversation of a session: summaries of earlier turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.text import cut_for_model, cut_middle_for_model

MAX_TURNS_IN_PROMPT = 20
"""Maximum number of earlier turns in a prompt. The newest turns are used."""


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """One turn of a conversation: the message of a person and the response."""

    turn_id: int
    human_message: str
    ai_response: str

    def to_json(self) -> dict[str, Any]:
        """Serialize the turn."""
        return {"turn_id": self.turn_id, "human_message": self.human_message, "ai_response": self.ai_response}

    def shorten(self, characters: int) -> "TurnSummary":
        """Shorten the message and the response to `characters` each.

        The end of the response stays, because it may be a question.
        """
        message = cut_for_model(self.human_message, characters)
        return TurnSummary(self.turn_id, message, cut_middle_for_model(self.ai_response, characters))


def turns_from_json(encoded: Any) -> tuple[TurnSummary, ...]:
    """Parse a list of turns, oldest first.

    Raises:
        ValueError: the list is invalid; the message states the expected format.
    """
    expected = 'a list of {"turn_id": 1, "human_message": "…", "ai_response": "…"}'
    if not isinstance(encoded, list):
        raise ValueError(f"turns: expected {expected}")
    turns = []
    for index, turn in enumerate(encoded):
        texts = [turn.get(name) for name in ("human_message", "ai_response")] if isinstance(turn, Mapping) else []
        number = turn.get("turn_id") if texts else None
        if type(number) is not int or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"turns[{index}]: expected {expected}")
        turns.append(TurnSummary(number, str(texts[0]), str(texts[1])))
    return tuple(turns)


def recent_turns(
    turns: Sequence[TurnSummary], *, characters: int, newest_characters: int | None = None
) -> tuple[TurnSummary, ...]:
    """Return the turns that go into a prompt, with messages and responses shortened to `characters` each.

    Args:
        newest_characters: the limit for the newest turn; `None` for `characters`.
    """
    newest_turns = turns[-MAX_TURNS_IN_PROMPT:]
    return tuple(
        turn.shorten((newest_characters or characters) if turn is newest_turns[-1] else characters)
        for turn in newest_turns
    )
