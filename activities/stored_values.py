"""Activities that load and store values for a run: pages of plans, arguments, long texts."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pydantic_core
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities.errors import activity_failure_of, retry_decision
from dagwright.activities.heartbeats import heartbeating
from dagwright.activities.store_retry import retry_store_request
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.decoding import pack_json
from dagwright.core.boundary.limits import ARGUMENTS_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_GET_BLOB, ACTIVITY_LOAD_PLAN, ACTIVITY_LOAD_VALUES, ACTIVITY_PUT_BLOB
from dagwright.core.model.tools import Effects
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore
from dagwright.tools.errors import ResultTooLarge, ToolError
from dagwright.tools.redaction import Redaction

ERROR_STATE_LOST = "state_lost"
"""`ApplicationError.type`: the text is not in the store, or it is damaged."""


def blob_activities(store: PayloadStore) -> list[Callable[..., Any]]:
    """Return the activities `put_blob` and `get_blob` for a store."""

    @activity.defn(name=ACTIVITY_PUT_BLOB)
    async def put_blob(message: dict[str, str]) -> dict[str, str]:
        """Store the text of `{"text"}` and return `{"ref"}`."""
        with heartbeating():
            return {"ref": await store.put(message["text"].encode())}

    @activity.defn(name=ACTIVITY_GET_BLOB)
    async def get_blob(message: dict[str, str]) -> dict[str, str]:
        """Return the `{"text"}` of `{"ref"}`."""
        try:
            with heartbeating():
                return {"text": (await store.get(message["ref"])).decode()}
        except (PayloadMissing, PayloadDamaged) as error:
            text = f"the snapshot of the previous execution cannot be loaded: {error}"
            raise ApplicationError(text, type=ERROR_STATE_LOST, non_retryable=True) from None

    return [put_blob, get_blob]


ERROR_PLAN_LOST = "plan_lost"
"""`ApplicationError.type`: the page is not in the store, or it is damaged."""

LoadActivity = Callable[[dict[str, Any]], Awaitable[dict[str, str]]]


def load_plan_activity(store: PayloadStore) -> LoadActivity:
    """Return the activity `load_plan` for a store."""

    @activity.defn(name=ACTIVITY_LOAD_PLAN)
    async def load_plan(message: dict[str, Any]) -> dict[str, str]:
        """Return the plan page of `{"ref"}`, packed."""
        try:
            return pack_json(await retry_store_request(lambda: store.get(str(message.get("ref")))))
        except (PayloadMissing, PayloadDamaged) as error:
            text = f"a part of the plan cannot be loaded: {error}"
            raise ApplicationError(text, type=ERROR_PLAN_LOST, non_retryable=True) from None

    return load_plan


LoadValues = Callable[[dict[str, Any]], Awaitable[RawValue]]


def load_values_activity(values: LargeValues) -> LoadValues:
    """Return the activity `load_values`."""

    @activity.defn(name=ACTIVITY_LOAD_VALUES)
    async def load_values(message: dict[str, Any]) -> RawValue:
        """Return the arguments of `{"arguments", "bindings"}` with the bindings filled in."""
        arguments = message["arguments"]
        try:
            await retry_store_request(lambda: values.hydrate(arguments, message["bindings"], secrets={}))
            encoded = pydantic_core.to_json(arguments)
            if len(encoded) > ARGUMENTS_LIMIT_BYTES:
                raise ResultTooLarge(
                    f"the arguments have {len(encoded):,} bytes with their values, over the limit of "
                    f"{ARGUMENTS_LIMIT_BYTES:,} for an activity outside Dagwright; pass a smaller part, or a file name"
                )
        except ToolError as error:
            _fail(error)
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=encoded))

    return load_values


def _fail(error: ToolError) -> NoReturn:
    details = {"attempt": activity.info().attempt}
    raise activity_failure_of(
        error, retry_decision(error, Effects.READ), details=details, redaction=Redaction()
    ) from None
