"""Runs that this gateway starts, and the quota of open runs of each owner."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagwright.client.starts import StartRequest
from dagwright.core.text import format_count
from dagwright.features.call_limits.day_use import next_day
from dagwright.interfaces.http.errors import RETRY_AFTER_S, rate_limit_error
from dagwright.protocol.sessions import SessionRecord

if TYPE_CHECKING:
    from dagwright.client.runs import Runs

_COUNT_LAG_S = 10.0
"""Seconds after which the server's count certainly includes a started run. The usual lag is about a second."""

StartPreparation = Callable[[SessionRecord | None], StartRequest]
"""Function that prepares the start of a run in a session; the session is `None` for a run outside sessions."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run to be started.

    Args:
        run_id: ID of the run.
        session_name: session that the run is a turn of; `None` outside sessions.
        request: text of the request that the session stores.
        abandon_event: set when a client that sent `cancel_on_disconnect` disconnects. A waiting turn is then not
            started.
        waiting_event: set once the turn waits for the previous turn.
    """

    run_id: str
    session_name: str | None
    request: str
    prepare: StartPreparation
    abandon_event: asyncio.Event = field(default_factory=asyncio.Event)
    waiting_event: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class ActiveStart:
    """A run that is being started, or whose turn waits for its session.

    Args:
        owner: owner of the run.
        task: ends when the run has been started or rejected.
    """

    run_start: RunStart
    owner: str | None
    task: "asyncio.Task[None]"


class RunQuota:
    """The quota of open runs of one owner at this gateway.

    The server counts runs about a second late. So that simultaneous requests cannot exceed the quota, the gateway also
    counts the runs that it is starting or has started within the last seconds. Runs started at other gateways are
    counted only after this delay.
    """

    def __init__(self, owner: str, *, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._owner = owner
        self._limit = limit
        self._clock = clock
        self._starting_runs: set[str] = set()
        self._start_times: dict[str, float] = {}
        """Run that this gateway has started -> time of its start."""
        self._count_times: list[float] = []
        """Times of the count requests that the server has not answered yet."""
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def reserve(self, run_id: str, runs: "Runs") -> AsyncIterator[None]:
        """Reserve a place in the quota for a run while it starts.

        A run that exists or is being started needs no reservation.

        Raises:
            ApiError: the owner has too many runs, or has used up its daily budget.
        """
        # The counts are requested without the lock, so that no other request waits if the server does not respond.
        exhausted_budget = await runs.used_up_budget_text(self._owner)
        if exhausted_budget is not None and run_id not in self._starting_runs and not await runs.exists(run_id):
            now = time.time()
            raise rate_limit_error(
                f"{self._owner!r} has no model usage left: {exhausted_budget}", retry_after_s=next_day(now) - now
            )
        count_time = self._clock()
        self._count_times.append(count_time)
        try:
            open_count = await runs.count_open_runs(self._owner)
            # The response to every pending count request includes the runs that were started until this time. The
            # responses may arrive in another order than the requests were sent.
            included_until = min(self._count_times) - _COUNT_LAG_S
        finally:
            self._count_times.remove(count_time)
        async with self._lock:
            self._start_times = {
                id: start_time for id, start_time in self._start_times.items() if start_time > included_until
            }
            is_reserved = run_id not in self._starting_runs and await self._has_room(open_count, runs)
            if is_reserved:
                self._starting_runs.add(run_id)
            elif run_id not in self._starting_runs and not await runs.exists(run_id):
                count_text = format_count(self._limit, "run")
                message = f"{self._owner!r} may have {count_text} at a time: wait for a run to end, or cancel one"
                raise rate_limit_error(message, retry_after_s=RETRY_AFTER_S)
        try:
            yield
        finally:
            if is_reserved:
                # The run may have started even if the start failed.
                self._starting_runs.discard(run_id)
                self._start_times[run_id] = self._clock()

    async def _has_room(self, open_count: int, runs: "Runs") -> bool:
        # Runs of this gateway may be counted twice here.
        if open_count + len(self._starting_runs) + len(self._start_times) < self._limit:
            return True
        for run_id in sorted(self._start_times):
            if not await runs.is_open(run_id):
                del self._start_times[run_id]
        gateway_runs = [*self._starting_runs, *self._start_times]
        if len(gateway_runs) >= self._limit:
            return False
        return len(gateway_runs) + await runs.count_open_runs(self._owner, excluded_ids=gateway_runs) < self._limit


START_WAIT_S = 1.0
"""Maximum seconds that a stream waits for a start, the delivery of an answer, or a model. Then the stream sends its
headers. An error before the headers can still set the HTTP status."""


def headers_of_run(run_id: str, session_id: str | None) -> dict[str, str]:
    """Return the headers that name the run and the session of an answer."""
    headers = {"X-Run-Id": run_id, "X-Session-Id": session_id}
    # Headers are ASCII. IDs with other characters are only in the body.
    return {name: value for name, value in headers.items() if value is not None and value.isascii()}
