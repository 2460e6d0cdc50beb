"""The inbox: open requests of all runs, page by page, from search attributes and memos.

No history is read. The memo of a run has its first open requests and the total number of its open requests.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from temporalio.client import WorkflowExecution

from dagwright.client.feedback.open_requests import OpenRequest, RequestRef, with_path
from dagwright.client.list_cursors import ListCursor, executions_from, page_size_for
from dagwright.client.run_lists import owner_of, quote_literal, readable_memo
from dagwright.core.boundary import wire
from dagwright.core.model.requests import ANYONE
from dagwright.core.model.times import format_time, parse_time
from dagwright.history.executions import path_in, root_in
from dagwright.protocol.listings import OTHER_ASSIGNEES, keyword_of_assignee, requests_from_json
from dagwright.protocol.run_labels import keyword
from dagwright.server import Connection

_LOG = logging.getLogger(__name__)
_MAX_PAGES_WITHOUT_MATCH = 2
"""A page of the inbox ends after this many server pages of runs without a matching request."""


@dataclass(frozen=True, slots=True)
class InboxFilter:
    """Filter for the inbox; `None` in a field matches all requests.

    Args:
        run_id: ID of the run, or of the root run of a child run.
        owner: person who owns the API key that started the run, or who is the assignee of the request.
        assignee: person who should answer; `ANYONE` for requests without an assignee.
        type: type of the request, such as `APPROVAL`.
        opened_before: latest time at which the request was opened, in seconds since the epoch.
    """

    run_id: str | None = None
    owner: str | None = None
    assignee: str | None = None
    type: str | None = None
    opened_before: float | None = None

    def query(self) -> str:
        """Return the visibility query for the runs that may have matching requests."""
        parts = [wire.RUN_WORKFLOWS_FILTER, "ExecutionStatus = 'Running'", f"{wire.SEARCH_AWAITING} IS NOT NULL"]
        if self.run_id is not None:
            root = quote_literal(keyword(self.run_id))
            parts.append(f"(WorkflowId = {quote_literal(self.run_id)} OR {wire.SEARCH_ROOT} = {root})")
        if self.assignee is not None:
            parts.append(f"({_awaiting_condition(self.assignee)})")
        if self.owner is not None:
            parts.append(
                f"({wire.SEARCH_OWNER} = {quote_literal(keyword(self.owner))} OR {_awaiting_condition(self.owner)})"
            )
        if self.opened_before is not None:
            parts.append(f"StartTime <= '{format_time(self.opened_before)}'")
        return " AND ".join(parts)

    def matches(self, request: OpenRequest, *, owner: str | None) -> bool:
        """Return whether a request matches.

        Args:
            owner: owner of the request's run.
        """
        document = request.document
        return (
            self.run_id in (None, document["run_id"])
            and self.owner in (None, owner, request.assignee)
            and self.assignee in (None, request.assignee or ANYONE)
            and self.type in (None, document["type"])
            and (self.opened_before is None or parse_time(document["opened_at"]) <= self.opened_before)
        )


MATCH_EVERY_REQUEST = InboxFilter()


@dataclass(frozen=True, slots=True)
class InboxPage:
    """A page of the inbox.

    Args:
        requests: matching requests, the oldest first; the requests of one run are all on one page.
        cursor: cursor of the next page; `None` on the last page.
        omitted: ID of a root run -> number of its open requests that are not listed, whether or not they match
            the filter. If the filter has an owner, the map has only the runs of that owner.
    """

    requests: Sequence[OpenRequest]
    cursor: ListCursor | None
    omitted: Mapping[str, int]


async def read_inbox_page(
    connection: Connection,
    *,
    limit: int,
    inbox_filter: InboxFilter = MATCH_EVERY_REQUEST,
    after: ListCursor | None = None,
) -> InboxPage:
    """Return a page of the inbox.

    The first page has the requests of the newest runs. Within a page, the oldest request is the first.

    Args:
        limit: number of requests after which the page ends; requests of one run stay on one page.
        after: where the page starts; `None` for the newest run.

    Raises:
        SearchAttributesMissing: the namespace lacks search attributes.

    Complexity: three requests to the server. A page before the last page may have fewer requests than `limit`, or none.
    """
    connection.require_search_attributes()
    page_size = page_size_for(limit)
    listed_requests: list[OpenRequest] = []
    omitted: dict[str, int] = {}
    runs_without_match = 0
    cursor: ListCursor | None = None
    executions = executions_from(connection.client, inbox_filter.query(), after=after, page_size=page_size)
    async for next_cursor, run in executions:
        cursor = next_cursor
        memo = await readable_memo(run)
        owner = owner_of(run, memo)
        requests, omitted_count = _listed_requests(run, memo)
        matching_requests = [request for request in requests if inbox_filter.matches(request, owner=owner)]
        listed_requests += matching_requests
        runs_without_match += not matching_requests
        if omitted_count > 0 and inbox_filter.owner in (None, owner):
            root = root_in(memo) or run.id
            omitted[root] = omitted.get(root, 0) + omitted_count
        if len(listed_requests) >= limit or runs_without_match == _MAX_PAGES_WITHOUT_MATCH * page_size:
            break
    listed_requests.sort(key=lambda request: str(request.document["opened_at"]))
    return InboxPage(listed_requests, cursor, omitted)


async def read_nonempty_inbox_page(
    connection: Connection,
    *,
    limit: int,
    inbox_filter: InboxFilter = MATCH_EVERY_REQUEST,
    after: ListCursor | None = None,
) -> InboxPage:
    """Like `read_inbox_page`, but skip empty pages.

    Complexity: linear in the runs that wait for people.
    """
    page = await read_inbox_page(connection, limit=limit, inbox_filter=inbox_filter, after=after)
    omitted = dict(page.omitted)
    while page.cursor is not None and not page.requests:
        page = await read_inbox_page(connection, limit=limit, inbox_filter=inbox_filter, after=page.cursor)
        for run_id, count in page.omitted.items():
            omitted[run_id] = omitted.get(run_id, 0) + count
    return replace(page, omitted=omitted)


def _awaiting_condition(name: str) -> str:
    parts = (
        f"{wire.SEARCH_AWAITING} = {quote_literal(keyword_text)}"
        for keyword_text in (keyword_of_assignee(name), OTHER_ASSIGNEES)
    )
    return " OR ".join(parts)


def _listed_requests(run: WorkflowExecution, memo: Mapping[str, Any]) -> tuple[Sequence[OpenRequest], int]:
    """Return the requests in the memo of a run, and the number of omitted requests: 1 if the memo is invalid."""
    root, path = root_in(memo) or run.id, path_in(memo)
    try:
        memo_requests = requests_from_json(memo[wire.MEMO_REQUESTS])
        requests = []
        for node_id, document in memo_requests.requests:
            # Check the fields by which requests are filtered and sorted.
            _ = document["type"], parse_time(document["opened_at"])
            ref = RequestRef(run.id, str(document["request_id"]))
            requests.append(with_path(OpenRequest(document, ref, node_id, title=memo_requests.title), root, path))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        _LOG.warning("%s: the requests in the memo of the run cannot be read: %r", run.id, error)
        return (), 1
    return requests, memo_requests.count - len(memo_requests.requests)
