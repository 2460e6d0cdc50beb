"""Detect that the worker of a call has died, without waiting for the heartbeat timeout.

The identity of a worker names its process and machine. Only workers of this machine are checked: the kernel reports
whether the process of a worker is alive.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.core.boundary.limits import activity_id
from dagwright.core.boundary.usage_reports import USAGE_INDEX, started_attempt
from dagwright.core.model.tools import Effects
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.history.pending_activities import PendingCall, decode_pending
from dagwright.interfaces.cli.progress_tree import LOST, LOST_WITHOUT_RETRY
from dagwright.protocol.messages import MessageInvalid, read_message
from dagwright.server.pollers import is_dead_on_this_machine

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

POLL_INTERVAL_S = 2.0
"""Interval between two checks, in seconds; each check is a `describe` request to the server."""

_STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


class LostCalls:
    """Detects the calls of a run whose workers have died."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._checked_at = 0.0
        self._lost_calls: Mapping[str, PendingCall] = {}

    async def mark_lost_calls(self, view: "RunView") -> "RunView":
        """Return the view with its lost calls marked."""
        has_running_call = any(call.state == "started" for call in view.pending_calls.values())
        if has_running_call and time.monotonic() - self._checked_at > POLL_INTERVAL_S:
            self._checked_at = time.monotonic()
            self._lost_calls = await self._find_lost_calls(view)
        pending_calls = {task_id: self._mark_if_lost(task_id, call) for task_id, call in view.pending_calls.items()}
        return replace(view, pending_calls=pending_calls) if self._lost_calls else view

    def _mark_if_lost(self, task_id: str, call: PendingCall) -> PendingCall:
        lost_call = self._lost_calls.get(task_id)
        is_same_attempt = lost_call is not None and (call.state, call.attempt) == ("started", lost_call.attempt)
        return lost_call if lost_call is not None and is_same_attempt else call

    async def _find_lost_calls(self, view: "RunView") -> Mapping[str, PendingCall]:
        handle = self._client.get_workflow_handle(view.run_id, run_id=view.execution_id)
        try:
            description = await handle.describe()
        except RPCError:
            # The code that follows the run reports problems of the server.
            return self._lost_calls
        await decode_pending(description.raw_description, self._client)
        activities = {activity.activity_id: activity for activity in description.raw_description.pending_activities}
        state = view.scheduler.state if view.scheduler is not None else None
        activity_ids = {
            task_id: activity_id(task_id if state is None else last_call_id(state, task_id))
            for task_id in view.pending_calls
        }
        return {
            task_id: _lost_call(activity, view)
            for task_id, id_of_activity in activity_ids.items()
            if (activity := activities.get(id_of_activity)) is not None and _is_lost(activity)
        }


def _is_lost(activity: PendingActivityInfo) -> bool:
    return activity.state == _STARTED and is_dead_on_this_machine(activity.last_worker_identity)


def _lost_call(activity: PendingActivityInfo, view: "RunView") -> PendingCall:
    tools = view.scheduler.plan.tools if view.scheduler else {}
    tool = tools.get(activity.activity_type.name)
    is_last_attempt = activity.maximum_attempts != 0 and activity.attempt >= activity.maximum_attempts
    is_write = tool is not None and tool.effects is Effects.WRITE
    is_final = is_last_attempt or (tool is not None and is_write and (tool.is_foreign or _has_called_tool(activity)))
    return PendingCall(
        attempt=activity.attempt,
        state=LOST_WITHOUT_RETRY if is_final else LOST,
        next_attempt_at=_times_out_at(activity),
    )


def _has_called_tool(activity: PendingActivityInfo) -> bool:
    """Return whether the last heartbeat shows that an attempt called its tool; true if the heartbeat is unreadable."""
    details = activity.heartbeat_details.payloads
    with suppress(MessageInvalid):
        return started_attempt([read_message(detail) for detail in details[: USAGE_INDEX + 1]]) is not None
    return True


def _times_out_at(activity: PendingActivityInfo) -> float | None:
    """Return when the server times the attempt out, in seconds since the epoch; `None` without a heartbeat timeout."""
    timeout_s = activity.activity_options.heartbeat_timeout.ToNanoseconds() / 1e9
    if not timeout_s:
        return None
    last_reported_at = (
        max(activity.last_heartbeat_time.ToNanoseconds(), activity.last_started_time.ToNanoseconds()) / 1e9
    )
    return last_reported_at + timeout_s
