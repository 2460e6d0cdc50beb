"""What is worth saying of a run beside its nodes: messages that were refused, who cancelled it."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary import limits

NOTE_CHARACTERS = 1_000
"""Characters of a note that a run is given; a sentence about a plan is shorter."""


class Notes:
    """The notes of one run, in the order in which they were made; of those beyond the limit only the count is kept.

    Only a flood of signals makes so many.
    """

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.omitted = 0

    def add(self, code: str, message: str) -> None:
        """Keeps a note."""
        self._keep({"code": code, "node_id": None, "message": message})

    def refuse(self, message: str, reason: str | None) -> None:
        """Keeps a note of a message that was refused; one without a reason was not.

        Args:
            message: name of the signal.
        """
        if reason is not None:
            self.add("refused", f"{message}: {reason}")

    def go_on_from(self, notes: Sequence[Mapping[str, Any]], omitted: int) -> None:
        """Puts the notes of the executions before in front: messages may have come before they were known."""
        new, new_omitted = self.kept, self.omitted
        self.kept, self.omitted = [dict(note) for note in notes], omitted + new_omitted
        for note in new:
            self._keep(note)

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the notes as they stand in documents; the last one tells how many were left out."""
        if not self.omitted:
            return list(self.kept)
        message = f"{self.omitted} more notes are left out"
        return [*self.kept, {"code": "omitted", "node_id": None, "message": message}]

    def _keep(self, note: dict[str, Any]) -> None:
        if len(self.kept) < limits.NOTES:
            self.kept.append(note)
        else:
            self.omitted += 1


def notes_from_json(encoded: Any) -> tuple[dict[str, Any], ...]:
    """Returns notes that a run is given at its start.

    Raises:
        ValueError: they are no list of notes, or too many.
    """
    if not isinstance(encoded, Sequence) or isinstance(encoded, str) or len(encoded) > limits.NOTES:
        raise ValueError(f"'notes' must be a list of at most {limits.NOTES} notes")
    return tuple(_note(note) for note in encoded)


def _note(note: Any) -> dict[str, Any]:
    texts = [note.get("code"), note.get("message")] if isinstance(note, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a note is an object with the texts 'code' and 'message'")
    node = note.get("node_id")
    return {
        "code": note["code"][:100],
        "node_id": node[:200] if isinstance(node, str) else None,
        "message": note["message"][:NOTE_CHARACTERS],
    }
