"""Lists of runs. A filter becomes a visibility query, and summaries are read from search attributes and memos.

A list reads no history, so its cost does not depend on the size of the runs.
docs/contributing/internals/lists.md describes how current the entries are.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import MAX_RUN_ID_BYTES
from dagwright.core.errors import Problem
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import format_datetime, format_duration, format_time, parse_duration, utc_datetime
from dagwright.protocol.listings import parse_progress
from dagwright.protocol.run_attributes import OWNER, PROGRESS, STATE, TAGS, TITLE
from dagwright.protocol.run_labels import keyword, keyword_of_tag, queryable_prefix, tags_in

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list.

    Args:
        session_id: ID of the session that the run is a turn of. If an API key started the run, the ID starts with the
            owner of the key and a colon, such as `alice:orders`.
        nodes_done: number of ended nodes, as last recorded by the run; see docs/contributing/internals/lists.md.
        nodes_total: number of all nodes, as last recorded by the run.
        error: for a failed run: code, message and node.
        cursor: position after this run, for `list_runs(after=run.cursor)`; `None` for the last run.
    """

    run_id: str
    status: RunStatus
    title: str | None
    started_at: datetime | None
    ended_at: datetime | None
    nodes_done: int
    nodes_total: int
    session_id: str | None = None
    error: Problem | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    cursor: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the summary in the format of `list --json`."""
        return {
            "run_id": self.run_id,
            "status": self.status.value,
            "title": self.title,
            "started_at": format_datetime(self.started_at),
            "ended_at": format_datetime(self.ended_at),
            "nodes_done": self.nodes_done,
            "nodes_total": self.nodes_total,
            "session_id": self.session_id,
            "error": None if self.error is None else _error_json(self.error),
            "tags": dict(self.tags),
        }


def _error_json(error: Problem) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "node_id": error.node_id}


TOP_RUNS_FILTER = f"{wire.RUN_WORKFLOWS_FILTER} AND {wire.SEARCH_ROOT} IS NULL"
"""Condition of a visibility query for runs that are not sub-plans."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Filter for a list of runs; `None` in a field matches all runs.

    Args:
        owner: owner of the API key that started the run.
        status: status of the run.
        session_name: stored name of the session in which the run is a turn.
        title: prefix of the title or the ID, compared character by character: case and spaces matter.
        since: earliest start time, in seconds since the epoch.
        tags: tags that the run must have, name -> value.
        template: name of the published plan that the run was started from.
    """

    owner: str | None = None
    status: str | None = None
    session_name: str | None = None
    title: str | None = None
    since: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None

    def query(self) -> str:
        """Return the visibility query for these runs.

        The query may also match runs that the filter does not match; `matches` excludes them. The query is less exact
        for three reasons. A database may ignore the case of titles and tags. A prefix of IDs is cut at the first
        character that a query cannot contain. `StartTime` is the start of the current execution, and a run that
        continued as new started earlier.
        """
        # A run that continued as new is listed once, by its newest execution.
        parts = [TOP_RUNS_FILTER, "ExecutionStatus != 'ContinuedAsNew'"]
        if self.status is not None:
            parts.append(_CONDITION_BY_STATUS[RunStatus(self.status)])
        if self.since is not None:
            parts.append(f"StartTime >= '{format_time(self.since)}'")
        names_by_attribute = {
            wire.SEARCH_OWNER: self.owner,
            wire.SEARCH_SESSION: self.session_name,
            wire.SEARCH_TEMPLATE: self.template,
        }
        for attribute, name in names_by_attribute.items():
            if name is not None:
                parts.append(f"{attribute} = {quote_literal(keyword(name))}")
        if self.title:
            title = f"{wire.SEARCH_TITLE} STARTS_WITH {quote_literal(keyword(self.title))}"
            prefix = queryable_prefix(self.title) if len(self.title) <= MAX_RUN_ID_BYTES else ""
            parts.append(f"({title} OR WorkflowId STARTS_WITH {quote_literal(prefix)})" if prefix else title)
        parts += [f"{wire.SEARCH_TAGS} = {quote_literal(keyword(keyword_of_tag(*tag)))}" for tag in self.tags.items()]
        return " AND ".join(parts)

    def matches(self, execution: WorkflowExecution, memo: Mapping[str, Any]) -> bool:
        """Return whether a run that the query has found matches the filter."""
        if self.since is not None and _started_at(execution, memo) < self.since:
            return False
        if self.owner is not None and owner_of(execution, memo) != self.owner:
            return False
        return self._matches_title(execution) and self.tags.items() <= _tags_of(execution, memo).items()

    def _matches_title(self, execution: WorkflowExecution) -> bool:
        if not self.title:
            return True
        title = execution.typed_search_attributes.get(TITLE, "")
        return title.startswith(keyword(self.title)) or execution.id.startswith(self.title)


_FIRST_YEAR = 1970
_MAX_TIME_S = 253_402_300_799
"""The end of the year 9999, in seconds since the epoch."""


def parse_since(since: date | timedelta | str) -> float:
    """Return the earliest start time of a list, in seconds since the epoch.

    Args:
        since: a date or time, also as an ISO string, or a duration before now, as a timedelta or a string such as
            `2h`. A date starts at midnight, local time.

    Raises:
        ValueError: the time is invalid, or not in the years 1970 to 9999. The message continues a sentence that starts
            with the name of the option, such as `must be a time in the years 1970 to 9999, not 12`.
    """
    since_argument = since
    try:
        if isinstance(since, str):
            with suppress(ValueError):
                since = datetime.fromisoformat(since)
        if isinstance(since, str | timedelta):
            return time.time() - parse_duration(format_duration(since)).total_seconds()
    except ValueError:
        valid_forms = "a date, a time, or a duration, such as 2026-11-23, 2026-11-23T08:00:00Z or 2h"
        raise ValueError(f"must be {valid_forms}, not {since_argument!r:.60}") from None
    moment = since if isinstance(since, datetime) else datetime.combine(since, datetime.min.time())
    # The conversion fails for some local times of the year 9999.
    with suppress(ValueError, OverflowError):
        if moment.year >= _FIRST_YEAR and (seconds := moment.timestamp()) <= _MAX_TIME_S:
            return seconds
    raise ValueError(f"must be a time in the years {_FIRST_YEAR} to 9999, not {since_argument!r:.60}")


def quote_literal(text: str) -> str:
    """Return a text as the literal of a visibility query.

    Args:
        text: a `keyword`, or a `queryable_prefix`.
    """
    return "'" + text.replace("'", "''") + "'"


_STATE = wire.SEARCH_STATE
_CONDITION_BY_STATUS = {
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
"""Status of a run -> condition for the runs for which `listed_status` returns this status."""

STATUS_OF_EXECUTION = {
    WorkflowExecutionStatus.COMPLETED: RunStatus.COMPLETED,
    WorkflowExecutionStatus.CANCELED: RunStatus.CANCELLED,
    WorkflowExecutionStatus.FAILED: RunStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED: RunStatus.FAILED,
    WorkflowExecutionStatus.TIMED_OUT: RunStatus.FAILED,
}
"""Statuses of closed executions; every other execution is running."""
REFINED_STATUSES = {
    RunStatus.RUNNING: (RunStatus.WAITING,),
    RunStatus.COMPLETED: (RunStatus.COMPLETED_WITH_FAILURES, RunStatus.CANCELLED),
}
"""Status of the execution -> more precise statuses that the search attribute may have."""


def listed_status(execution: WorkflowExecution) -> RunStatus:
    """Return the status of a run from the status and the search attribute of its execution.

    The attribute may be outdated: it is written at most once in five seconds, and not when a run is terminated.
    """
    execution_status = STATUS_OF_EXECUTION.get(execution.status or WorkflowExecutionStatus.RUNNING, RunStatus.RUNNING)
    attribute = execution.typed_search_attributes.get(STATE)
    return next(
        (status for status in REFINED_STATUSES.get(execution_status, ()) if status == attribute), execution_status
    )


_ERROR_OF_EXECUTION = {
    WorkflowExecutionStatus.TERMINATED: ("terminated", "the run was terminated"),
    WorkflowExecutionStatus.TIMED_OUT: ("timed_out", "the run exceeded its execution timeout"),
}
_UNKNOWN_ERROR = ("failed", "the run failed and recorded no error")


def run_summary(execution: WorkflowExecution, memo: Mapping[str, Any]) -> RunSummary:
    """Return the summary of a run from its search attributes and its memo."""
    attributes = execution.typed_search_attributes
    progress = parse_progress(attributes.get(PROGRESS))
    total, title, session_name = (memo.get(name) for name in (wire.MEMO_NODES, wire.MEMO_TITLE, wire.MEMO_SESSION))
    status = listed_status(execution)
    return RunSummary(
        run_id=execution.id,
        status=status,
        title=title if isinstance(title, str) else attributes.get(TITLE),
        started_at=utc_datetime(_started_at(execution, memo)),
        ended_at=execution.close_time,
        nodes_done=progress.done if progress is not None else 0,
        nodes_total=progress.total if progress is not None else total if isinstance(total, int) else 0,
        session_id=session_name if isinstance(session_name, str) else None,
        error=_error_of(execution, memo) if status is RunStatus.FAILED else None,
        tags=_tags_of(execution, memo),
    )


def _error_of(execution: WorkflowExecution, memo: Mapping[str, Any]) -> Problem:
    code, message = _ERROR_OF_EXECUTION.get(execution.status or WorkflowExecutionStatus.FAILED, _UNKNOWN_ERROR)
    error = memo.get(wire.MEMO_ERROR)
    if execution.status in _ERROR_OF_EXECUTION or not isinstance(error, Mapping):
        return Problem(code, message)
    node_id = error.get("node_id")
    return Problem(
        str(error.get("code", code)),
        str(error.get("message", message)),
        node_id=None if node_id is None else str(node_id),
    )


def _started_at(execution: WorkflowExecution, memo: Mapping[str, Any]) -> float:
    """Return the start of the first execution of a run, in seconds since the epoch."""
    started_at = memo.get(wire.MEMO_STARTED_AT)
    if isinstance(started_at, str):
        with suppress(ValueError):
            return datetime.fromisoformat(started_at).timestamp()
    return execution.start_time.timestamp()


async def readable_memo(execution: WorkflowExecution) -> Mapping[str, Any]:
    """Return the memo of a run; an empty memo if decoding fails, so that one damaged run does not hide all others."""
    try:
        return await execution.memo()
    # Catch all exceptions: other programs may write any memo, and a codec may fail in any way.
    except Exception as error:
        _LOG.warning("%s: the memo of the run cannot be read: %r", execution.id, error)
        return {}


def _tags_of(execution: WorkflowExecution, memo: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a run from its memo; if the memo cannot be decoded, from its search attributes."""
    if wire.MEMO_TAGS in memo:
        return tags_in(memo, key=wire.MEMO_TAGS)
    keywords = execution.typed_search_attributes.get(TAGS, ())
    return {
        name: value
        for name, separator, value in (keyword_text.partition("=") for keyword_text in keywords)
        if separator
    }


def owner_of(execution: WorkflowExecution, memo: Mapping[str, Any]) -> str | None:
    """Return the owner of a run from its memo; if the memo cannot be decoded, from its search attributes."""
    return owner_in_memo(memo) or execution.typed_search_attributes.get(OWNER)


def owner_in_memo(memo: Mapping[str, Any]) -> str | None:
    """Return the owner of the API key that started a run or a session, from its memo."""
    owner = memo.get(wire.MEMO_OWNER)
    return owner if isinstance(owner, str) else None
