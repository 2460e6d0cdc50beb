"""Admit calls by the limits across all runs, before they have any effect.

A worker knows all limits from one cached list, so calls without a limit cost no request. The requests, releases and
renewals of a worker for one limit share a message (`dagwright.server.call_limits.exchange`). A call that may start
within a second waits in its slot; any other call is deferred (`dagwright.activities.deferral`), so the server keeps it
without a slot. If a limit does not respond, its calls are deferred: no call starts without an answer. This module must
not import workflows.
"""

import asyncio
import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import structlog
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.activities.errors import CallDeferred
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.service_waits import RequestedWait
from dagwright.core.boundary.wire import ERROR_RATE_LIMITED
from dagwright.core.model.call_limits import CallLimit, Subject
from dagwright.core.model.states import NO_USAGE, Usage
from dagwright.features.call_limits.hold import LONGEST_HOLD_S, RECENT_S, WAS_ASKED
from dagwright.features.call_limits.limit_state import LEASE_S, LimitAnswer, RequestKind
from dagwright.protocol.call_limit_messages import CallRequest, LimitMessage, LimitSettings
from dagwright.server.call_limits import LimitUnreachable, declare_limit, exchange, hold_calls, list_limits

FRESH_S = 2.0
"""Seconds for which a worker uses its list of the limits."""
STALE_S = 10.0
"""Seconds for which it uses the list while another one is on its way."""
SHORT_WAIT_S = 1.0
"""Longest wait for a start in a slot; the server keeps a deferred call for at least this time."""
_LINE_WAIT_S = 10.0
"""Longest wait for a lease in a slot."""
_LONGEST_WAIT_IN_PLACE_S = 60.0
"""Longest wait of a model call of a tool in the slot of the tool."""
_SHARE_OF_TIMEOUT = 0.1
"""Share of the timeout of an attempt that it may wait in a slot."""
LATE_S = 5.0
"""Time after a booked start in which it is valid; later, the call requests another one."""
MAX_HELD_SUBJECTS = 100
"""Most subjects that one worker holds at a time: each is a workflow, and a plan may call any number of hosts."""
_SAME_HOLD_S = 0.5
"""Difference of two ends that belong to the same hold: calls in flight get the same answer."""
_UNREACHABLE_DELAY = timedelta(seconds=5)
_KINDS = ("owner", "template", "tool", "model")
"""Order in which a call requests its limits: a call that waits for its tool may hold a lease of its owner."""

_LOG = structlog.stdlib.get_logger("dagwright.activities.call_limits")


