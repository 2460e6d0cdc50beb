"""Cursors of answer streams, which are the `id` of each event. Pure.

    run-1/c1/1-45.9f3a01bc4d0e77a2/128.120.1a2b3c4d.answer/0
    run   kind  history             text                    end

Any gateway can resume a stream from a cursor, the history of the run and its answer. A cursor has: the kind of the
stream and the number of opening events received; the position in the history, with checksums of the run status and open
requests that were sent; the number of characters received in all and of the current answer, with their checksum and the
node that wrote them; and the number of closing events received, with a checksum of the outcome.

Events of responses also have a `sequence_number`, which holds less: the number of characters, and eleven bits of their
checksum. It grows with each event, with gaps.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self
from urllib.parse import quote, unquote

from dagwright.history.executions import BEGINNING
from dagwright.history.run_subscriptions import Told
from dagwright.history.text_stream import NOTHING_TOLD, Mark, check_of
from dagwright.interfaces.http.errors import ApiError

HEADER = "Last-Event-ID"
_FORM = re.compile(
    r"(?P<run>[^/]+)/(?P<kind>[cr])(?P<begun>[1-4])/(?P<told>\d+-\d+w?)(?:\.(?P<standing>[0-9a-f]{16}))?"
    r"/(?P<total>\d{1,9})\.(?P<length>\d{1,9})\.(?P<check>[0-9a-f]{8}|[0-9a-f]{3})\.(?P<node>[^/]*)"
    r"/(?P<end>\d{1,6})(?:\.(?P<outcome>[0-9a-f]{8}))?",
    re.ASCII,
)
RESPONSE_BEGUN = 4
"""Events of a response before its text: created, in progress, the message item, and its text part."""
CHECK_DIGITS = 8
"""Digits of `check_word`."""
_NOTHING_SEEN = Told(BEGINNING)
_PLACES = 12
"""Bits of a number below the count of characters: numbers fit into 31 bits up to an answer of 500,000 characters."""
_FEW_DIGITS = 3
"""Digits of the checksum of a text whose cursor was a `sequence_number`."""
_TEXT = 1 << _PLACES - 1
"""Set in the number of a piece of text, above the bits of its checksum; not set in the number of a closing event."""


class Kind(StrEnum):
    """Kind of an answer stream."""

    CHAT = "c"
    RESPONSE = "r"


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a client in an answer stream.

    Args:
        begun: number of opening events received.
        told: position in the history.
        standing: checksums of the run status and the open requests received; empty for none.
        total: number of characters received.
        mark: position in the current answer.
        end: number of closing events received; the text of questions before them counts as one, even without text.
        outcome: checksum of the outcome of the closing events; empty if unknown.
    """

    kind: Kind
    run: str
    begun: int = 0
    told: Told = _NOTHING_SEEN
    standing: str = ""
    total: int = 0
    mark: Mark = NOTHING_TOLD
    end: int = 0
    outcome: str = ""

    def __str__(self) -> str:
        history = ".".join(filter(None, (str(self.told), self.standing)))
        check = f"{self.mark.check:0{-(-self.mark.bits // 4)}x}"
        text = f"{self.total}.{self.mark.length}.{check}.{_quoted(self.mark.node)}"
        end = ".".join(filter(None, (str(self.end), self.outcome)))
        return f"{_quoted(self.run)}/{self.kind}{self.begun}/{history}/{text}/{end}"

    @classmethod
    def parse(cls, text: str, kind: Kind) -> Self:
        """Parse an event ID.

        Raises:
            ApiError: it is not the ID of an event in a stream of this kind.
        """
        found = _FORM.fullmatch(text)
        run = unquote(found["run"]) if found is not None else ""
        if (
            found is None
            or found["kind"] != kind
            or not run.isprintable()
            or int(found["total"]) < int(found["length"])
        ):
            raise _wrong(text)
        try:
            told = Told.parse(found["told"])
        except ValueError:
            raise _wrong(text) from None
        bits = 32 if len(found["check"]) > _FEW_DIGITS else _PLACES - 1
        mark = Mark(unquote(found["node"]), int(found["length"]), int(found["check"], 16), bits)
        return cls(
            kind,
            run,
            int(found["begun"]),
            told,
            found["standing"] or "",
            int(found["total"]),
            mark,
            int(found["end"]),
            found["outcome"] or "",
        )

    @property
    def after(self) -> Told | None:
        """Position in the history; `None` if the client has received no progress."""
        return None if self.told == _NOTHING_SEEN else self.told

    @property
    def number(self) -> int:
        """The `sequence_number` of the response event after which the client is at this position."""
        if self.end > 1:
            return self.total + 1 << _PLACES | min(self.end - 1, _TEXT - 1)
        if self.end == 1:
            return self.total << _PLACES
        return self.total << _PLACES | _TEXT | self.mark.check & _TEXT - 1 if self.total else max(self.begun - 1, 0)

    @classmethod
    def numbered(cls, number: int, run: str) -> Self:
        """Return the position for the `sequence_number` of a response, without a position in the history.

        Raises:
            ApiError: no event has this number.
        """
        if number < RESPONSE_BEGUN:
            return cls(Kind.RESPONSE, run, number + 1)
        total, low = number >> _PLACES, number & (1 << _PLACES) - 1
        if total == 0:
            words = f"no event of a response has the sequence_number {number}; send the one of the last received event"
            raise ApiError(400, words, param="starting_after", code="invalid_value")
        if low & _TEXT:
            mark = Mark("", total, low & _TEXT - 1, bits=_PLACES - 1)
            return cls(Kind.RESPONSE, run, RESPONSE_BEGUN, total=total, mark=mark)
        total, end = (total, 1) if low == 0 else (total - 1, low + 1)
        return cls(Kind.RESPONSE, run, RESPONSE_BEGUN, total=total, end=end)


def place_in(headers: Mapping[str, str], kind: Kind) -> Place | None:
    """Return the cursor in the `Last-Event-ID` header; `None` without the header.

    Args:
        headers: names in lower case.

    Raises:
        ApiError: the header is not a cursor.
    """
    text = headers.get(HEADER.lower(), "").strip()
    return Place.parse(text, kind) if text else None


def refuse_place_of_other(place: Place | None, run: str) -> None:
    """Check that a cursor belongs to a run.

    Raises:
        ApiError: it belongs to another run.
    """
    if place is not None and place.run != run:
        words = f"{HEADER} is an event id of the run {place.run!r:.200}, but the request is for {run!r:.200}"
        raise ApiError(400, words, param=HEADER, code="invalid_value")


def check_word(parts: Sequence[Any]) -> str:
    """Return a checksum of eight digits."""
    return f"{check_of(json.dumps(parts)):0{CHECK_DIGITS}x}"


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _wrong(text: str) -> ApiError:
    words = (
        f"{HEADER}: {text!r:.120} is not an event id of such a stream; send the id of the last received event, "
        "or omit it. Answers without a run cannot be resumed"
    )
    return ApiError(400, words, param=HEADER, code="invalid_value")
