"""The activity that puts stored values into the arguments of an activity that is not Dagwright's.

Such an activity gets everything inline, so what is loaded stands in the history of the run and has a limit. Secrets are
not put in here. It only reads, so Temporal may repeat it. This module must not import workflows.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pydantic_core
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from activities.errors import activity_failure_of, posture_of
from activities.store_waits import with_store
from activities.values import Values
from dagwright.core.boundary.limits import ARGUMENTS_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_LOAD_VALUES
from dagwright.core.model.tools import Effects
from dagwright.tools.errors import ResultTooLarge, ToolError
from dagwright.tools.redaction import Redaction

LoadValues = Callable[[dict[str, Any]], Awaitable[RawValue]]


def load_values_activity(values: Values) -> LoadValues:
    """Returns the activity `load_values`."""

    @activity.defn(name=ACTIVITY_LOAD_VALUES)
    async def load_values(message: dict[str, Any]) -> RawValue:
        """Returns the arguments of `{"arguments", "holes"}` with the holes filled."""
        arguments = message["arguments"]
        try:
            await with_store(lambda: values.fill(arguments, message["holes"], secrets={}))
            encoded = pydantic_core.to_json(arguments)
            if len(encoded) > ARGUMENTS_LIMIT_BYTES:
                raise ResultTooLarge(
                    f"the arguments have {len(encoded):,} bytes with their values; an activity that is not Dagwright's "
                    f"gets at most {ARGUMENTS_LIMIT_BYTES:,}; hand it a smaller part, or the name of a file"
                )
        except ToolError as error:
            _fail(error)
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=encoded))

    return load_values


def _fail(error: ToolError) -> NoReturn:
    details = {"attempt": activity.info().attempt}
    raise activity_failure_of(error, posture_of(error, Effects.READ), details=details, redaction=Redaction()) from None
