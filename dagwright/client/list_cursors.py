"""Cursors of lists of executions. A cursor stays valid while runs start, end and are deleted.

A page token of the server points to the end of a server page, but a page that we return may end in the middle of a
server page. A cursor is therefore a position in the order of the visibility store: open executions first, then by close
time, start time and run ID.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from temporalio.client import Client, WorkflowExecution

MAX_PAGE_SIZE = 1_000
"""Maximum page size of the server."""
_OPEN_MARK = "open"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PATTERN = re.compile(rf"({_OPEN_MARK}|[0-9]{{1,19}})\.([0-9]{{1,19}})\.({_UUID})")


@dataclass(frozen=True, slots=True)
class ListCursor:
    """The position in a list directly after one execution.

    Args:
        closed_at: when the execution ended, in nanoseconds since the epoch; `None` for an open execution.
        started_at: when the execution started, in nanoseconds since the epoch.
        execution_id: Temporal's run ID of the execution.
    """

    closed_at: int | None
    started_at: int
    execution_id: str

    def __str__(self) -> str:
        return f"{_OPEN_MARK if self.closed_at is None else self.closed_at}.{self.started_at}.{self.execution_id}"

    @classmethod
    def of(cls, execution: WorkflowExecution) -> Self:
        """Return the cursor after an execution."""
        # The SDK rounds times to microseconds; the protobuf message has them in nanoseconds.
        raw_info = execution.raw_info
        closed_at = raw_info.close_time.ToNanoseconds() if raw_info.HasField("close_time") else None
        return cls(closed_at, raw_info.start_time.ToNanoseconds(), execution.run_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cursor.

        Raises:
            ValueError: the text is not a cursor.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r:.80} is not a cursor of a list")
        closed_at, started_at, run_id = match.groups()
        return cls(None if closed_at == _OPEN_MARK else int(closed_at), int(started_at), run_id)

    def condition(self) -> str:
        """Return the condition of a visibility query for the executions after the cursor."""
        started_text = f"'{_format_time(self.started_at)}'"
        order_condition = (
            f"StartTime < {started_text} OR (StartTime = {started_text} AND RunId > '{self.execution_id}')"
        )
        if self.closed_at is None:
            return f"(CloseTime IS NOT NULL OR {order_condition})"
        closed_text = f"'{_format_time(self.closed_at)}'"
        return f"CloseTime <= {closed_text} AND (CloseTime < {closed_text} OR {order_condition})"


def _format_time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


async def executions_from(
    client: Client, query: str, *, after: ListCursor | None, page_size: int
) -> AsyncIterator[tuple[ListCursor | None, WorkflowExecution]]:
    """Yield the executions after the cursor `after`, each with its own cursor; the last execution has `None`.

    Complexity: one request for each page.
    """
    if after is not None:
        query = f"{query} AND {after.condition()}"
    token: bytes | None = None
    while True:
        listing = client.list_workflows(query, page_size=page_size, next_page_token=token)
        await listing.fetch_next_page()
        page, token = listing.current_page or (), listing.next_page_token
        for number, execution in enumerate(page, 1):
            yield ListCursor.of(execution) if number < len(page) or token else None, execution
        if not token:
            return


def page_size_for(limit: int) -> int:
    """Return the server's page size for a page of `limit` rows. An additional row shows whether more rows follow."""
    return min(limit + 1, MAX_PAGE_SIZE)
