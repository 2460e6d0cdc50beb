"""Lists of runs: summaries, filters, and page cursors."""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Self

from dagwright.core.boundary import wire
from dagwright.core.model.errors import Problem
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import format_time
from dagwright.protocol.run_labels import keyword, keyword_of_tag, tags_in

MOST_AT_ONCE = 1_000
"""Maximum page size of the server."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list.

    Args:
        error: for a failed run: code, message and node.
        cursor: where the list continues after this run: `list_runs(after=run.cursor)`; `None` for the last run.
    """

    run_id: str
    status: RunStatus
    title: str | None
    started_at: datetime | None
    ended_at: datetime | None
    nodes_done: int
    nodes_total: int
    session: str | None = None
    error: Problem | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    cursor: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the summary in the format of `list --json`."""
        return {
            "run_id": self.run_id,
            "status": self.status.value,
            "title": self.title,
            "started_at": _formatted(self.started_at),
            "ended_at": _formatted(self.ended_at),
            "nodes_done": self.nodes_done,
            "nodes_total": self.nodes_total,
            "session_id": self.session,
            "error": None if self.error is None else _error_json(self.error),
            "tags": dict(self.tags),
        }


def _formatted(time: datetime | None) -> str | None:
    return None if time is None else format_time(time.timestamp())


def _error_json(error: Problem) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "node_id": error.node}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Filter for a list of runs; `None` in a field matches all runs.

    Args:
        owner: owner of the API key that started the run.
        status: state of the run.
        session: session that has the run as a turn.
        text: part of the title or the ID, case-insensitive.
        since: earliest start time, in seconds since the epoch.
        tags: tags that the run must have, name -> value.
    """

    owner: str | None = None
    status: str | None = None
    session: str | None = None
    text: str | None = None
    since: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_by_state(self) -> bool:
        """Return whether the filter depends on the state of the run only."""
        others = (self.owner, self.session, self.text, self.since)
        return not self.tags and all(each is None for each in others)

    def query(self, *, missing: Collection[str]) -> str:
        """Return the visibility query for these runs; it may match more, which `takes` and the state filter out.

        Args:
            missing: search attributes that the namespace lacks.
        """
        # A run that continued as new is listed once, by its newest execution.
        parts = [wire.IS_RUN, "ExecutionStatus != 'ContinuedAsNew'"]
        if self.status is not None:
            parts.append(_query_of_state(self.status, has_state=wire.SEARCH_STATE not in missing))
        if self.since is not None:
            # A run that continued as new may have started earlier; its memo has the time.
            parts.append(f"StartTime >= '{format_time(self.since)}'")
        if wire.SEARCH_TAGS not in missing:
            keywords = [keyword(keyword_of_tag(*tag)) for tag in self.tags.items()]
            parts += [
                f"{wire.SEARCH_TAGS} = '{each}'" for each in keywords if each.isprintable() and not _QUOTES & set(each)
            ]
        return " AND ".join(parts)

    def takes(self, workflow_id: str, memo: Mapping[str, Any], *, started_at: float | None = None) -> bool:
        """Return whether a run matches all conditions except the state.

        Args:
            started_at: start of its first execution, in seconds since the epoch.
        """
        if self.since is not None and started_at is not None and started_at < self.since:
            return False
        if self.owner is not None and owner_in(memo) != self.owner:
            return False
        if self.session is not None and memo.get(wire.MEMO_SESSION) != self.session:
            return False
        if self.tags and not self.tags.items() <= tags_in(memo, key=wire.MEMO_TAGS).items():
            return False
        searched = f"{workflow_id}\n{memo.get(wire.MEMO_TITLE) or ''}"
        return self.text is None or self.text.casefold() in searched.casefold()


_QUOTES = frozenset("'\"\\")
"""Characters with a meaning in a query. Tags with one of these characters, or with a control character, which the
server rejects, are matched against the memo only.
"""

_ENDED_AS = {
    "failed": ("Failed", "Terminated", "TimedOut"),
    "cancelled": ("Canceled", "Completed"),
    "completed": ("Completed",),
    "completed_with_failures": ("Completed",),
}
"""State of a run -> possible statuses of its closed execution; runs of earlier versions ended as Completed when they
were cancelled by a signal.
"""


def _query_of_state(state: str, *, has_state: bool) -> str:
    """Return the query for runs of a state; includes runs whose state only their history shows."""
    closed = _ENDED_AS.get(state)
    statuses = ", ".join(f"'{status}'" for status in closed or ("Running",))
    execution = f"ExecutionStatus IN ({statuses})"
    if not has_state:
        return execution
    # The attribute is written at most once in five seconds, and not when a run is terminated.
    if state == "failed":
        return execution
    # Runs that wait for a worker or a tool have the attribute `running`: only the client computes their state.
    open_states = f"{wire.SEARCH_STATE} IN ('running', 'waiting') OR {wire.SEARCH_STATE} IS NULL"
    known = "" if closed is None else f"{wire.SEARCH_STATE} = '{state}' OR "
    return f"{execution} AND ({known}{open_states})"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A page cursor of the list of runs.

    Args:
        page: page size of the server.
        token: page token of the server; `None` for the first page.
        index: number of runs of that page before the cursor.
    """

    page: int
    token: bytes | None = None
    index: int = 0

    def __str__(self) -> str:
        token = urlsafe_b64encode(self.token or b"").decode()
        signed = f"{self.page}.{self.index}.{token}"
        # The server reports an invalid token as an internal error, which the client retries ten times.
        return f"{signed}.{_sum_of(signed)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cursor.

        Raises:
            ValueError: the text is not a cursor.
        """
        signed, _, sum = text.rpartition(".")
        if sum != _sum_of(signed):
            raise ValueError(f"{text!r:.80} is no place in a list")
        page, index, token = signed.split(".")
        if not 1 <= int(page) <= MOST_AT_ONCE or int(index) < 0:
            raise ValueError(f"{text!r:.80} is no place in a list")
        return cls(int(page), b64decode(token, altchars=b"-_", validate=True) or None, int(index))


def _sum_of(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:12]


def owner_in(memo: Mapping[str, Any]) -> str | None:
    """Return the owner of the API key that started a run or a session, from its memo."""
    owner = memo.get(wire.MEMO_OWNER)
    return owner if isinstance(owner, str) else None
