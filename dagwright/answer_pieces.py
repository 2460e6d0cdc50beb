"""An answer in pieces for somebody who reads it while it is written: nothing is lost, and nothing told twice. Pure.

What has been told stands on somebody's screen. An attempt that follows one which died may write the same words: what
is told already is left out then. As soon as it writes others, the answer begins again.
"""

from dataclasses import dataclass

from dagwright.contracts.text_so_far import TextSoFar


@dataclass(frozen=True, slots=True)
class Written:
    """What a call has written so far, from its beginning on.

    Args:
        node: id of the call, with the path to the sub-plan that it stands in.
        attempt: 1 for the first.
    """

    node: str
    attempt: int
    text: str


class Writing:
    """What the calls of one run write, put together from what their heartbeats tell of it."""

    def __init__(self) -> None:
        self.newest: Written | None = None
        """Of the call that told something last and whose beginning is known."""

    def take(self, node: str, told: TextSoFar) -> bool:
        """Takes what a heartbeat tells; returns whether there is more of a text now.

        Of one whose beginning nobody has seen, or a part between, nothing more is known until it is whole.
        """
        before = self.newest
        is_same = before is not None and (before.node, before.attempt) == (node, told.attempt)
        known = before.text if before is not None and is_same else ""
        if told.start > len(known):
            return False
        text = known[: told.start] + told.text
        # What it has written stands.
        if is_same and (len(text) == len(known) or not text.startswith(known)):
            return False
        self.newest = Written(node, told.attempt, text)
        return bool(text)


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of an answer.

    Args:
        node, attempt: of the call that writes it; empty and 0 for what was read of the answer when it was whole.
        offset: place of the piece in the answer, in characters.
        begins_again: what was told before is no part of the answer; this is its beginning.
    """

    node: str
    attempt: int
    offset: int
    text: str
    begins_again: bool = False


class ToldText:
    """What one reader has been told of an answer."""

    def __init__(self) -> None:
        self.text = ""
        """Since the answer began last."""

    def piece_of(self, written: Written) -> Piece | None:
        """Returns what is to be told now; `None` if nothing is."""
        if self.text.startswith(written.text):
            # Another attempt may come to more, or to something else.
            return None
        return self._next(written.text, node=written.node, attempt=written.attempt)

    def rest_of(self, answer: str) -> Piece | None:
        """Returns what is left to be told of an answer that is whole; `None` if all of it was."""
        if answer == self.text:
            return None
        return self._next(answer, node="", attempt=0)

    def _next(self, text: str, *, node: str, attempt: int) -> Piece:
        begins_again = not text.startswith(self.text)
        offset = 0 if begins_again else len(self.text)
        self.text = text
        return Piece(node, attempt, offset, text[offset:], begins_again)
