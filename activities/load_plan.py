"""The activity that brings one page of a large plan into a run.

It only reads, so Temporal may repeat it. This module must not import workflows.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.store_waits import with_store
from dagwright.core.boundary.packing import pack_json
from dagwright.core.boundary.wire import ACTIVITY_LOAD_PLAN
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore

ERROR_PLAN_LOST = "plan_lost"
"""`ApplicationError.type`: the page is not in the store, or not what was put there."""

LoadActivity = Callable[[dict[str, Any]], Awaitable[dict[str, str]]]


def load_activity(store: PayloadStore) -> LoadActivity:
    """Returns the activity `load_plan` over a store."""

    @activity.defn(name=ACTIVITY_LOAD_PLAN)
    async def load_plan(message: dict[str, Any]) -> dict[str, str]:
        """Returns the page `{"ref"}` of a plan, packed."""
        try:
            return pack_json(await with_store(lambda: store.get(str(message.get("ref")))))
        except (PayloadMissing, PayloadDamaged) as error:
            told = f"a part of the plan cannot be had: {error}"
            raise ApplicationError(told, type=ERROR_PLAN_LOST, non_retryable=True) from None

    return load_plan
