"""An answer in pieces for somebody who reads it while it is written: nothing is lost, and nothing told twice. Pure.

What has been told stands on somebody's screen. An attempt that follows one which died may write the same words: what
is told already is left out then. As soon as it writes others, the answer begins again.
"""

import zlib
from dataclasses import dataclass

from dagwright.planning.model_calls.partial_text import TextSoFar


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


def check_of(text: str, before: int = 0) -> int:
    """Returns the CRC-32 of a text, or of one that goes on behind another.

    Args:
        before: that of what stands before it.
    """
    return zlib.crc32(text.encode(errors="surrogatepass"), before)


@dataclass(frozen=True, slots=True)
class Mark:
    """How much of an answer a reader has that was told it somewhere else; its text is not known here.

    Args:
        node: id of the call that wrote it; empty if nobody knows.
        length: in characters.
        check: lowest bits of the `check_of` these.
        bits: how many.
    """

    node: str = ""
    length: int = 0
    check: int = 0
    bits: int = 32

    def is_of(self, text: str) -> bool:
        """Tells whether a text begins with what was told."""
        is_long_enough = len(text) >= self.length
        return is_long_enough and (check_of(text[: self.length]) ^ self.check) & ((1 << self.bits) - 1) == 0


NOTHING_TOLD = Mark()


class ToldText:
    """What one reader has been told of an answer.

    Args:
        before: what it was told somewhere else.
    """

    def __init__(self, before: Mark = NOTHING_TOLD) -> None:
        self.text = ""
        """Since the answer began last."""
        self._before = before if before.length else None
        """As long as nobody has seen the text that it is of."""
        self._mark = before
        self._is_other = False
        """Whether what was told somewhere else is no part of the answer."""

    @property
    def mark(self) -> Mark:
        """What goes on from here needs to know."""
        return self._mark

    def piece_of(self, written: Written) -> Piece | None:
        """Returns what is to be told now; `None` if nothing is."""
        before = self._before
        if before is not None:
            may_be_same = not before.node or _name_of(before.node) == _name_of(written.node)
            if may_be_same and len(written.text) < before.length:
                # It may come to as much.
                return None
            self._find_in(written.text)
        if not self._is_other and self.text.startswith(written.text):
            # Another attempt may come to more, or to something else.
            return None
        return self._next(written.text, node=written.node, attempt=written.attempt)

    def rest_of(self, answer: str) -> Piece | None:
        """Returns what is left to be told of an answer that is whole; `None` if all of it was."""
        if self._before is not None:
            self._find_in(answer)
        if not self._is_other and answer == self.text:
            return None
        return self._next(answer, node="", attempt=0)

    def _find_in(self, text: str) -> None:
        before, self._before = self._mark, None
        self._is_other = not before.is_of(text)
        if not self._is_other:
            self.text = text[: before.length]
            self._mark = Mark(before.node, before.length, check_of(self.text))

    def _next(self, text: str, *, node: str, attempt: int) -> Piece:
        begins_again = self._is_other or not text.startswith(self.text)
        offset = 0 if begins_again else len(self.text)
        self.text, self._is_other = text, False
        piece = Piece(node, attempt, offset, text[offset:], begins_again)
        self._mark = Mark(node, len(text), check_of(piece.text, 0 if begins_again else self._mark.check))
        return piece


def _name_of(node: str) -> str:
    """Returns the id of a call without the number of its later tries."""
    return node.partition("#")[0]
