"""Admit calls under limits that apply across all runs, before the calls have any effect.

A limit has a subject: a tool, model, owner or template. If the service of a subject asks to wait, a hold stops all
calls of the subject.

A worker knows all limits from one cached list, so calls without a limit cost no request. A call waits in its activity
slot if it may start within a second, or if it is in the queue for a lease. Any other call is deferred
(`dagwright.activities.deferral`), so the server keeps the call without a slot.

Each limit is a workflow. If the workflow does not respond, the calls of the limit are deferred: no call starts without
an answer. A call that misses its start time requests a new start time, because late calls together would exceed the
rate. This module must not import workflows.
"""

import asyncio
import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

import structlog
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.errors import CallDeferred
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.limiter import UNREACHABLE_DELAY, Limiter
from dagwright.activities.service_waits import RequestedWait
from dagwright.core.boundary.wire import ERROR_RATE_LIMITED
from dagwright.core.model.call_limits import CallLimit, Subject
from dagwright.core.model.states import Usage
from dagwright.features.call_limits.hold import MAX_HOLD_S, RECENT_S, WAIT_REQUESTED_PHRASE
from dagwright.features.call_limits.limit_state import LATE_S, LimitAnswer, RequestKind
from dagwright.protocol.call_limit_messages import CallRequest, LimitSettings
from dagwright.server.call_limits import LimitUnreachable, declare_limit, hold_calls, list_limits

FRESH_S = 2.0
"""Age up to which the list of limits is used without loading a new list."""
STALE_S = 10.0
"""Age up to which the list of limits is still used while a new list is loaded."""
SHORT_WAIT_S = 1.0
"""Time after which a call that waits in its slot reports the wait. Also the shortest delay of a deferred call."""
_LEASE_WAIT_S = 10.0
"""Longest time that a call waits in its slot for a lease."""
_MAX_WAIT_IN_SLOT_S = 60.0
"""Longest wait of a tool's model call in the slot of the tool."""
_LEASE_SHARE_OF_TIMEOUT, _START_SHARE_OF_TIMEOUT = 0.1, 0.5
"""Shares of an attempt's timeout: how long the attempt may wait in its slot for a lease, and for its start time."""
MAX_HELD_SUBJECTS = 100
"""Maximum number of subjects whose calls one worker holds at a time. Each hold needs a workflow, and a plan may call
many hosts."""
_SAME_HOLD_S = 0.5
"""Largest difference between the ends of two holds that count as one hold. A service may ask all calls in flight
to wait; these calls must not create a hold each."""
_DEFERRING_LIMITS, _LEADS = "waited", "leads"
"""Fields of the state of a deferred attempt. The first field lists the limits that have deferred the call. The second
field contains the lead of the next request to each limit: the minimum seconds until the start."""
_REQUEST_ORDER = ("owner", "template", "tool", "model")
"""Order in which a call sends requests to its limits. So a call that waits for its tool's limit may already have a
lease of its owner's limit. A deferred call first sends a request to the limit that deferred the call, so that no starts
of the other limits are used up.
"""

_LOG = structlog.stdlib.get_logger("dagwright.activities.call_limits")


