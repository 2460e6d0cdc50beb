"""The activities that put long texts of a run's own into the payload store and bring them back.

What is put lies under the hash of its content, and what is fetched never changes, so Temporal may repeat both. This
module must not import workflows.
"""

from collections.abc import Callable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.heartbeats import kept_alive
from dagwright.core.boundary.wire import ACTIVITY_GET_BLOB, ACTIVITY_PUT_BLOB
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore

ERROR_STATE_LOST = "state_lost"
"""`ApplicationError.type`: the text is not in the store, or not what was put there."""


def blob_activities(store: PayloadStore) -> list[Callable[..., Any]]:
    """Returns the activities `put_blob` and `get_blob` over a store."""

    @activity.defn(name=ACTIVITY_PUT_BLOB)
    async def put_blob(message: dict[str, str]) -> dict[str, str]:
        """Keeps the text of `{"text"}` and returns `{"ref"}`."""
        with kept_alive():
            return {"ref": await store.put(message["text"].encode())}

    @activity.defn(name=ACTIVITY_GET_BLOB)
    async def get_blob(message: dict[str, str]) -> dict[str, str]:
        """Returns the `{"text"}` of `{"ref"}`."""
        try:
            with kept_alive():
                return {"text": (await store.get(message["ref"])).decode()}
        except (PayloadMissing, PayloadDamaged) as error:
            told = f"what the execution before handed on cannot be had: {error}"
            raise ApplicationError(told, type=ERROR_STATE_LOST, non_retryable=True) from None

    return [put_blob, get_blob]
