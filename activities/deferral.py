"""Defer a call: end an attempt that must not continue now, and do not count the attempt.

The server keeps the call until later, without a slot. Temporal counts every attempt of an activity. For a deferred
attempt, the worker raises the maximum attempts of the pending activity by one. A heartbeat reports the number of
deferred attempts to the next attempt, which subtracts this number from its attempt number (`Heartbeats.info`). This
module must not import workflows.
"""

import asyncio
from datetime import timedelta

import structlog
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio import activity
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import UpdateActivityOptionsRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.call_starts import TRANSIENT_STATUSES
from dagwright.activities.errors import CallDeferred
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.service_waits import wait_state

_RPC_TIMEOUT = timedelta(seconds=10)
_RETRY_PAUSE_S = 0.5
_LOG = structlog.stdlib.get_logger("dagwright.activities.deferral")


class Deferrals:
    """Record the deferred attempts of a worker's calls.

    Args:
        client: client of the worker.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def record(self, deferral: CallDeferred, heartbeats: Heartbeats) -> None:
        """Record that the current attempt does not count; the attempt must then fail with the delay of `deferral`.

        If the server rejects the change, the attempt counts.
        """
        state = {**wait_state(heartbeats.deferred_state), **(deferral.state or {})}
        await heartbeats.record_deferral(state or None)
        info = activity.info()
        try:
            # The policy is missing if the activity was started eagerly, with the response to a workflow task.
            policy = info.retry_policy
            max_attempts = policy.maximum_attempts if policy is not None else await self._maximum_attempts(info)
            if max_attempts > 0:
                await self._allow_attempts(info, max_attempts + 1)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                _LOG.warning("the attempt of a deferred call counts", node=info.activity_id, error=str(error))

    async def _maximum_attempts(self, info: activity.Info) -> int:
        """Return the maximum attempts of the pending activity; 0 means unlimited."""
        unchanged_options = ActivityOptions()
        if info.start_to_close_timeout is not None:
            unchanged_options.start_to_close_timeout.FromTimedelta(info.start_to_close_timeout)
        # An update without a change returns all options. Describing the run would return all its pending activities.
        options = await self._update(info, unchanged_options, "start_to_close_timeout")
        return int(options.retry_policy.maximum_attempts)

    async def _allow_attempts(self, info: activity.Info, max_attempts: int) -> None:
        changed_options = ActivityOptions()
        changed_options.retry_policy.maximum_attempts = max_attempts
        await self._update(info, changed_options, "retry_policy.maximum_attempts")

    async def _update(self, info: activity.Info, options: ActivityOptions, path: str) -> ActivityOptions:
        request = UpdateActivityOptionsRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or ""),
            identity=self._client.identity,
            id=info.activity_id,
            activity_options=options,
            update_mask=FieldMask(paths=[path]),
        )
        while True:
            try:
                response = await self._client.workflow_service.update_activity_options(request, timeout=_RPC_TIMEOUT)
                return response.activity_options
            except RPCError as error:
                if error.status not in TRANSIENT_STATUSES:
                    raise
            await asyncio.sleep(_RETRY_PAUSE_S)


def backoff_of_counted_attempts(heartbeats: Heartbeats) -> timedelta | None:
    """Return the retry delay for the number of counted attempts; `None` if the server computes the same delay."""
    policy = activity.info().retry_policy
    if heartbeats.deferral_count == 0 or policy is None:
        return None
    delay_s = policy.initial_interval.total_seconds() * policy.backoff_coefficient ** (heartbeats.info.attempt - 1)
    max_delay = policy.maximum_interval
    return timedelta(seconds=delay_s if max_delay is None else min(delay_s, max_delay.total_seconds()))