class CallLimits:
    """The limits that a worker knows. Use this object on one event loop only.

    Args:
        client: client of the worker.
        declared_limits: limits that the worker declares.
        task_queue: queue of the workflows.
    """

    def __init__(
        self, client: Client, declared_limits: Mapping[Subject, CallLimit] = MappingProxyType({}), *, task_queue: str
    ) -> None:
        self._client = client
        self._declared_limits = declared_limits
        self._task_queue = task_queue
        self._are_limits_declared = not declared_limits
        """Whether the running limit workflows have the limits that this worker declares."""
        self._limits: Mapping[Subject, LimitSettings] | None = None
        self._limits_loaded_at = 0.0
        self._load_task: asyncio.Task[None] | None = None
        self._limiters: dict[Subject, Limiter] = {}
        self._hold_ends: dict[Subject, float] = {}
        """Subject whose service asked this worker to wait -> end of the hold on the monotonic clock."""

    async def limiters(self, subjects: Collection[Subject]) -> Sequence[Limiter]:
        """Return the limits of a call, in the order in which the call sends requests to them.

        Raises:
            CallDeferred: the limits are unknown, because the server does not respond.
        """
        limits = await self._current_limits()
        if self._hold_ends:
            self._drop_ended_holds()
            # A subject with a hold may have no limit.
            limits = {subject: LimitSettings(subject) for subject in self._hold_ends} | dict(limits)
        if not limits:
            return ()
        limited_subjects = sorted(
            limits.keys() & set(subjects), key=lambda subject: (_REQUEST_ORDER.index(subject.kind), subject)
        )
        return [self._limiter(limits[subject]) for subject in limited_subjects]

    async def admit(
        self,
        subjects: Collection[Subject],
        info: activity.Info,
        heartbeats: Heartbeats,
        *,
        kind: RequestKind = "call",
    ) -> "Admission":
        """Wait until a call may start, and return its leases.

        Args:
            info: information about the call.
            heartbeats: heartbeats of its attempt.
            kind: `model_call` for the activity that only calls a model.

        Raises:
            CallDeferred: the call must not start now.
        """
        limiters = await self.limiters(subjects)
        return (
            UNLIMITED_ADMISSION
            if not limiters
            else await _AdmissionRequest(limiters, info, heartbeats, kind=kind).admit()
        )

    async def admit_model_call(
        self, subjects: Collection[Subject], model_call_id: str, heartbeats: Heartbeats
    ) -> "Admission":
        """Wait in the slot until a model call of a tool or agent may start, and return its leases.

        The tool or agent is already running, so its attempt is deferred only if the wait is long.

        Args:
            model_call_id: ID of the model call, unique among the calls of its limits.
            heartbeats: heartbeats of the attempt.

        Raises:
            CallDeferred: the wait is long, or a limit does not respond.
        """
        admission = Admission()
        try:
            for limiter in await self.limiters(subjects):
                is_model = limiter.settings.subject.kind == "model"
                if not is_model and not limiter.counts_usage:
                    # The call of the tool or agent has been admitted by the limits of its owner and template.
                    continue
                await _wait_in_slot(limiter, model_call_id, heartbeats, kind="model_call" if is_model else "tokens")
                admission.add(limiter, model_call_id, has_lease=is_model and limiter.has_leases)
        except BaseException:
            admission.release()
            raise
        admission.keep_leases()
        return admission

    async def hold(self, subject: Subject, wait: RequestedWait) -> None:
        """Hold the calls of a subject on all workers; if the server does not respond, only on this worker."""
        self._drop_ended_holds()
        hold_s, now = min(wait.delay.total_seconds(), MAX_HOLD_S), time.monotonic()
        if hold_s <= 0 or self._hold_ends.get(subject, 0.0) >= now + hold_s - _SAME_HOLD_S:
            return
        if subject not in self._hold_ends and len(self._hold_ends) >= MAX_HELD_SUBJECTS:
            _LOG.warning("too many services ask to wait at once; only the call itself waits", subject=str(subject))
            return
        # Apply the hold to the calls of this worker at once.
        self._hold_ends[subject] = now + hold_s
        try:
            await hold_calls(self._client, subject, hold_s=hold_s, reason=wait.service, task_queue=self._task_queue)
        except (RPCError, LimitUnreachable) as error:
            _LOG.warning("the calls of other workers could not be held", subject=str(subject), error=str(error))

    def _drop_ended_holds(self) -> None:
        # For `RECENT_S` after its end, a hold still spreads the starts of the calls that come back.
        earliest_end = time.monotonic() - RECENT_S
        self._hold_ends = {subject: end for subject, end in self._hold_ends.items() if end > earliest_end}

    def _limiter(self, settings: LimitSettings) -> Limiter:
        limiter = self._limiters.get(settings.subject)
        if limiter is None:
            declared_limit = self._declared_limits.get(settings.subject)
            limiter = Limiter(self._client, settings, declared_limit=declared_limit, task_queue=self._task_queue)
            self._limiters[settings.subject] = limiter
        limiter.settings = settings
        return limiter

    async def _current_limits(self) -> Mapping[Subject, LimitSettings]:
        age_s = time.monotonic() - self._limits_loaded_at
        if self._limits is None or age_s > FRESH_S:
            if self._load_task is None:
                self._load_task = asyncio.create_task(self._load_limits())
            if self._limits is None or age_s > STALE_S:
                await asyncio.shield(self._load_task)
        if self._limits is None:
            raise CallDeferred(
                "the limits of calls are unknown, because the server does not respond", UNREACHABLE_DELAY
            )
        return self._limits

    async def _load_limits(self) -> None:
        try:
            running_limits = await self._running_limits()
            # A limit that does not run yet is started with its first call.
            declared_limits = {
                subject: LimitSettings(subject, limit) for subject, limit in self._declared_limits.items()
            }
            self._limits = declared_limits | running_limits
            if not self._are_limits_declared:
                await self._declare(running_limits)
                self._are_limits_declared = True
        except (RPCError, LimitUnreachable) as error:
            # The last list stays valid: limits change seldom.
            _LOG.warning("the limits of calls could not be listed", error=str(error))
        self._limits_loaded_at, self._load_task = time.monotonic(), None

    async def _running_limits(self) -> dict[Subject, LimitSettings]:
        try:
            return await list_limits(self._client)
        except RPCError as error:
            # The time-skipping test server lists no workflows.
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                return {}
            raise

    async def _declare(self, running_limits: Mapping[Subject, LimitSettings]) -> None:
        """Change the declared limits of running limit workflows to the limits that this worker declares."""
        for subject, settings in running_limits.items():
            declared = self._declared_limits.get(subject)
            if declared is not None and settings.declared_limit != declared:
                if settings.declared_limit is not None:
                    earlier = str(settings.declared_limit)
                    _LOG.warning(
                        "changing the limit that another worker declared; declare the same limit in all workers",
                        **{"subject": str(subject), "earlier": earlier, "limit": str(declared)},
                    )
                await declare_limit(self._client, subject, declared, task_queue=self._task_queue)


