"""Cursors of answer streams. The `id` of each event is a cursor.

    run-1/c1/1-45.9f3a01bc4d0e77a2/128.120.1a2b3c4d.answer/0
    run   kind  history             text                    end

To resume a stream, any gateway needs only the cursor, the history of the run and the answer of the run. The parts of a
cursor describe the events that the client has received:

kind     kind of the stream, and number of opening events
history  position in the history, with checksums of the run status and open requests
text     number of characters in total, length and checksum of the current answer, and the ID of the call that writes it
end      number of closing events, with a checksum of the outcome

Events of the Responses API also have a `sequence_number`, which contains only the number of characters and eleven bits
of the checksum of the text. The numbers of a stream increase, with gaps.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self
from urllib.parse import quote, unquote

from dagwright.history.executions import START
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.text_stream import NO_TEXT, TextMark, text_checksum
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError

LAST_EVENT_ID_HEADER = "Last-Event-ID"
_PATTERN = re.compile(
    r"(?P<run>[^/]+)/(?P<kind>[cr])(?P<opening>[1-4])/(?P<history>\d+-\d+w?)(?:\.(?P<checksums>[0-9a-f]{16}))?"
    r"/(?P<total>\d{1,9})\.(?P<length>\d{1,9})\.(?P<check>[0-9a-f]{8}|[0-9a-f]{3})\.(?P<call_id>[^/]*)"
    r"/(?P<end>\d{1,6})(?:\.(?P<outcome>[0-9a-f]{8}))?",
    re.ASCII,
)
RESPONSE_OPENING_EVENTS = 4
"""Events of a response before its text: created, in progress, the message item, and its text part."""
CHECKSUM_DIGITS = 8
"""Digits of `checksum`."""
_NO_HISTORY = SubscriptionCursor(START)
_LOW_BITS = 12
"""Number of low bits of a sequence number; the other bits are the number of characters.

