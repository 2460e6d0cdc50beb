"""Stream of the text of an answer while it is written, without gaps or repetitions. The module has no I/O.

Delivered text is visible to the reader. If an attempt dies and the next attempt writes the same text, delivered text is
not repeated. If the next attempt writes another text, the answer restarts.
"""

import zlib
from dataclasses import dataclass

from dagwright.planning.model_calls.heartbeat_text import HeartbeatText


@dataclass(frozen=True, slots=True)
class PartialText:
    """Text that a call has written so far.

    Args:
        call_id: id of the call; for a call in a sub-plan, the path to the sub-plan and the id.
        attempt: 1 for the first.
    """

    call_id: str
    attempt: int
    text: str


class PartialTexts:
    """Texts of the calls of one run, assembled from their heartbeats."""

    def __init__(self) -> None:
        self.newest_text: PartialText | None = None
        """Text of the call that wrote last; texts that are not known from their start are ignored."""

    def apply(self, call_id: str, update: HeartbeatText) -> bool:
        """Apply a heartbeat; return whether there is new text.

        The update is ignored if there is a gap between the known text and the text of the update.
        """
        previous_partial = self.newest_text
        is_same_attempt = previous_partial is not None and (previous_partial.call_id, previous_partial.attempt) == (
            call_id,
            update.attempt,
        )
        previous_text = previous_partial.text if previous_partial is not None and is_same_attempt else ""
        if update.start > len(previous_text):
            return False
        text = previous_text[: update.start] + update.text
        # Text of the same attempt is never replaced.
        if is_same_attempt and (len(text) == len(previous_text) or not text.startswith(previous_text)):
            return False
        self.newest_text = PartialText(call_id, update.attempt, text)
        return bool(text)


@dataclass(frozen=True, slots=True)
class TextPart:
    """Next part of an answer.

    Args:
        call_id, attempt: call that writes this part; empty and 0 for the rest of a complete answer.
        offset: position in the answer, in characters.
        starts_new_text: whether this part starts a new text instead of continuing the delivered text. The delivered
            text is then no longer part of the answer.
    """

    call_id: str
    attempt: int
    offset: int
    text: str
    starts_new_text: bool = False


def text_checksum(text: str, preceding_checksum: int = 0) -> int:
    """Return the CRC-32 of a text, or of the continuation of another text.

    Args:
        preceding_checksum: CRC-32 of the preceding text.
    """
    return zlib.crc32(text.encode(errors="surrogatepass"), preceding_checksum)


@dataclass(frozen=True, slots=True)
class TextMark:
    """Length and checksum of delivered text, from which another stream can resume without the text.

    Args:
        call_id: id of the call that wrote the text; empty if unknown.
        length: number of characters.
        checksum: lowest bits of the CRC-32 of these characters.
        bits: number of bits in `checksum`.
    """

    call_id: str = ""
    length: int = 0
    checksum: int = 0
    bits: int = 32

    def is_prefix_of(self, text: str) -> bool:
        """Return whether a text starts with the delivered text."""
        is_long_enough = len(text) >= self.length
        return is_long_enough and (text_checksum(text[: self.length]) ^ self.checksum) & ((1 << self.bits) - 1) == 0


NO_TEXT = TextMark()


class DeliveredText:
    """Text of an answer that a reader has received.

    Args:
        earlier_mark: mark of the text that the reader got from another stream.
    """

    def __init__(self, earlier_mark: TextMark = NO_TEXT) -> None:
        self.text = ""
        """Text since the last restart of the answer."""
        self._unmatched_mark = earlier_mark if earlier_mark.length else None
        """Mark of the text that the reader got from another stream, until the text itself is known."""
        self._mark = earlier_mark
        self._must_restart = False
        """Whether the text that the reader got from another stream is not part of the answer."""

    @property
    def mark(self) -> TextMark:
        """Mark from which another stream can resume."""
        return self._mark

    def next_part(self, partial_text: PartialText) -> TextPart | None:
        """Return the next part to deliver, or `None`."""
        earlier_mark = self._unmatched_mark
        if earlier_mark is not None:
            node_id = node_of_call(partial_text.call_id)
            may_be_same_call = not earlier_mark.call_id or node_of_call(earlier_mark.call_id) == node_id
            if may_be_same_call and len(partial_text.text) < earlier_mark.length:
                # The call may still write the text that the reader has.
                return None
            self._match_earlier_text(partial_text.text)
        if not self._must_restart and self.text.startswith(partial_text.text):
            # The attempt may still write more, or another text.
            return None
        return self._deliver(partial_text.text, call_id=partial_text.call_id, attempt=partial_text.attempt)

    def rest_of(self, answer: str) -> TextPart | None:
        """Return the rest of a complete answer, or `None` if the whole answer was delivered."""
        if self._unmatched_mark is not None:
            self._match_earlier_text(answer)
        if not self._must_restart and answer == self.text:
            return None
        return self._deliver(answer, call_id="", attempt=0)

    def _match_earlier_text(self, text: str) -> None:
        earlier_mark, self._unmatched_mark = self._mark, None
        self._must_restart = not earlier_mark.is_prefix_of(text)
        if not self._must_restart:
            self.text = text[: earlier_mark.length]
            self._mark = TextMark(earlier_mark.call_id, earlier_mark.length, text_checksum(self.text))

    def _deliver(self, text: str, *, call_id: str, attempt: int) -> TextPart:
        starts_new_text = self._must_restart or not text.startswith(self.text)
        offset = 0 if starts_new_text else len(self.text)
        self.text, self._must_restart = text, False
        part = TextPart(call_id, attempt, offset, text[offset:], starts_new_text)
        self._mark = TextMark(
            call_id, len(text), text_checksum(part.text, 0 if starts_new_text else self._mark.checksum)
        )
        return part


def node_of_call(call_id: str) -> str:
    """Return the node of a call: the id of the call without the number that repeated calls have."""
    return call_id.partition("#")[0]
