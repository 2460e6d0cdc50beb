"""Lists of runs: filters as visibility queries, summaries from search attributes and memo, and page cursors.

A list reads no history, so its cost does not depend on the runs. How fresh it is:
docs/contributing/internals/lists.md.
"""

import logging
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Self

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from dagwright.core.boundary import wire
from dagwright.core.model.errors import Problem
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import format_time, time_of
from dagwright.protocol.listings import parse_progress
from dagwright.protocol.run_attributes import PROGRESS, STATE, TITLE
from dagwright.protocol.run_labels import keyword, keyword_of_tag, tags_in

_LOG = logging.getLogger(__name__)

MOST_AT_ONCE = 1_000
"""Maximum page size of the server."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list.

    Args:
        nodes_done: nodes that have ended, as the run has written it last; see docs/contributing/internals/lists.md.
        nodes_total: all nodes, as the run has written it last.
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


IS_TOP_RUN = f"{wire.IS_RUN} AND {wire.SEARCH_ROOT} IS NULL"
"""Condition of a visibility query for runs that are not sub-plans."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Filter for a list of runs; `None` in a field matches all runs.

    Args:
        owner: owner of the API key that started the run.
        status: state of the run.
        session: session that has the run as a turn.
        title: prefix of the title or the ID; case matters.
        since: earliest start time, in seconds since the epoch.
        tags: tags that the run must have, name -> value.
        template: name of the published plan that the run was started from.
    """

    owner: str | None = None
    status: str | None = None
    session: str | None = None
    title: str | None = None
    since: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None

    def query(self) -> str:
        """Return the visibility query for these runs.

        It may match a few more runs, which `matches` excludes: a database may ignore the case of tags, and a run that
        continued as new may have started before its current execution.
        """
        # A run that continued as new is listed once, by its newest execution.
        parts = [IS_TOP_RUN, "ExecutionStatus != 'ContinuedAsNew'"]
        if self.status is not None:
            parts.append(_QUERY_OF_STATE[RunStatus(self.status)])
        if self.since is not None:
            parts.append(f"StartTime >= '{format_time(self.since)}'")
        named = ((wire.SEARCH_OWNER, self.owner), (wire.SEARCH_SESSION, self.session))
        for attribute, name in (*named, (wire.SEARCH_TEMPLATE, self.template)):
            if name is not None:
                parts.append(f"{attribute} = {quoted(keyword(name))}")
        if self.title:
            prefix = quoted(keyword(self.title))
            parts.append(f"({wire.SEARCH_TITLE} STARTS_WITH {prefix} OR WorkflowId STARTS_WITH {prefix})")
        parts += [f"{wire.SEARCH_TAGS} = {quoted(keyword(keyword_of_tag(*tag)))}" for tag in self.tags.items()]
        return " AND ".join(parts)

    def matches(self, memo: Mapping[str, Any], *, started_at: float) -> bool:
        """Return whether a run that the query has found matches the filter.

        Args:
            started_at: start of its first execution, in seconds since the epoch.
        """
        if self.since is not None and started_at < self.since:
            return False
        if self.owner is not None and owner_in(memo) != self.owner:
            return False
        return self.tags.items() <= tags_in(memo, key=wire.MEMO_TAGS).items()


def quoted(text: str) -> str:
    """Return a keyword as a literal of a visibility query."""
    return "'" + text.replace("'", "''") + "'"


_STATE = wire.SEARCH_STATE
_QUERY_OF_STATE = {
    RunStatus.RUNNING: f"ExecutionStatus = 'Running' AND ({_STATE} != 'waiting' OR {_STATE} IS NULL)",
    RunStatus.WAITING: f"ExecutionStatus = 'Running' AND {_STATE} = 'waiting'",
    RunStatus.COMPLETED: (
        f"ExecutionStatus = 'Completed' AND ({_STATE} NOT IN ('completed_with_failures', 'cancelled') "
        f"OR {_STATE} IS NULL)"
    ),
    RunStatus.COMPLETED_WITH_FAILURES: f"ExecutionStatus = 'Completed' AND {_STATE} = 'completed_with_failures'",
    RunStatus.FAILED: "ExecutionStatus IN ('Failed', 'Terminated', 'TimedOut')",
    RunStatus.CANCELLED: (
        f"(ExecutionStatus = 'Canceled' OR (ExecutionStatus = 'Completed' AND {_STATE} = 'cancelled'))"
    ),
}
"""State of a run -> condition for the runs that `listed_status` shows in this state."""

_STATUS_OF_EXECUTION = {
    WorkflowExecutionStatus.COMPLETED: RunStatus.COMPLETED,
    WorkflowExecutionStatus.CANCELED: RunStatus.CANCELLED,
    WorkflowExecutionStatus.FAILED: RunStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED: RunStatus.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: RunStatus.FAILED,
}
"""Statuses of closed executions; every other execution is running."""
_REFINED = {
    RunStatus.RUNNING: (RunStatus.WAITING,),
    RunStatus.COMPLETED: (RunStatus.COMPLETED_WITH_FAILURES, RunStatus.CANCELLED),
}
"""State by the status of the execution -> states that its search attribute distinguishes."""


def listed_status(execution: WorkflowExecution) -> RunStatus:
    """Return the state of a run by the status of its execution and its search attribute.

    The attribute is written at most once in five seconds, and not when a run is terminated.
    """
    by_execution = _STATUS_OF_EXECUTION.get(execution.status or WorkflowExecutionStatus.RUNNING, RunStatus.RUNNING)
    written = execution.typed_search_attributes.get(STATE)
    return next((status for status in _REFINED.get(by_execution, ()) if status == written), by_execution)


_ERROR_OF_EXECUTION = {
    WorkflowExecutionStatus.TERMINATED: ("terminated", "the run was terminated"),
    WorkflowExecutionStatus.TIMED_OUT: ("timed_out", "the run exceeded its execution timeout"),
}
_UNKNOWN_ERROR = ("failed", "the run has written no error; its status has the reason")


def run_summary(execution: WorkflowExecution, memo: Mapping[str, Any]) -> RunSummary:
    """Return the line of a run in a list, from its search attributes and its memo."""
    written = execution.typed_search_attributes
    progress = parse_progress(written.get(PROGRESS))
    total, title, session = (memo.get(name) for name in (wire.MEMO_NODES, wire.MEMO_TITLE, wire.MEMO_SESSION))
    status = listed_status(execution)
    return RunSummary(
        run_id=execution.id,
        status=status,
        title=title if isinstance(title, str) else written.get(TITLE),
        started_at=time_of(started_at(execution, memo)),
        ended_at=execution.close_time,
        nodes_done=progress.done if progress is not None else 0,
        nodes_total=progress.total if progress is not None else total if isinstance(total, int) else 0,
        session=session if isinstance(session, str) else None,
        error=_error_of(execution, memo) if status is RunStatus.FAILED else None,
        tags=tags_in(memo, key=wire.MEMO_TAGS),
    )


def _error_of(execution: WorkflowExecution, memo: Mapping[str, Any]) -> Problem:
    code, message = _ERROR_OF_EXECUTION.get(execution.status or WorkflowExecutionStatus.FAILED, _UNKNOWN_ERROR)
    error = memo.get(wire.MEMO_ERROR)
    if execution.status in _ERROR_OF_EXECUTION or not isinstance(error, Mapping):
        return Problem(code, message)
    node = error.get("node_id")
    return Problem(
        str(error.get("code", code)), str(error.get("message", message)), node=None if node is None else str(node)
    )


def started_at(execution: WorkflowExecution, memo: Mapping[str, Any]) -> float:
    """Return the start of the first execution of a run, in seconds since the epoch."""
    written = memo.get(wire.MEMO_STARTED_AT)
    if isinstance(written, str):
        with suppress(ValueError):
            return datetime.fromisoformat(written).timestamp()
    return execution.start_time.timestamp()


async def readable_memo(execution: WorkflowExecution) -> Mapping[str, Any]:
    """Return the memo of a run; empty if it cannot be decoded: one damaged run must not hide all others."""
    try:
        return await execution.memo()
    # The process edge: other programs may write any memo, and a codec may fail in any way.
    except Exception as error:
        _LOG.warning("%s: the memo of the run cannot be read: %r", execution.id, error)
        return {}


async def executions_from(
    client: Client, query: str, cursor: "RunCursor"
) -> AsyncIterator[tuple["RunCursor | None", WorkflowExecution]]:
    """Yield the listed executions from a cursor on, each with the cursor after it; `None` after the last one.

    Complexity: one request for each page.
    """
    token, index = cursor.token, cursor.index
    while True:
        listing = client.list_workflows(query, page_size=cursor.page, next_page_token=token)
        await listing.fetch_next_page()
        there, following = listing.current_page or (), listing.next_page_token
        for number, execution in enumerate(there[index:], index + 1):
            is_last = number == len(there)
            if is_last and not following:
                yield None, execution
            else:
                yield (
                    RunCursor(cursor.page, following, 0) if is_last else RunCursor(cursor.page, token, number),
                    execution,
                )
        if not following:
            return
        token, index = following, 0


@dataclass(frozen=True, slots=True)
class RunCursor:
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
            raise ValueError(f"{text!r:.80} is not a cursor of a list")
        page, index, token = signed.split(".")
        if not 1 <= int(page) <= MOST_AT_ONCE or int(index) < 0:
            raise ValueError(f"{text!r:.80} is not a cursor of a list")
        return cls(int(page), b64decode(token, altchars=b"-_", validate=True) or None, int(index))


def _sum_of(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:12]


def owner_in(memo: Mapping[str, Any]) -> str | None:
    """Return the owner of the API key that started a run or a session, from its memo."""
    owner = memo.get(wire.MEMO_OWNER)
    return owner if isinstance(owner, str) else None
