"""Tells the hook of a run what happens to its requests, beside everything else that the run does.

A notice stays in the book of requests until the hook has taken it or its time is over, so an execution that goes on in
a new one loses none: the new one tells it again, under the same id.
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
from dagwright.core.model.requests import Notification
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.documents import encoded_size
from dagwright.protocol.notifications import NOTE, description_of, dropped_note, failure_note, notification_to_json
from dagwright.workflows.calls import OWN_ATTEMPT, RunScope, json_payload
from dagwright.workflows.retries import UNLIMITED


class Notifier:
    """Tells what happens to the requests of one run, if it has a hook.

    Args:
        run: what the ids of the notices are made of, and whether there is a hook.
        note: takes code and message of what is worth saying.
    """

    def __init__(self, scheduler: RunScheduler, run: RunScope, *, note: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._run = run
        self._note = note
        self._in_flight: dict[tuple[str, str, float], int] = {}
        """Key of a notice that is being told -> number of its activity."""
        self._numbers = count(1)
        self._wake: Callable[[], None] = lambda: None

    def send(self, *, wake: Callable[[], None]) -> None:
        """Begins to tell what has happened; without a hook it is forgotten.

        Args:
            wake: called when something has been told.
        """
        requests = self._scheduler.features.feedback.requests
        if not self._run.notifies:
            requests.notifications.clear()
        if not requests.notifications:
            return
        self._wake = wake
        self._forget_oldest()
        waiting = [notice for notice in requests.notifications if notice.key not in self._in_flight]
        while waiting and len(set(self._in_flight.values())) < limits.CONCURRENT_NOTIFICATIONS:
            batch, encoded = self._batch(waiting)
            self._start(batch, encoded)
            waiting = waiting[len(batch) :]

    async def finish(self) -> None:
        """Waits until everything has been told, but not for long; what has not been is noted."""
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
            why = f"the hook did not take them within {limits.NOTIFY_GRACE_S:g} s of the end of the run"
            self._note(NOTE, dropped_note(len(notifications), why=why))

    def _forget_oldest(self) -> None:
        notifications = self._scheduler.features.feedback.requests.notifications
        surplus = len(notifications) - limits.NOTIFICATIONS_QUEUED
        if surplus > 0:
            del notifications[:surplus]
            self._note(NOTE, dropped_note(surplus, why="the hook does not take them as fast as they come"))

    def _batch(self, notifications: Sequence[Notification]) -> tuple[Sequence[Notification], list[Any]]:
        """Returns the first of the notices, as many as are told together, and what they are to the activity."""
        workflow_id, closed = workflow.info().workflow_id, self._scheduler.features.feedback.requests.closed
        encoded: list[Any] = []
        size = 0
        for notice in notifications[: limits.NOTIFICATIONS_PER_ACTIVITY]:
            told_so = notification_to_json(
                notice,
                closed.get(notice.request.id),
                workflow_id=workflow_id,
                identity=[self._run.scope, self._run.path],
            )
            size += encoded_size(told_so)
            if encoded and size > limits.NOTIFICATIONS_BYTES:
                break
            encoded.append(told_so)
        return notifications[: len(encoded)], encoded

    def _start(self, batch: Sequence[Notification], encoded: list[Any]) -> None:
        number = next(self._numbers)
        self._in_flight |= {notice.key: number for notice in batch}
        message = {"title": self._scheduler.plan.title, "notifications": encoded}
        handle = workflow.start_activity(
            wire.ACTIVITY_NOTIFY,
            RawValue(json_payload(pydantic_core.to_json(message))),
            activity_id=f"{wire.ID_NOTIFY} {number}",
            task_queue=self._run.task_queue,
            start_to_close_timeout=OWN_ATTEMPT,
            heartbeat_timeout=timedelta(seconds=limits.INTERNAL_HEARTBEAT_S),
            schedule_to_close_timeout=timedelta(seconds=limits.NOTIFY_FOR_S),
            retry_policy=UNLIMITED,
            summary=limits.summary_of(f"telling the hook: {description_of(encoded)}"),
            result_type=RawValue,
        )
        handle.add_done_callback(partial(self._end, batch))

    def _end(self, batch: Sequence[Notification], handle: "workflow.ActivityHandle[RawValue]") -> None:
        if handle.cancelled():
            # Nobody else does that: the worker puts the run out of its memory.
            return
        keys = {notice.key for notice in batch}
        notifications = self._scheduler.features.feedback.requests.notifications
        notifications[:] = [notice for notice in notifications if notice.key not in keys]
        for key in keys:
            del self._in_flight[key]
        if (error := handle.exception()) is not None:
            self._note(NOTE, failure_note(error))
        self.send(wake=self._wake)
        self._wake()
