"""What is worth saying of a run beside its nodes: messages that were refused, who cancelled it."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.contracts import limits


class Notes:
    """The notes of one run, in the order in which they were made; of those beyond the limit only the count is kept.

    Only a flood of signals makes so many.
    """

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.left_out = 0

    def add(self, code: str, message: str) -> None:
        """Keeps a note."""
        self._keep({"code": code, "node": None, "message": message})

    def go_on_from(self, notes: Sequence[Mapping[str, Any]], left_out: int) -> None:
        """Puts the notes of the executions before in front: messages may have come before they were known."""
        new, new_left_out = self.kept, self.left_out
        self.kept, self.left_out = [dict(note) for note in notes], left_out + new_left_out
        for note in new:
            self._keep(note)

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the notes as they stand in documents; the last one tells how many were left out."""
        if not self.left_out:
            return list(self.kept)
        message = f"{self.left_out} more notes are left out"
        return [*self.kept, {"code": "left_out", "node": None, "message": message}]

    def _keep(self, note: dict[str, Any]) -> None:
        if len(self.kept) < limits.NOTES:
            self.kept.append(note)
        else:
            self.left_out += 1
