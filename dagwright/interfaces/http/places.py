"""How far a client has come in the stream of an answer, as the `id` of each event says it. Pure.

    run-1/c1/1-45.9f3a01bc4d0e77a2/128.120.1a2b3c4d.answer/0
    run   kind  history             text told               end

Any gateway goes on from there, for all that it needs stands in the id, in the history of the run and in its answer:
kind of the stream and how many events of its beginning were told; the place in the history, with checks of what was
told of the run as a whole; how many characters were told in all and how many of the answer as it is now, with a check
of these and the call that wrote them; and how many events of the end, with a check of what that was.

Events of responses have a number as well, which says less: how many characters were told, and eleven bits of their
check. It grows with each of OpenAI's events, and leaves numbers out.
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
"""Events of a response before the text of its answer: it, that it goes on, its message and the part with the text."""
CHECK_DIGITS = 8
"""Of what `check_word` returns."""
_NOTHING_SEEN = Told(BEGINNING)
_PLACES = 12
"""Bits of a number below the count of characters: numbers fit into 31 bits up to an answer of 500,000."""
_FEW_DIGITS = 3
"""Of the check of a text that is known by the number of an event alone."""
_TEXT = 1 << _PLACES - 1
"""Set in the number of a piece of text, above the bits of its check; not in that of an event of the end."""


class Kind(StrEnum):
    """What a stream is made of."""

    CHAT = "c"
    RESPONSE = "r"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a client has come.

    Args:
        begun: how many events of the beginning it was told.
        told: what it knows of the nodes.
        standing: checks of what it was told of the run as a whole, its state and what it asks; empty for nothing.
        total: how many characters it was told.
        mark: how much of the answer, as it began last.
        end: how many events of the end; the words of a question before them count as one, also if there are none.
        outcome: check of the end that they were of; empty if nobody knows.
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
        """Returns the place that an id says.

        Raises:
            ApiError: it says none, or one in a stream of another kind.
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
        """What a client knows of the nodes; `None` for nothing."""
        return None if self.told == _NOTHING_SEEN else self.told

    @property
    def number(self) -> int:
        """The `sequence_number` of the event of a response after which a client is here."""
        if self.end > 1:
            return self.total + 1 << _PLACES | min(self.end - 1, _TEXT - 1)
        if self.end == 1:
            return self.total << _PLACES
        return self.total << _PLACES | _TEXT | self.mark.check & _TEXT - 1 if self.total else max(self.begun - 1, 0)

    @classmethod
    def numbered(cls, number: int, run: str) -> Self:
        """Returns the place that the `sequence_number` of a response says; it knows nothing of what happened.

        Raises:
            ApiError: no event has that number.
        """
        if number < RESPONSE_BEGUN:
            return cls(Kind.RESPONSE, run, number + 1)
        total, low = number >> _PLACES, number & (1 << _PLACES) - 1
        if total == 0:
            words = f"no event of a response has the sequence_number {number}; send that of the last one that was seen"
            raise ApiError(400, words, param="starting_after", code="invalid_value")
        if low & _TEXT:
            mark = Mark("", total, low & _TEXT - 1, bits=_PLACES - 1)
            return cls(Kind.RESPONSE, run, RESPONSE_BEGUN, total=total, mark=mark)
        total, end = (total, 1) if low == 0 else (total - 1, low + 1)
        return cls(Kind.RESPONSE, run, RESPONSE_BEGUN, total=total, end=end)


def place_in(headers: Mapping[str, str], kind: Kind) -> Place | None:
    """Returns where a request goes on; `None` if it begins.

    Args:
        headers: names in lower case.

    Raises:
        ApiError: it names a place that is none.
    """
    text = headers.get(HEADER.lower(), "").strip()
    return Place.parse(text, kind) if text else None


def refuse_place_of_other(place: Place | None, run: str) -> None:
    """Makes sure that a place is one of a run.

    Raises:
        ApiError: it is one of another run.
    """
    if place is not None and place.run != run:
        words = f"{HEADER} is an id of the run {place.run!r:.200}, and the request is one of {run!r:.200}"
        raise ApiError(400, words, param=HEADER, code="invalid_value")


def check_word(parts: Sequence[Any]) -> str:
    """Returns eight digits that tell what was told from what was not."""
    return f"{check_of(json.dumps(parts)):0{CHECK_DIGITS}x}"


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _wrong(text: str) -> ApiError:
    words = (
        f"{HEADER}: {text!r:.120} is no id of an event of such a stream of a run; send the id of the last event that "
        "was seen, or leave it out. An answer of a model itself cannot be gone on with"
    )
    return ApiError(400, words, param=HEADER, code="invalid_value")
