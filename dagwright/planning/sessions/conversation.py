"""What was said before in a conversation, as models and documents are told of it: one summary a turn, oldest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TURNS_TOLD = 20
"""Earlier turns that a model is told of, the newest ones."""


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """One turn of a conversation: what a person said, and what was answered."""

    turn_id: int
    human_message: str
    ai_response: str

    def to_json(self) -> dict[str, Any]:
        """Returns the turn as it travels."""
        return {"turn_id": self.turn_id, "human_message": self.human_message, "ai_response": self.ai_response}

    def shortened(self, characters: int) -> "TurnSummary":
        """Returns the turn with so many characters of each side; of an answer the end is kept, where it asks."""
        said, answered = self.human_message, self.ai_response
        if len(said) > characters:
            said = f"{said[:characters]} […cut]"
        if len(answered) > characters:
            answered = f"{answered[: characters // 2]} […cut] {answered[-(characters // 2) :]}"
        return TurnSummary(self.turn_id, said, answered)


def turns_from_json(encoded: Any) -> tuple[TurnSummary, ...]:
    """Returns the turns of a list of objects, oldest first.

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    expected = 'a list of {"turn_id": 1, "human_message": "…", "ai_response": "…"}'
    if not isinstance(encoded, list):
        raise ValueError(f"turns: expected {expected}")
    found = []
    for place, turn in enumerate(encoded):
        said = [turn.get(name) for name in ("human_message", "ai_response")] if isinstance(turn, Mapping) else []
        number = turn.get("turn_id") if said else None
        if type(number) is not int or not all(isinstance(text, str) for text in said):
            raise ValueError(f"turns[{place}]: expected {expected}")
        found.append(TurnSummary(number, str(said[0]), str(said[1])))
    return tuple(found)


def turns_told(turns: Sequence[TurnSummary], *, characters: int, newest: int | None = None) -> tuple[TurnSummary, ...]:
    """Returns the turns that are told, each of its sides with so many characters.

    Args:
        newest: characters of the sides of the newest one; `None` for as many as of the others.
    """
    told = turns[-TURNS_TOLD:]
    return tuple(turn.shortened((newest or characters) if turn is told[-1] else characters) for turn in told)
