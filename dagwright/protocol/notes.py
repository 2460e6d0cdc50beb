"""Notes about a run that are not part of a node's state, such as rejected messages and the author of a cancellation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dagwright.core.boundary import limits, wire

NOTE_CHARACTERS = 1_000
"""Maximum length of a note in the input of a run; notes about the plan are always shorter."""


class Notes:
    """Notes of one run, in order. Notes beyond the limit are only counted.

    Only a flood of signals exceeds the limit.
    """

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.omitted_count = 0

    def add(self, code: str, message: str) -> None:
        """Add a note."""
        self._append({"code": code, "node_id": None, "message": message})

    def add_rejection(self, message_name: str, reason: str | None) -> None:
        """Add a note about a rejected message; do nothing if `reason` is `None`, because the message was accepted.

        Args:
            message_name: name of the signal or update.
        """
        if reason is not None:
            self.add("message_rejected", f"{message_name}: {reason}")

    def prepend(self, notes: Sequence[Mapping[str, Any]], omitted_count: int) -> None:
        """Insert the notes of previous executions at the front.

        The notes of previous executions are loaded after the first messages of this execution.
        """
        newer_notes, newer_omitted_count = self.entries, self.omitted_count
        self.entries, self.omitted_count = [dict(note) for note in notes], omitted_count + newer_omitted_count
        for note in newer_notes:
            self._append(note)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the notes as documents show them. The last note has the number of omitted notes."""
        if not self.omitted_count:
            return list(self.entries)
        message = f"{self.omitted_count} more notes are omitted"
        return [*self.entries, {"code": "omitted", "node_id": None, "message": message}]

    def _append(self, note: dict[str, Any]) -> None:
        if len(self.entries) < limits.MAX_NOTES:
            self.entries.append(note)
        else:
            self.omitted_count += 1


def notes_from_json(encoded: Any) -> tuple[dict[str, Any], ...]:
    """Decode the notes in the input of a run.

    Raises:
        ValueError: the value is not a list of notes, or too long.
    """
    if not isinstance(encoded, Sequence) or isinstance(encoded, str) or len(encoded) > limits.MAX_NOTES:
        raise ValueError(f"'notes' must be a list of at most {limits.MAX_NOTES} notes")
    return tuple(_note(note) for note in encoded)


def _note(note: Any) -> dict[str, Any]:
    texts = [note.get("code"), note.get("message")] if isinstance(note, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a note must be an object with the strings 'code' and 'message'")
    node_id = note.get("node_id")
    return {
        "code": note["code"][:100],
        "node_id": node_id[:200] if isinstance(node_id, str) else None,
        "message": note["message"][:NOTE_CHARACTERS],
    }


ReadMessage = Callable[[], Any]
"""Function that returns the JSON value of a message, or raises `MessageInvalid`."""


def bug_message(error: Exception) -> str:
    """Return the rejection of a message whose handling raised an unexpected exception."""
    return f"{wire.ERROR_INTERNAL}: {type(error).__name__}: {error}"
