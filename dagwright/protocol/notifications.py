"""Notifications about requests, encoded for the activity that sends them to a webhook."""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError

from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES, MAX_NOTIFIED_REQUEST_BYTES
from dagwright.core.model.requests import Closing
from dagwright.core.model.times import format_time
from dagwright.core.text import cut_bytes
from dagwright.features.feedback.feedback_state import Notification
from dagwright.protocol.listings import shortened_request

NOTE_CODE = "notify"
"""Code of a note about a notification that the webhook did not accept."""


def notification_to_json(
    notification: Notification, closing: Closing | None, *, run_id: str, identity: Sequence[Any]
) -> Any:
    """Encode a notification for the activity.

    Args:
        closing: how the request was closed; `None` if the request is open.
        identity: scope and path of the run, the same in each of its executions.
    """
    request = shortened_request(notification.request.to_json(run_id), max_bytes=MAX_NOTIFIED_REQUEST_BYTES)
    return {
        "id": _id_of(notification, identity),
        "kind": notification.kind,
        "at": format_time(notification.at),
        "request": request,
        "closing": None if closing is None else _closing_json(closing),
    }


def _id_of(notification: Notification, identity: Sequence[Any]) -> str:
    canonical_json = json.dumps([*identity, *notification.key], ensure_ascii=True, separators=(",", ":"))
    return "msg_" + base64.b32encode(hashlib.sha256(canonical_json.encode()).digest()).decode().lower()[:32]


def _closing_json(closing: Closing) -> dict[str, Any]:
    """Return how a request was closed, without the answer, which is not sent to webhooks."""
    return {name: part for name, part in closing.to_json().items() if name != "arguments"}


def description_of(notifications: Sequence[Any]) -> str:
    """Return a short description of notifications: `check opened and 3 more`."""
    first_notification = notifications[0]
    more_text = f" and {len(notifications) - 1:,} more" if len(notifications) > 1 else ""
    return (
        cut_bytes(f"{first_notification['request']['request_id']} {first_notification['kind']}", max_bytes=300)
        + more_text
    )


def failure_note(error: BaseException) -> str:
    """Return the note about notifications that the webhook did not accept in time."""
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        return cut_bytes(cause.message, max_bytes=MAX_FAILURE_MESSAGE_BYTES)
    return f"the webhook could not be notified: {type(cause).__name__}: {cause}"


def dropped_note(count: int, *, reason: str) -> str:
    """Return the note about notifications that are no longer sent."""
    return f"{count:,} {'notification was' if count == 1 else 'notifications were'} not sent: {reason}"
