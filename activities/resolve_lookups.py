"""The activity that binds lookups to parties before anything of a plan runs.

It only reads, so Temporal may repeat it; what only another plan or more data can mend is not retried.
This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeats import kept_alive
from dagwright.contracts.documents import encoded_size
from dagwright.contracts.limits import LOOKUPS_LIMIT_BYTES, MESSAGE_LIMIT_BYTES, cut_text
from dagwright.contracts.wire import ACTIVITY_RESOLVE_LOOKUPS

if TYPE_CHECKING:
    from dagwright.entities.database import EntityDatabase

ERROR_LOOKUP_FAILED = "lookup_failed"
"""`ApplicationError.type`; the first detail is the list of problems, all of them."""

DETAILS_LIMIT_BYTES = 1_000_000
"""Half of what the server takes as a failure; above 4 MB one never arrives."""

LookupActivity = Callable[[list[Any]], Awaitable[list[dict[str, Any]]]]


def lookup_activity(database: "EntityDatabase | str") -> LookupActivity:
    """Returns the activity `resolve_lookups` over a store, or its URL, opened at its first call."""

    @activity.defn(name=ACTIVITY_RESOLVE_LOOKUPS)
    async def resolve(lookups: list[Any]) -> list[dict[str, Any]]:
        """Returns `{"id", "name", "kind"}` for each `{"search_text", "entity_type"}`, in order."""
        with kept_alive():
            found = await asyncio.to_thread(_resolved, database, lookups)
        if (size := encoded_size([lookups, found])) > LOOKUPS_LIMIT_BYTES:
            told = f"the {len(lookups):,} parties that the plan looks up have {size:,} bytes"
            advice = "split the plan, and give the parts their parties as inputs"
            message = f"{told}; at most {LOOKUPS_LIMIT_BYTES:,} can go along with a run: {advice}"
            raise ApplicationError(message, type="too_large", non_retryable=True)
        return found

    return resolve


def _resolved(database: "EntityDatabase | str", lookups: list[Any]) -> list[dict[str, Any]]:
    # Not at the top: SQLAlchemy takes long to import, and neither the worker nor its event loop may wait for it.
    from dagwright.entities.database import as_database  # noqa: PLC0415
    from dagwright.entities.resolution import LookupsFailed, problems_as_json, resolve_lookups  # noqa: PLC0415

    try:
        bound = resolve_lookups(as_database(database), lookups)
    except LookupsFailed as failure:
        message = cut_text(str(failure), max_bytes=MESSAGE_LIMIT_BYTES)
        problems = problems_as_json(failure.problems, limit_bytes=DETAILS_LIMIT_BYTES)
        raise ApplicationError(message, problems, type=ERROR_LOOKUP_FAILED, non_retryable=True) from None
    return [{"id": party.id, "name": party.name, "kind": party.kind} for party in bound]