@dataclass(slots=True)
class Admission:
    """The leases of an admitted call, and the limits that count its usage."""

    leases: list[tuple[Limiter, str]] = field(default_factory=list)
    usage_limiters: list[Limiter] = field(default_factory=list)

    def add(self, limiter: Limiter, call_id: str, *, has_lease: bool) -> None:
        """Add a limit that admits the call."""
        if has_lease:
            self.leases.append((limiter, call_id))
        if limiter.counts_usage:
            self.usage_limiters.append(limiter)

    def keep_leases(self) -> None:
        """Renew the leases until they are released."""
        for limiter, call_id in self.leases:
            limiter.keep_lease(call_id)

    def add_usage(self, usage: Usage) -> None:
        """Report the usage of a model call."""
        for limiter in self.usage_limiters:
            limiter.add_usage(usage)

    def release(self) -> None:
        """End the leases; idempotent."""
        leases, self.leases = self.leases, []
        for limiter, call_id in leases:
            limiter.release(call_id)


UNLIMITED_ADMISSION = Admission()


class _AdmissionRequest:
    """Requests of one attempt to its limits."""

    def __init__(
        self, limiters: Sequence[Limiter], info: activity.Info, heartbeats: Heartbeats, *, kind: RequestKind
    ) -> None:
        state = heartbeats.deferred_state
        deferring_names = state.get(_DEFERRING_LIMITS) if isinstance(state, Mapping) else None
        self._deferring_limits: list[str] = (
            [str(subject) for subject in deferring_names] if isinstance(deferring_names, list) else []
        )
        """Limits that have deferred the call, the latest first."""
        leads = state.get(_LEADS) if isinstance(state, Mapping) else None
        self._leads: dict[str, float] = dict(leads) if isinstance(leads, Mapping) else {}
        """Limit -> lead of the next request: minimum seconds until the start. A call whose answers are late needs a
        lead, or it would miss every start. The next attempt of a deferred call keeps the leads."""
        latest_deferring_limit = self._deferring_limits[0] if self._deferring_limits else None
        self._limiters = sorted(limiters, key=lambda limiter: _subject_text(limiter) != latest_deferring_limit)
        self._kind: RequestKind = kind
        self._call_id = limited_call_id(info)
        self._heartbeats = heartbeats
        timeout = info.start_to_close_timeout
        self._timeout_s = float("inf") if timeout is None else timeout.total_seconds()

    async def admit(self) -> Admission:
        """Wait until the call may start.

        Raises:
            CallDeferred: the call must not start now.
        """
        admission = Admission()
        starts: dict[Limiter, float] = {}
        try:
            while late_limiters := [limiter for limiter in self._limiters if _late_s(limiter, starts) > LATE_S]:
                for limiter in late_limiters:
                    is_first_request = limiter not in starts
                    if not is_first_request:
                        # The leads add up: with a lead of only the latest delay, the next start would be late again.
                        self._leads[_subject_text(limiter)] = self._lead_s(limiter) + _late_s(limiter, starts)
                    starts[limiter] = await self._request_start_time(limiter)
                    if is_first_request:
                        admission.add(limiter, self._call_id, has_lease=limiter.has_leases)
                await asyncio.sleep(max(starts.values()) - time.monotonic())
        except BaseException:
            admission.release()
            raise
        self._heartbeats.report_limit(None)
        admission.keep_leases()
        return admission

    def _lead_s(self, limiter: Limiter) -> float:
        return self._leads.get(_subject_text(limiter), 0.0)

    async def _request_start_time(self, limiter: Limiter) -> float:
        """Request the start of the call, and return the start time on the monotonic clock.

        Raises:
            CallDeferred: the call must request again later.
        """
        subject = _subject_text(limiter)
        request = CallRequest(subject in self._deferring_limits, self._kind, self._lead_s(limiter))
        ends_at = time.monotonic() + min(_LEASE_WAIT_S, self._timeout_s * _LEASE_SHARE_OF_TIMEOUT)
        while True:
            answer = await _request_start(limiter, self._call_id, request, self._heartbeats)
            if answer.decision == "start" and answer.delay_s <= self._timeout_s * _START_SHARE_OF_TIMEOUT:
                return time.monotonic() + answer.delay_s
            remaining_s = ends_at - time.monotonic()
            if answer.decision != "queue" or remaining_s <= 0:
                reason, delay = _reason(limiter, answer), timedelta(seconds=max(SHORT_WAIT_S, answer.delay_s))
                deferring_limits = [subject, *(limit for limit in self._deferring_limits if limit != subject)]
                raise CallDeferred(
                    reason,
                    delay,
                    code=ERROR_RATE_LIMITED,
                    state={_DEFERRING_LIMITS: deferring_limits, _LEADS: self._leads},
                )
            self._heartbeats.report_limit(_reason(limiter, answer))
            await limiter.wait_for_release(min(answer.delay_s, remaining_s))


