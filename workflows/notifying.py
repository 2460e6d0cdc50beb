"""Notify a webhook about requests to people while the run continues.

A notification stays in the state of the run until the webhook has accepted the notification or the retries have ended.
It is not lost at continue-as-new: the new execution sends the notification again with the same ID.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import limits, wire
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.features.feedback.feedback_state import Notification
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.notifications import NOTE_CODE, description_of, dropped_note, failure_note, notification_to_json
from dagwright.workflows.activity_calls import INTERNAL_ATTEMPT_TIMEOUT, RunContext, json_payload
from dagwright.workflows.retries import UNLIMITED_ATTEMPTS


class Notifier:
    """Sender of the notifications of one run.

    Args:
        run: data of the run. The IDs of the notifications contain `run.scope` and `run.path`. If `run.notifies` is
            false, the run has no webhook.
        add_note: function that adds a note, with code and message.
    """

    def __init__(self, scheduler: RunScheduler, run: RunContext, *, add_note: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._run = run
        self._add_note = add_note
        self._in_flight: dict[tuple[str, str, float], int] = {}
        """Key of a notification in flight -> number of its activity."""
        self._numbers = count(1)
        self._wake: Callable[[], None] = lambda: None

    def send(self, *, wake: Callable[[], None]) -> None:
        """Start to send new notifications, or drop them if the run has no webhook.

        Args:
            wake: called when notifications have been sent.
        """
        requests = self._scheduler.features.feedback.requests
        if not self._run.notifies:
            requests.notifications.clear()
        if not requests.notifications:
            return
        self._wake = wake
        self._drop_oldest()
        unsent_notifications = [
            notification for notification in requests.notifications if notification.key not in self._in_flight
        ]
        while unsent_notifications and self._activity_count() < limits.MAX_NOTIFICATION_ACTIVITIES:
            batch, encoded = self._next_batch(unsent_notifications)
            self._start(batch, encoded)
            unsent_notifications = unsent_notifications[len(batch) :]

    async def finish(self) -> None:
        """Wait for a limited time until all notifications are sent, then add a note about unsent notifications."""
        self.send(wake=lambda: None)
        notifications = self._scheduler.features.feedback.requests.notifications
        if not notifications:
            return
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: not notifications,
                timeout=timedelta(seconds=limits.NOTIFY_GRACE_S),
                timeout_summary=wire.TIMER_NOTIFY,
            )
        if notifications:
            reason = f"the webhook did not accept them within {limits.NOTIFY_GRACE_S:g} s of the end of the run"
            self._add_note(NOTE_CODE, dropped_note(len(notifications), reason=reason))

    def _activity_count(self) -> int:
        """Return the number of activities in flight. Each activity sends several notifications."""
        return len(set(self._in_flight.values()))

    def _drop_oldest(self) -> None:
        notifications = self._scheduler.features.feedback.requests.notifications
        surplus = len(notifications) - limits.MAX_QUEUED_NOTIFICATIONS
        if surplus > 0:
            del notifications[:surplus]
            self._add_note(NOTE_CODE, dropped_note(surplus, reason="the webhook does not accept them fast enough"))

    def _next_batch(self, notifications: Sequence[Notification]) -> tuple[Sequence[Notification], list[Any]]:
        """Return the first notifications, as many as one activity may send, and their encoded form."""
        run_id, closed_requests = workflow.info().workflow_id, self._scheduler.features.feedback.requests.closed
        encoded: list[Any] = []
        size = 0
        for notification in notifications[: limits.MAX_NOTIFICATIONS_PER_ACTIVITY]:
            encoded_notification = notification_to_json(
                notification,
                closed_requests.get(notification.request.id),
                run_id=run_id,
                identity=[self._run.scope, self._run.path],
            )
            size += encoded_size(encoded_notification)
            if encoded and size > limits.MAX_NOTIFICATIONS_TOTAL_BYTES:
                break
            encoded.append(encoded_notification)
        return notifications[: len(encoded)], encoded

    def _start(self, batch: Sequence[Notification], encoded: list[Any]) -> None:
        number = next(self._numbers)
        self._in_flight |= {notification.key: number for notification in batch}
        message = {"title": self._scheduler.plan.title, "notifications": encoded}
        handle = workflow.start_activity(
            wire.ACTIVITY_NOTIFY,
            RawValue(json_payload(pydantic_core.to_json(message))),
            activity_id=f"{wire.ID_NOTIFY} {number}",
            task_queue=self._run.task_queue,
            start_to_close_timeout=INTERNAL_ATTEMPT_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=limits.INTERNAL_HEARTBEAT_S),
            schedule_to_close_timeout=timedelta(seconds=limits.NOTIFICATION_RETRY_S),
            retry_policy=UNLIMITED_ATTEMPTS,
            summary=limits.summary_of(f"notifying the webhook: {description_of(encoded)}"),
            result_type=RawValue,
        )
        handle.add_done_callback(partial(self._end, batch))

    def _end(self, batch: Sequence[Notification], handle: "workflow.ActivityHandle[RawValue]") -> None:
        if handle.cancelled():
            # The handle is cancelled only when the worker evicts the run from its cache.
            return
        keys = {notification.key for notification in batch}
        notifications = self._scheduler.features.feedback.requests.notifications
        notifications[:] = [notification for notification in notifications if notification.key not in keys]
        for key in keys:
            del self._in_flight[key]
        if (error := handle.exception()) is not None:
            self._add_note(NOTE_CODE, failure_note(error))
        self.send(wake=self._wake)
        self._wake()
