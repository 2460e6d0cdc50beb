"""Notifications of requests to a webhook, as they travel to the activity that sends them."""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError

from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES, NOTIFICATION_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.model.requests import Closing, Notification
from dagwright.core.model.times import format_time
from dagwright.protocol.documents import encoded_size

NOTE = "notify"
"""Code of the note that the hook did not take something."""


def notice_json(notice: Notification, closing: Closing | None, *, workflow_id: str, identity: Sequence[Any]) -> Any:
    """Returns a notice as the activity takes it.

    Args:
        closing: how the request ended, if it has.
        identity: scope and path of the run, the same in each of its executions.
    """
    request = notice.request.to_json(workflow_id)
    if encoded_size(request) > NOTIFICATION_BYTES:
        prompt = cut_bytes(notice.request.prompt, max_bytes=NOTIFICATION_BYTES // 4)
        request |= {"prompt": prompt, "schema": None, "options": None, "arguments": None, "shortened": True}
    return {
        "id": _id_of(notice, identity),
        "kind": notice.kind,
        "at": format_time(notice.at),
        "request": request,
        "closing": None if closing is None else _closing_json(closing),
    }


def _id_of(notice: Notification, identity: Sequence[Any]) -> str:
    canonical = json.dumps([*identity, *notice.key], ensure_ascii=True, separators=(",", ":"))
    return "msg_" + base64.b32encode(hashlib.sha256(canonical.encode()).digest()).decode().lower()[:32]


def _closing_json(closing: Closing) -> dict[str, Any]:
    """Returns how a request ended; what was answered is nothing for a hook."""
    return {name: part for name, part in closing.to_json().items() if name != "arguments"}


def told(notices: Sequence[Any]) -> str:
    """Returns how notices are called in a sentence: `check opened and 3 more`."""
    first = notices[0]
    more = f" and {len(notices) - 1:,} more" if len(notices) > 1 else ""
    return cut_bytes(f"{first['request']['request_id']} {first['kind']}", max_bytes=300) + more


def failure_note(error: BaseException) -> str:
    """Returns what to say of notices that the hook did not take in time."""
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        return cut_bytes(cause.message, max_bytes=MESSAGE_LIMIT_BYTES)
    return f"the hook could not be told: {type(cause).__name__}: {cause}"


def forgotten_note(count: int, *, why: str) -> str:
    """Returns what to say of notices that are not told any more."""
    return f"{count:,} {'notice was' if count == 1 else 'notices were'} not told: {why}"