def _subject_text(limiter: Limiter) -> str:
    return str(limiter.settings.subject)


def _late_s(limiter: Limiter, starts: Mapping[Limiter, float]) -> float:
    """Return how many seconds a call is late for its start at a limit; infinite if the call has no start yet."""
    if limiter not in starts:
        return float("inf")
    return time.monotonic() - starts[limiter] if limiter.has_rate else 0.0


async def _request_start(limiter: Limiter, call_id: str, request: CallRequest, heartbeats: Heartbeats) -> LimitAnswer:
    """Request the start of a call from a limit; if the answer takes long, the heartbeats report the wait.

    Raises:
        CallDeferred: the limit does not respond.
    """
    timer = asyncio.get_running_loop().call_later(SHORT_WAIT_S, heartbeats.report_limit, limiter.unreachable_reason)
    try:
        return await limiter.request(call_id, request)
    finally:
        timer.cancel()


async def _wait_in_slot(limiter: Limiter, call_id: str, heartbeats: Heartbeats, *, kind: RequestKind) -> None:
    """Wait until a limit lets a call start.

    Raises:
        CallDeferred: the wait is long, for example until the next daily budget, or the limit does not respond.
    """
    has_waited, lead_s = False, 0.0
    while True:
        answer = await _request_start(limiter, call_id, CallRequest(has_waited, kind, lead_s), heartbeats)
        if answer.decision == "start":
            start_at = time.monotonic() + answer.delay_s
            await asyncio.sleep(answer.delay_s)
            late_s = time.monotonic() - start_at
            if late_s <= LATE_S or not limiter.has_rate:
                heartbeats.report_limit(None)
                return
            lead_s += late_s
            continue
        heartbeats.report_limit(_reason(limiter, answer))
        if answer.decision == "defer" and answer.delay_s > _MAX_WAIT_IN_SLOT_S:
            raise CallDeferred(_reason(limiter, answer), timedelta(seconds=answer.delay_s), code=ERROR_RATE_LIMITED)
        if answer.decision == "defer":
            # A request before the delay is over would book another start.
            has_waited = True
            await asyncio.sleep(answer.delay_s)
        else:
            await limiter.wait_for_release(min(answer.delay_s, _LEASE_WAIT_S))


def limited_call_id(info: activity.Info) -> str:
    """Return the ID of a call in requests to its limits; all attempts of the call have the same ID."""
    name = f"{info.workflow_run_id}/{info.activity_id}"
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def _reason(limiter: Limiter, answer: LimitAnswer) -> str:
    """Return why a call waits, such as `rate limit 20/s on http_request, 4 calls ahead`."""
    subject = limiter.settings.subject
    name = subject.name if subject.kind == "tool" else f"{subject.kind} {subject.name}"
    calls = f", {answer.calls_ahead:,} call{'' if answer.calls_ahead == 1 else 's'} ahead" if answer.calls_ahead else ""
    if answer.reason.startswith(WAIT_REQUESTED_PHRASE):
        return f"{name} {answer.reason}{calls}"
    return f"{answer.reason} on {name}{calls}"
