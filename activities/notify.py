"""The activity that sends notifications about the requests of a run to people: one signed POST per notification.

The idempotency key of a notification is its id, in the header `webhook-id`. A retry skips the delivered notifications.
After the death of a worker, a notification may be delivered twice. This module must not import workflows.
"""

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pydantic_core
from temporalio import activity
from temporalio.exceptions import ApplicationError

from dagwright.activities.heartbeats import Heartbeats
from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.core.boundary.wire import ACTIVITY_NOTIFY
from dagwright.core.text import cut_bytes
from dagwright.protocol.notifications import description_of
from dagwright.protocol.webhooks import Webhook, signed_headers
from dagwright.tools.retry_after import requested_delay

ERROR_NOT_SENT = "not_sent"
"""`ApplicationError.type`: the webhook has not accepted every notification."""
RESPONSE_TIMEOUT_S = 10.0
"""Response timeout of the webhook for one notification."""
_MAX_DELAY = timedelta(minutes=10)

Notification = Mapping[str, Any]


def notify_activity(webhook: Webhook | None) -> Callable[..., Any]:
    """Return the activity `notify` for the webhook of a worker."""

    @activity.defn(name=ACTIVITY_NOTIFY)
    async def notify(message: dict[str, Any]) -> None:
        """Deliver the notifications of `{"title", "notifications"}`.

        Raises:
            ApplicationError: the webhook did not accept all notifications.
        """
        notifications: Sequence[Notification] = message["notifications"]
        if webhook is None:
            raise ApplicationError(
                f"{description_of(notifications)}: the worker has no webhook; "
                "set DAGWRIGHT_NOTIFY_URL and DAGWRIGHT_NOTIFY_SECRET",
                type=ERROR_NOT_SENT,
            )
        heartbeats = Heartbeats(activity.info())
        heartbeats.start()
        try:
            await _Delivery(webhook, message.get("title"), heartbeats).deliver(notifications)
        finally:
            heartbeats.stop()

    return notify


@dataclass(slots=True)
class _UndeliveredNotifications:
    """The notifications that the webhook did not accept in this attempt, and the latest reason."""

    notifications: list[Notification] = field(default_factory=list)
    reason: str = ""
    delay: timedelta | None = None


class _Delivery:
    """One attempt to deliver notifications of a run."""

    def __init__(self, webhook: Webhook, title: Any, heartbeats: Heartbeats) -> None:
        self._webhook = webhook
        self._title = title
        self._heartbeats = heartbeats
        self._delivered_ids: list[str] = list(heartbeats.last_details or [])
        """IDs of the notifications delivered in this attempt and in earlier attempts."""

    async def deliver(self, notifications: Sequence[Notification]) -> None:
        remaining_notifications = [
            notification for notification in notifications if notification["id"] not in self._delivered_ids
        ]
        undelivered = _UndeliveredNotifications()
        async with httpx.AsyncClient(follow_redirects=False, timeout=RESPONSE_TIMEOUT_S) as client:
            for index, notification in enumerate(remaining_notifications):
                try:
                    async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                        await self._deliver_notification(client, notification, undelivered)
                except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
                    # The remaining notifications would fail in the same way.
                    undelivered.notifications += remaining_notifications[index:]
                    undelivered.reason = f"does not respond ({_reason_of(error)})"
                    break
        if undelivered.notifications:
            text = f"{description_of(undelivered.notifications)}: the webhook at {self._host} {undelivered.reason}"
            raise ApplicationError(
                cut_bytes(text, max_bytes=MAX_FAILURE_MESSAGE_BYTES),
                type=ERROR_NOT_SENT,
                next_retry_delay=undelivered.delay,
            )

    @property
    def _host(self) -> str:
        return httpx.URL(self._webhook.url).host

    async def _deliver_notification(
        self, client: httpx.AsyncClient, notification: Notification, undelivered: _UndeliveredNotifications
    ) -> None:
        body = pydantic_core.to_json(_body_of(notification, title=self._title, ui_url=self._webhook.ui_url))
        signature_headers = signed_headers(
            body, self._webhook.key, message_id=notification["id"], at_s=int(time.time())
        )
        headers = {"content-type": "application/json", "user-agent": "dagwright", **signature_headers}
        # The response body is not read, however long it is.
        async with client.stream("POST", self._webhook.url, content=body, headers=headers) as response:
            if response.is_success:
                self._delivered_ids.append(notification["id"])
                self._heartbeats.beat(self._delivered_ids, None)
                return
            undelivered.notifications.append(notification)
            undelivered.reason = f"responds {response.status_code}"
            delay = requested_delay(response.headers)
            if delay is not None:
                undelivered.delay = min(max(delay, undelivered.delay or delay), _MAX_DELAY)


def _reason_of(error: Exception) -> str:
    return f"no response within {RESPONSE_TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else type(error).__name__


def _body_of(notification: Notification, *, title: Any, ui_url: str | None) -> dict[str, Any]:
    info, request = activity.info(), notification["request"]
    # `run_id` is Temporal's workflow ID, and `execution_id` is Temporal's run ID.
    run_id = request["run_id"]
    page = f"{ui_url}/namespaces/{quote(info.namespace, safe='')}/workflows/{quote(run_id, safe='')}"
    return {
        "kind": notification["kind"],
        "at": notification["at"],
        "run_id": run_id,
        "execution_id": info.workflow_run_id,
        "title": title,
        "request": request,
        "closing": notification["closing"],
        "links": {
            "answer": shlex.join(["dagwright", "feedback", run_id, request["request_id"]]),
            "run": None if ui_url is None else f"{page}/{info.workflow_run_id}/history",
        },
    }