Up to 500,000 characters need 31 bits.
"""
_SHORT_CHECKSUM_DIGITS = 3
"""Digits of the checksum of a text in a cursor that was created from a `sequence_number`."""
_TEXT_FLAG = 1 << _LOW_BITS - 1
"""Highest of the low bits. If this bit is set, the event is a piece of text, and the other low bits are the checksum of
the text. Otherwise, the event is a closing event."""


class StreamKind(StrEnum):
    """Kind of an answer stream."""

    CHAT = "c"
    RESPONSE = "r"


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """The position of a client in an answer stream.

    Args:
        opening_count: number of opening events received.
        history: position in the history.
        run_checksums: checksums of the run status and the open requests received; empty for none.
        total_characters: number of characters received, including abandoned answers.
        mark: position in the current answer.
        closing_count: number of closing events received. The text of questions counts as the first closing event, even
            if it is empty.
        outcome_checksum: checksum of the outcome that the closing events report; empty if unknown.
    """

    kind: StreamKind
    run_id: str
    opening_count: int = 0
    history: SubscriptionCursor = _NO_HISTORY
    run_checksums: str = ""
    total_characters: int = 0
    mark: TextMark = NO_TEXT
    closing_count: int = 0
    outcome_checksum: str = ""

    def __str__(self) -> str:
        position = ".".join(filter(None, (str(self.history), self.run_checksums)))
        mark_checksum = f"{self.mark.checksum:0{-(-self.mark.bits // 4)}x}"
        text = f"{self.total_characters}.{self.mark.length}.{mark_checksum}.{_quote(self.mark.call_id)}"
        closing = ".".join(filter(None, (str(self.closing_count), self.outcome_checksum)))
        return f"{_quote(self.run_id)}/{self.kind}{self.opening_count}/{position}/{text}/{closing}"

    @classmethod
    def parse(cls, text: str, kind: StreamKind) -> Self:
        """Parse an event ID.

        Raises:
            ApiError: the text is not the ID of an event in a stream of this kind.
        """
        match = _PATTERN.fullmatch(text)
        run_id = unquote(match["run"]) if match is not None else ""
        if (
            match is None
            or match["kind"] != kind
            or not run_id.isprintable()
            or int(match["total"]) < int(match["length"])
        ):
            raise _invalid_cursor_error(text)
        try:
            history = SubscriptionCursor.parse(match["history"])
        except ValueError:
            raise _invalid_cursor_error(text) from None
        bits = 32 if len(match["check"]) > _SHORT_CHECKSUM_DIGITS else _LOW_BITS - 1
        mark = TextMark(unquote(match["call_id"]), int(match["length"]), int(match["check"], 16), bits)
        return cls(
            kind,
            run_id,
            int(match["opening"]),
            history,
            match["checksums"] or "",
            int(match["total"]),
            mark,
            int(match["end"]),
            match["outcome"] or "",
        )

    @property
    def history_position(self) -> SubscriptionCursor | None:
        """The position in the history; `None` if the client has received no progress."""
        return None if self.history == _NO_HISTORY else self.history

    @property
    def sequence_number(self) -> int:
        """The `sequence_number` of the response event with this cursor."""
        if self.closing_count > 1:
            return self.total_characters + 1 << _LOW_BITS | min(self.closing_count - 1, _TEXT_FLAG - 1)
        if self.closing_count == 1:
            return self.total_characters << _LOW_BITS
        return (
            self.total_characters << _LOW_BITS | _TEXT_FLAG | self.mark.checksum & _TEXT_FLAG - 1
            if self.total_characters
            else max(self.opening_count - 1, 0)
        )

    @classmethod
    def from_sequence_number(cls, number: int, run_id: str) -> Self:
        """Return the cursor for the `sequence_number` of a response event, without a position in the history.

        Raises:
            ApiError: no event has this number.
        """
        if number < RESPONSE_OPENING_EVENTS:
            return cls(StreamKind.RESPONSE, run_id, number + 1)
        total, low_bits = number >> _LOW_BITS, number & (1 << _LOW_BITS) - 1
        if total == 0:
            message = (
                f"no event of a response has the sequence_number {number}; send the number of the last received event"
            )
            raise ApiError(ErrorCode.INVALID_VALUE, message, param="starting_after")
        if low_bits & _TEXT_FLAG:
            mark = TextMark("", total, low_bits & _TEXT_FLAG - 1, bits=_LOW_BITS - 1)
            return cls(StreamKind.RESPONSE, run_id, RESPONSE_OPENING_EVENTS, total_characters=total, mark=mark)
        total, closing = (total, 1) if low_bits == 0 else (total - 1, low_bits + 1)
        return cls(StreamKind.RESPONSE, run_id, RESPONSE_OPENING_EVENTS, total_characters=total, closing_count=closing)


def cursor_of_headers(headers: Mapping[str, str], kind: StreamKind) -> StreamCursor | None:
    """Return the cursor in the `Last-Event-ID` header; `None` without the header.

    Args:
        headers: names in lower case.

    Raises:
        ApiError: the header is not a cursor.
    """
    text = headers.get(LAST_EVENT_ID_HEADER.lower(), "").strip()
    return StreamCursor.parse(text, kind) if text else None


def reject_cursor_of_other_run(cursor: StreamCursor | None, run_id: str) -> None:
    """Raise `ApiError` if a cursor belongs to another run."""
    if cursor is not None and cursor.run_id != run_id:
        message = (
            f"{LAST_EVENT_ID_HEADER} is an event id of the run {cursor.run_id!r:.200}, "
            f"but the request is for {run_id!r:.200}"
        )
        raise ApiError(ErrorCode.INVALID_VALUE, message, param=LAST_EVENT_ID_HEADER)


def checksum(parts: Sequence[Any]) -> str:
    """Return a checksum of eight digits."""
    return f"{text_checksum(json.dumps(parts)):0{CHECKSUM_DIGITS}x}"


def _quote(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _invalid_cursor_error(text: str) -> ApiError:
    message = (
        f"{LAST_EVENT_ID_HEADER}: {text!r:.120} is not an event id of this kind of stream; send the id of the last "
        "received event, or omit it. Answers without a run cannot be resumed"
    )
    return ApiError(ErrorCode.INVALID_VALUE, message, param=LAST_EVENT_ID_HEADER)