class CallLimits:
    """The limits that a worker knows; belongs to one event loop.

    Args:
        client: of the worker.
        declared: limits that the worker declares.
        task_queue: queue of the workflows.
    """

    def __init__(
        self, client: Client, declared: Mapping[Subject, CallLimit] = MappingProxyType({}), *, task_queue: str
    ) -> None:
        self._client = client
        self._declared = declared
        self._task_queue = task_queue
        self._are_declared = not declared
        """Whether the running limits have the declarations of this worker."""
        self._known: Mapping[Subject, LimitSettings] | None = None
        self._known_at = 0.0
        self._listing: asyncio.Task[None] | None = None
        self._limiters: dict[Subject, Limiter] = {}
        self._held: dict[Subject, float] = {}
        """Subjects whose service asked this worker to wait -> end of the hold on the monotonic clock."""

    async def limiters(self, subjects: Collection[Subject]) -> Sequence["Limiter"]:
        """Return the limits of a call, in the order in which it requests them.

        Raises:
            CallDeferred: the server has not responded yet.
        """
        known = await self._limits()
        if self._held:
            self._forget_ended_holds()
            known = {subject: LimitSettings(subject) for subject in self._held} | dict(known)
        if not known:
            return ()
        limited = sorted(known.keys() & set(subjects), key=lambda subject: (_KINDS.index(subject.kind), subject))
        return [self._limiter(known[subject]) for subject in limited]

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
            info: of the call.
            heartbeats: of its attempt.
            kind: `model_call` for the activity that only calls a model.

        Raises:
            CallDeferred: the call must not start now.
        """
        limiters = await self.limiters(subjects)
        return NO_LEASES if not limiters else await _AdmissionRequest(limiters, info, heartbeats, kind=kind).admit()

    async def admit_model_call(self, subjects: Collection[Subject], call: str, heartbeats: Heartbeats) -> "Admission":
        """Wait in the slot until a model call of a tool or agent may start, and return its leases.

        The attempt has started already, so it is deferred only if the wait is long.

        Args:
            call: id of the model call, different for each.
            heartbeats: of the attempt.

        Raises:
            CallDeferred: the wait is long, or a limit does not respond.
        """
        admission = Admission()
        try:
            for limiter in await self.limiters(subjects):
                is_model = limiter.settings.subject.kind == "model"
                if not is_model and not limiter.counts_usage:
                    # The call of the tool has been admitted by the limits of its owner and template.
                    continue
                await _wait_in_place(limiter, call, heartbeats, kind="model_call" if is_model else "tokens")
                admission.add(limiter, call, has_lease=is_model and limiter.has_leases)
        except BaseException:
            admission.release()
            raise
        admission.keep()
        return admission

    async def hold(self, subject: Subject, wait: RequestedWait) -> None:
        """Hold the other calls of a subject on all workers; do nothing if the server does not respond."""
        self._forget_ended_holds()
        hold_s, now = min(wait.delay.total_seconds(), LONGEST_HOLD_S), time.monotonic()
        if hold_s <= 0 or self._held.get(subject, 0.0) >= now + hold_s - _SAME_HOLD_S:
            return
        if subject not in self._held and len(self._held) >= MAX_HELD_SUBJECTS:
            _LOG.warning("too many services ask to wait at once; only the call itself waits", subject=str(subject))
            return
        # The calls of this worker know it at once.
        self._held[subject] = now + hold_s
        try:
            await hold_calls(self._client, subject, hold_s=hold_s, by=wait.by, task_queue=self._task_queue)
        except (RPCError, LimitUnreachable) as error:
            _LOG.warning("the other calls could not be held", subject=str(subject), error=str(error))

    def _forget_ended_holds(self) -> None:
        recent_s = time.monotonic() - RECENT_S
        self._held = {subject: until for subject, until in self._held.items() if until > recent_s}

    def _limiter(self, settings: LimitSettings) -> "Limiter":
        limiter = self._limiters.get(settings.subject)
        if limiter is None:
            declared = self._declared.get(settings.subject)
            limiter = Limiter(self._client, settings, declared=declared, task_queue=self._task_queue)
            self._limiters[settings.subject] = limiter
        limiter.settings = settings
        return limiter

    async def _limits(self) -> Mapping[Subject, LimitSettings]:
        age_s = time.monotonic() - self._known_at
        if self._known is None or age_s > FRESH_S:
            if self._listing is None:
                self._listing = asyncio.create_task(self._list())
            if self._known is None or age_s > STALE_S:
                await asyncio.shield(self._listing)
        if self._known is None:
            raise CallDeferred(
                "the limits of calls are unknown, because the server does not respond", _UNREACHABLE_DELAY
            )
        return self._known

    async def _list(self) -> None:
        try:
            running = await self._running_limits()
            # A limit that does not run yet is started with its first call.
            missing = {subject: LimitSettings(subject, limit) for subject, limit in self._declared.items()}
            self._known = missing | running
            if not self._are_declared:
                await self._declare(running)
                self._are_declared = True
        except (RPCError, LimitUnreachable) as error:
            # The last list stays valid: limits change seldom.
            _LOG.warning("the limits of calls could not be listed", error=str(error))
        self._known_at, self._listing = time.monotonic(), None

    async def _running_limits(self) -> dict[Subject, LimitSettings]:
        try:
            return await list_limits(self._client)
        except RPCError as error:
            # The time-skipping test server lists no workflows.
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                return {}
            raise

    async def _declare(self, running: Mapping[Subject, LimitSettings]) -> None:
        """Change the declared part of running limits to that of this worker."""
        for subject, settings in running.items():
            declared = self._declared.get(subject)
            if declared is not None and settings.declared != declared:
                await declare_limit(self._client, subject, declared, task_queue=self._task_queue)


class Limiter:
    """One limit as a worker uses it: combines the messages of all its calls.

    Args:
        settings: newest known settings.
        declared: limit that this worker declares, if any; started if it does not run.
        task_queue: queue of the workflows.
    """

    def __init__(self, client: Client, settings: LimitSettings, *, declared: CallLimit | None, task_queue: str) -> None:
        self.settings = settings
        self._client = client
        self._declared = declared
        self._task_queue = task_queue
        self._requests: dict[str, tuple[CallRequest, asyncio.Future[LimitAnswer]]] = {}
        self._releases: list[str] = []
        self._tokens: list[int] = []
        self._usage = NO_USAGE
        self._leases: dict[str, None] = {}
        """Calls of this worker that run with a lease."""
        self._are_renewals_due = False
        self._sending: asyncio.Task[None] | None = None
        self._renewing: asyncio.TimerHandle | None = None
        self._released = asyncio.Event()

    @property
    def counts_usage(self) -> bool:
        """Whether the limit has tokens per minute or a daily budget."""
        limit = self.settings.limit
        return limit is not None and (limit.tokens_per_minute is not None or limit.daily is not None)

    @property
    def has_leases(self) -> bool:
        """Whether calls need a lease."""
        return self.settings.limit is not None and self.settings.limit.concurrency is not None

    async def request(self, call: str, request: CallRequest) -> LimitAnswer:
        """Return the answer of the limit to a call.

        Raises:
            CallDeferred: the limit does not respond.
        """
        future: asyncio.Future[LimitAnswer] = asyncio.get_running_loop().create_future()
        self._requests[call] = request, future
        self._send_soon()
        try:
            return await future
        except (LimitUnreachable, RPCError) as error:
            if self.settings.limit is None:
                # A hold without a limit only spares a busy service.
                return LimitAnswer("start")
            raise CallDeferred(str(error), _UNREACHABLE_DELAY, code=ERROR_RATE_LIMITED) from None

    async def wait_in_line(self, wait_s: float) -> None:
        """Wait until a call of this worker has ended, or for a time."""
        self._released.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._released.wait()
        except TimeoutError:
            return

    def keep(self, call: str) -> None:
        """Renew the lease of a call until it is released."""
        self._leases[call] = None
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().call_later(LEASE_S / 3, self._renew)

    def release(self, call: str) -> None:
        """End the lease of a call."""
        self._leases.pop(call, None)
        self._releases.append(call)
        self._released.set()
        self._send_soon()

    def add_usage(self, usage: Usage) -> None:
        """Report the usage of a model call."""
        self._tokens.append(usage.tokens)
        self._usage += usage
        self._send_soon()

    def _renew(self) -> None:
        self._renewing = None
        if self._leases:
            self._are_renewals_due = True
            self._send_soon()
            self._renewing = asyncio.get_running_loop().call_later(LEASE_S / 3, self._renew)

    def _send_soon(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            # Calls that are woken by a release join its message.
            await asyncio.sleep(0)
            while not (message := self._message()).is_empty:
                requests, self._requests = self._requests, {}
                self._releases, self._tokens, self._are_renewals_due = [], [], False
                self._usage = NO_USAGE
                if not await self._send(message, requests):
                    return
        finally:
            self._sending = None

    def _message(self) -> LimitMessage:
        renewals = [*self._leases] if self._are_renewals_due else []
        requests = {call: request for call, (request, _) in self._requests.items()}
        return LimitMessage(requests, self._releases, renewals, self._tokens, self._usage)

    async def _exchange(self, message: LimitMessage) -> dict[str, LimitAnswer]:
        subject = self.settings.subject
        try:
            return await exchange(self._client, subject, message)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or self._declared is None:
                raise
        await declare_limit(self._client, subject, self._declared, task_queue=self._task_queue)
        return await exchange(self._client, subject, message)

    async def _send(
        self, message: LimitMessage, requests: Mapping[str, tuple[CallRequest, asyncio.Future[LimitAnswer]]]
    ) -> bool:
        """Send a message; return whether the limit has responded."""
        answers: dict[str, LimitAnswer] = {}
        try:
            answers = await self._exchange(message)
        except (LimitUnreachable, RPCError) as error:
            if not isinstance(error, RPCError) or error.status is not RPCStatusCode.NOT_FOUND:
                for _, future in requests.values():
                    if not future.done():
                        future.set_exception(error)
                # The next message has them; leases of lost releases would expire anyway.
                self._releases += message.releases
                self._tokens += message.tokens
                self._usage += message.usage
                return False
        for call, (_, future) in requests.items():
            # A limit that does not exist any more admits all calls.
            answer = answers.get(call, LimitAnswer("start"))
            if not future.done():
                future.set_result(answer)
            elif answer.decision != "later":
                self._releases.append(call)
        return True


@dataclass(slots=True)
class Admission:
    """The leases of a call that runs."""

    leases: list[tuple[Limiter, str]] = field(default_factory=list)
    usage_limiters: list[Limiter] = field(default_factory=list)

    def add(self, limiter: Limiter, call: str, *, has_lease: bool) -> None:
        """Add a limit that admits the call."""
        if has_lease:
            self.leases.append((limiter, call))
        if limiter.counts_usage:
            self.usage_limiters.append(limiter)

    def keep(self) -> None:
        """Renew the leases until they are released."""
        for limiter, call in self.leases:
            limiter.keep(call)

    def add_usage(self, usage: Usage) -> None:
        """Report the usage of a model call."""
        for limiter in self.usage_limiters:
            limiter.add_usage(usage)

    def release(self) -> None:
        """End the leases; idempotent."""
        leases, self.leases = self.leases, []
        for limiter, call in leases:
            limiter.release(call)


NO_LEASES = Admission()


class _AdmissionRequest:
    """Requests of one attempt to its limits."""

    def __init__(
        self, limiters: Sequence[Limiter], info: activity.Info, heartbeats: Heartbeats, *, kind: RequestKind
    ) -> None:
        self._limiters = limiters
        self._kind: RequestKind = kind
        self._call = call_id(info)
        self._heartbeats = heartbeats
        state = heartbeats.deferred_state
        self._state: Mapping[str, Any] = state if isinstance(state, Mapping) else {}
        # The clock of the server: the next attempt may run on another machine.
        self._clock_s = info.started_time.timestamp() - time.monotonic()
        timeout = info.start_to_close_timeout
        self._share_s = float("inf") if timeout is None else timeout.total_seconds() * _SHARE_OF_TIMEOUT

    async def admit(self) -> Admission:
        """Wait until the call may start.

        Raises:
            CallDeferred: the call must not start now.
        """
        admission, start_in_s, reason = Admission(), 0.0, ""
        booked: list[str] = []
        earlier = self._earlier_bookings()
        try:
            for limiter in self._limiters:
                name = str(limiter.settings.subject)
                if name in earlier:
                    delay_s = max(0.0, self._state["at"] - self._now())
                    limit_reason = str(self._state.get("why", ""))
                else:
                    answer = await self._start(limiter, booked=booked)
                    delay_s, limit_reason = answer.delay_s, _reason(limiter, answer)
                admission.add(limiter, self._call, has_lease=limiter.has_leases)
                booked.append(name)
                if delay_s > start_in_s:
                    start_in_s, reason = delay_s, limit_reason
            if start_in_s > min(SHORT_WAIT_S, self._share_s):
                # The leases stay: they are renewed from the start of the call on.
                admission.leases.clear()
                raise self._deferred(reason, start_in_s, booked=booked)
            if start_in_s > 0:
                await asyncio.sleep(start_in_s)
        except BaseException:
            admission.release()
            raise
        self._heartbeats.report_limit(None)
        admission.keep()
        return admission

    def _now(self) -> float:
        return time.monotonic() + self._clock_s

    def _earlier_bookings(self) -> Collection[str]:
        """Return the limits at which an earlier attempt has booked the start of this one."""
        at, booked = self._state.get("at"), self._state.get("booked")
        if not isinstance(at, int | float) or not isinstance(booked, list):
            return ()
        return booked if self._now() - at <= LATE_S else ()

    async def _start(self, limiter: Limiter, *, booked: Sequence[str]) -> LimitAnswer:
        """Return the answer with the start of the call.

        Raises:
            CallDeferred: the call must request again later.
        """
        has_waited = str(limiter.settings.subject) in self._state.get("waited", ())
        ends_at = time.monotonic() + min(_LINE_WAIT_S, self._share_s)
        while True:
            answer = await limiter.request(self._call, CallRequest(has_waited, self._kind))
            if answer.decision == "start":
                return answer
            remaining_s = ends_at - time.monotonic()
            if answer.decision == "later" or remaining_s <= 0:
                delay_s = answer.delay_s if answer.decision == "later" else SHORT_WAIT_S
                # A lease of another limit must not wait without a slot.
                leased = {str(other.settings.subject) for other in self._limiters if other.has_leases}
                bookings = [name for name in booked if name not in leased]
                waited = str(limiter.settings.subject)
                raise self._deferred(_reason(limiter, answer), delay_s, booked=bookings, waited=waited)
            self._heartbeats.report_limit(_reason(limiter, answer))
            await limiter.wait_in_line(min(answer.delay_s, remaining_s))

    def _deferred(
        self, reason: str, delay_s: float, *, booked: Sequence[str], waited: str | None = None
    ) -> CallDeferred:
        state: dict[str, Any] = {"at": self._now() + delay_s, "booked": [*booked], "why": reason}
        if waited is not None:
            state["waited"] = [waited]
        return CallDeferred(reason, timedelta(seconds=delay_s), code=ERROR_RATE_LIMITED, state=state)


async def _wait_in_place(limiter: Limiter, call: str, heartbeats: Heartbeats, *, kind: RequestKind) -> None:
    """Wait until a limit lets a call start.

    Raises:
        CallDeferred: the wait is long, as for a daily budget, or the limit does not respond.
    """
    has_waited = False
    while True:
        answer = await limiter.request(call, CallRequest(has_waited, kind))
        if answer.decision != "start" or answer.delay_s > SHORT_WAIT_S:
            heartbeats.report_limit(_reason(limiter, answer))
        if answer.decision == "start":
            await asyncio.sleep(answer.delay_s)
            heartbeats.report_limit(None)
            return
        if answer.decision == "later" and answer.delay_s > _LONGEST_WAIT_IN_PLACE_S:
            raise CallDeferred(_reason(limiter, answer), timedelta(seconds=answer.delay_s), code=ERROR_RATE_LIMITED)
        has_waited = has_waited or answer.decision == "later"
        await limiter.wait_in_line(min(answer.delay_s, _LINE_WAIT_S))


def call_id(info: activity.Info) -> str:
    """Return the id of a call at its limits, the same for all its attempts."""
    name = f"{info.workflow_run_id}/{info.activity_id}"
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def _reason(limiter: Limiter, answer: LimitAnswer) -> str:
    """Return why a call waits, such as `rate limit 20/s on http_request, 4 calls ahead`."""
    subject = limiter.settings.subject
    name = subject.name if subject.kind == "tool" else f"{subject.kind} {subject.name}"
    calls = f", {answer.ahead:,} call{'' if answer.ahead == 1 else 's'} ahead" if answer.ahead else ""
    if answer.reason.startswith(WAS_ASKED):
        return f"{name} {answer.reason}{calls}"
    return f"{answer.reason} on {name}{calls}"
