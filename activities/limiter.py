"""A worker's client of one limit of calls across all runs.

One message contains the requests of all calls of the worker, and the releases and renewals of their leases. This module
must not import workflows.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.errors import CallDeferred
from dagwright.core.boundary.wire import ERROR_RATE_LIMITED
from dagwright.core.model.call_limits import CallLimit
from dagwright.core.model.states import NO_USAGE, Usage
from dagwright.features.call_limits.limit_state import LEASE_S, LimitAnswer
from dagwright.protocol.call_limit_messages import CallRequest, LimitMessage, LimitSettings
from dagwright.server.call_limits import LimitMessageRejected, LimitUnreachable, declare_limit, send_limit_message

UNREACHABLE_DELAY = timedelta(seconds=5)
_LOG = structlog.stdlib.get_logger("dagwright.activities.limiter")


class Limiter:
    """A worker's client of one limit.

    Args:
        settings: newest known settings.
        declared_limit: limit that this worker declares, if any. If the workflow of this limit does not run, `Limiter`
            starts the workflow.
        task_queue: queue of the workflows.
    """

    def __init__(
        self, client: Client, settings: LimitSettings, *, declared_limit: CallLimit | None, task_queue: str
    ) -> None:
        self.settings = settings
        self._client = client
        self._declared_limit = declared_limit
        self._task_queue = task_queue
        self._requests: dict[str, tuple[CallRequest, asyncio.Future[LimitAnswer]]] = {}
        self._releases: list[str] = []
        self._tokens: list[int] = []
        self._usage = NO_USAGE
        self._leases: dict[str, None] = {}
        """Calls of this worker that run with a lease."""
        self._are_renewals_due = False
        self._send_task: asyncio.Task[None] | None = None
        self._renewal_timer: asyncio.TimerHandle | None = None
        self._release_event = asyncio.Event()
        self._clock_offset_s: float | None = None
        """Clock of the limit workflow minus the monotonic clock of the worker."""
        self._is_unreachable = False

    @property
    def counts_usage(self) -> bool:
        """Whether the limit has tokens per minute or a daily budget."""
        limit = self.settings.limit
        return limit is not None and (limit.tokens_per_minute is not None or limit.daily_budget is not None)

    @property
    def has_rate(self) -> bool:
        """Whether the limit assigns a start time to each call."""
        return self.settings.limit is not None and self.settings.limit.rate is not None

    @property
    def has_leases(self) -> bool:
        """Whether calls need a lease."""
        return self.settings.limit is not None and self.settings.limit.concurrency is not None

    async def request(self, call_id: str, request: CallRequest) -> LimitAnswer:
        """Request the start of a call and return the answer of the limit.

        The delay in the answer counts from now; the delay is negative if the start time has passed.

        Raises:
            CallDeferred: the limit does not respond.
        """
        if self._is_unreachable and self._send_task is not None:
            # One message checks whether the limit responds again; other calls do not wait in their slots for the reply.
            raise self._deferral()
        future: asyncio.Future[LimitAnswer] = asyncio.get_running_loop().create_future()
        self._requests[call_id] = request, future
        self._send_soon()
        try:
            return await future
        except (LimitUnreachable, RPCError) as error:
            if self.settings.limit is None:
                # Without a configured limit, there is only a hold, which spares a busy service: the call may start.
                return LimitAnswer("start")
            raise self._deferral(str(error) if isinstance(error, LimitUnreachable) else None) from None

    @property
    def unreachable_reason(self) -> str:
        """Reason shown for a call whose limit does not respond."""
        return f"the limit of {self.settings.subject} does not respond; start a worker that serves workflows"

    def _deferral(self, reason: str | None = None) -> CallDeferred:
        return CallDeferred(reason or self.unreachable_reason, UNREACHABLE_DELAY, code=ERROR_RATE_LIMITED)

    async def wait_for_release(self, wait_s: float) -> None:
        """Wait until this worker releases a lease, for at most `wait_s`."""
        self._release_event.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._release_event.wait()
        except TimeoutError:
            return

    def keep_lease(self, call_id: str) -> None:
        """Renew the lease of a call until `release` ends the lease."""
        self._leases[call_id] = None
        if self._renewal_timer is None:
            self._renewal_timer = asyncio.get_running_loop().call_later(LEASE_S / 3, self._renew)

    def release(self, call_id: str) -> None:
        """End the lease of a call."""
        self._leases.pop(call_id, None)
        self._releases.append(call_id)
        self._release_event.set()
        self._send_soon()

    def add_usage(self, usage: Usage) -> None:
        """Report the usage of a model call."""
        self._tokens.append(usage.tokens)
        self._usage += usage
        self._send_soon()

    def _renew(self) -> None:
        self._renewal_timer = None
        if self._leases:
            self._are_renewals_due = True
            self._send_soon()
            self._renewal_timer = asyncio.get_running_loop().call_later(LEASE_S / 3, self._renew)

    def _send_soon(self) -> None:
        if self._send_task is None:
            self._send_task = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            # A release wakes other calls. Let these calls add their requests to the same message.
            await asyncio.sleep(0)
            while not (message := self._next_message()).is_empty:
                requests, self._requests = self._requests, {}
                self._releases, self._tokens, self._are_renewals_due = [], [], False
                self._usage = NO_USAGE
                if not await self._send(message, requests):
                    return
        finally:
            self._send_task = None

    def _next_message(self) -> LimitMessage:
        renewals = [*self._leases] if self._are_renewals_due else []
        requests = {call_id: request for call_id, (request, _) in self._requests.items()}
        return LimitMessage(requests, self._releases, renewals, self._tokens, self._usage)

    async def _exchange(self, message: LimitMessage) -> dict[str, LimitAnswer]:
        """Send a message and return the answers, with delays that count from now; start a declared limit if needed."""
        subject = self.settings.subject
        try:
            return await self._exchange_once(message)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or self._declared_limit is None:
                raise
        await declare_limit(self._client, subject, self._declared_limit, task_queue=self._task_queue)
        return await self._exchange_once(message)

    async def _exchange_once(self, message: LimitMessage) -> dict[str, LimitAnswer]:
        sent_at = time.monotonic()
        reply = await send_limit_message(self._client, self.settings.subject, message)
        received_at = time.monotonic()
        # The limit replied between these two times, so the two times bound the clock offset.
        min_offset_s, max_offset_s = reply.now - received_at, reply.now - sent_at
        self._clock_offset_s = (
            min_offset_s if self._clock_offset_s is None else min(max(self._clock_offset_s, min_offset_s), max_offset_s)
        )
        passed_s = received_at + self._clock_offset_s - reply.now
        return {
            call_id: replace(answer, delay_s=answer.delay_s - passed_s) for call_id, answer in reply.answers.items()
        }

    async def _send(
        self, message: LimitMessage, requests: Mapping[str, tuple[CallRequest, asyncio.Future[LimitAnswer]]]
    ) -> bool:
        """Send a message; return whether the limit has responded."""
        answers: dict[str, LimitAnswer] = {}
        try:
            answers = await self._exchange(message)
            self._is_unreachable = False
        except LimitMessageRejected as error:
            # The releases and the usage of the message are lost: the limit would reject them again.
            _LOG.warning("a limit rejects a message", error=str(error))
            _fail(requests, error)
            return True
        except (LimitUnreachable, RPCError) as error:
            if not isinstance(error, RPCError) or error.status is not RPCStatusCode.NOT_FOUND:
                self._is_unreachable = True
                # Also fail the requests of the next message: nothing would send that message.
                requests, self._requests = {**requests, **self._requests}, {}
                _fail(requests, error)
                # Send the releases and the usage again with the next message. If a release is lost, its lease expires.
                self._releases += message.releases
                self._tokens += message.tokens
                self._usage += message.usage
                return False
        for call_id, (_, future) in requests.items():
            # A limit that does not exist any more admits all calls.
            answer = answers.get(call_id, LimitAnswer("start"))
            if not future.done():
                future.set_result(answer)
            elif answer.decision != "defer":
                # The call was cancelled while it waited, so it does not use its lease or its place in the queue.
                self._releases.append(call_id)
        return True


def _fail(requests: Mapping[str, tuple[CallRequest, asyncio.Future[LimitAnswer]]], error: Exception) -> None:
    for _, future in requests.values():
        if not future.done():
            future.set_exception(error)
