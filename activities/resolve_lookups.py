"""The activity that binds lookups to parties before anything of a plan runs.

It only reads, so Temporal may repeat it; what only another plan or more data can mend is not retried.
This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from dagwright.contracts.wire import ACTIVITY_RESOLVE_LOOKUPS
from dagwright.entities.database import EntityDatabase, as_database
from dagwright.entities.resolution import LookupsFailed, resolve_lookups

ERROR_LOOKUP_FAILED = "lookup_failed"
"""`ApplicationError.type`; the first detail is the list of problems, all of them."""

MESSAGE_LIMIT = 4000
"""Characters of the error's message; the details hold everything."""

LookupActivity = Callable[[list[Any]], Awaitable[list[dict[str, Any]]]]


def lookup_activity(database: EntityDatabase | str) -> LookupActivity:
    """Returns the activity `resolve_lookups` over a store, or its URL, opened at its first call."""
    store = as_database(database)

    @activity.defn(name=ACTIVITY_RESOLVE_LOOKUPS)
    async def resolve(lookups: list[Any]) -> list[dict[str, Any]]:
        """Returns `{"id", "name", "kind"}` for each `{"search_text", "entity_type"}`, in order."""
        try:
            bound = await asyncio.to_thread(resolve_lookups, store, lookups)
        except LookupsFailed as failure:
            problems = [problem.as_json() for problem in failure.problems]
            raise ApplicationError(
                str(failure)[:MESSAGE_LIMIT], problems, type=ERROR_LOOKUP_FAILED, non_retryable=True
            ) from None
        return [{"id": party.id, "name": party.name, "kind": party.kind} for party in bound]

    return resolve
