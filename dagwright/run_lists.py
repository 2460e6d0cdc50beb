"""What lists of runs are made of: lines, what leaves some out, and the places at which pages begin."""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from dagwright.contracts import wire
from dagwright.plan.times import format_time

MOST_AT_ONCE = 1_000
"""Runs that the server tells in one answer."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `list`; times are seconds since the epoch."""

    workflow_id: str
    status: str
    title: str | None
    started_at: float | None
    ended_at: float | None
    nodes_done: int
    nodes_total: int
    session: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the summary as `list --json` has it."""
        return {
            "workflow_id": self.workflow_id,
            "status": self.status,
            "title": self.title,
            "started_at": format_time(self.started_at),
            "ended_at": format_time(self.ended_at),
            "nodes_done": self.nodes_done,
            "nodes_total": self.nodes_total,
            "session": self.session,
        }


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are listed; what is `None` leaves none out.

    Args:
        owner: whose key started them.
        status: the state they are in.
        session: whose turns they are.
        text: stands in the title or the id, in whatever case.
    """

    owner: str | None = None
    status: str | None = None
    session: str | None = None
    text: str | None = None

    @property
    def is_by_state(self) -> bool:
        """Tells whether nothing but the state of a run counts."""
        return self.owner is None and self.session is None and self.text is None

    def takes(self, workflow_id: str, memo: Mapping[str, Any]) -> bool:
        """Tells whether a run is one of them by all but its state."""
        if self.owner is not None and owner_in(memo) != self.owner:
            return False
        if self.session is not None and memo.get(wire.MEMO_SESSION) != self.session:
            return False
        told = f"{workflow_id}\n{memo.get(wire.MEMO_TITLE) or ''}"
        return self.text is None or self.text.casefold() in told.casefold()


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A place in the list of runs.

    Args:
        page: how many the server tells at once.
        token: what the server calls the page that it is in; `None` is the first one.
        index: how many of that page stand before it.
    """

    page: int
    token: bytes | None = None
    index: int = 0

    def __str__(self) -> str:
        token = urlsafe_b64encode(self.token or b"").decode()
        told = f"{self.page}.{self.index}.{token}"
        # The server cannot tell a token that is none from a defect of its own, and is asked ten times for that.
        return f"{told}.{_sum_of(told)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns what a text stands for.

        Raises:
            ValueError: it stands for none.
        """
        told, _, sum = text.rpartition(".")
        if sum != _sum_of(told):
            raise ValueError(f"{text!r:.80} is no place in a list")
        page, index, token = told.split(".")
        if not 1 <= int(page) <= MOST_AT_ONCE or int(index) < 0:
            raise ValueError(f"{text!r:.80} is no place in a list")
        return cls(int(page), b64decode(token, altchars=b"-_", validate=True) or None, int(index))


def _sum_of(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:12]


def owner_in(memo: Mapping[str, Any]) -> str | None:
    """Returns whose key started a run or a session, from its memo."""
    owner = memo.get(wire.MEMO_OWNER)
    return owner if isinstance(owner, str) else None
