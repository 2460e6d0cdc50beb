"""What results and failures tell of the attempt that they come from, and of what models have used for it."""

from typing import Any

import pydantic_core
from temporalio.activity import Info

from dagwright.core.boundary.usage import NONE, Usage
from dagwright.core.boundary.wire import DETAIL_USAGE, METADATA_ATTEMPT, METADATA_STARTED_AT, METADATA_USAGE
from dagwright.core.model.times import format_time


def attempt_metadata(info: Info, usage: Usage = NONE) -> dict[str, bytes]:
    """Returns what the payload of a result says of its attempt; nothing of usage if no model was asked."""
    metadata = {
        "encoding": b"json/plain",
        METADATA_ATTEMPT: str(info.attempt).encode(),
        METADATA_STARTED_AT: _started_at(info).encode(),
    }
    # Asked first whether it is the very one: nearly every call asks no model.
    if usage is not NONE and usage != NONE:
        metadata[METADATA_USAGE] = pydantic_core.to_json(usage.to_json())
    return metadata


def attempt_details(info: Info, usage: Usage = NONE) -> dict[str, Any]:
    """Returns what the details of a failure say of its attempt; nothing of usage if no model was asked."""
    used = {} if usage == NONE else {DETAIL_USAGE: usage.to_json()}
    return {"attempt": info.attempt, "started_at": _started_at(info), **used}


def _started_at(info: Info) -> str:
    return format_time(info.started_time.timestamp())
