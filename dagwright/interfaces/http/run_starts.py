"""Runs that this gateway starts, and the quota of running plans of each owner.

Starts are counted, so that simultaneous requests cannot exceed the quota.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dagwright.client.runs import Runs
from dagwright.client.starts import StartRequest
from dagwright.interfaces.http.errors import RETRY_AFTER_S, limit_exceeded
from dagwright.protocol.sessions import Session

Prepare = Callable[[Session | None], StartRequest]
"""Prepares a run for a session; `None` for a run outside sessions."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run to be started.

    Args:
        run: ID of the run.
        session: stored name of the session that the run is a turn of; `None` outside sessions.
        request: text of the request that the session stores.
        abandoned: set when its client disconnected and asked to cancel: a waiting turn is not started then.
        is_waiting: set once its turn waits for the previous turn.
    """

    run: str
    session: str | None
    request: str
    prepare: Prepare
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    is_waiting: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class ActiveStart:
    """A run that is being started, or whose turn waits for its session.

    Args:
        owner: owner of the run.
        task: ends when the run was started or refused.
    """

    start: RunStart
    owner: str | None
    task: "asyncio.Task[None]"


class RunQuota:
    """The quota of running plans of one owner at this gateway.

    The server's list is about a second behind, so runs that were started here and are not listed yet count as well.
    Other gateways see them in the list only.
    """

    def __init__(self, owner: str, *, most: int) -> None:
        self._owner = owner
        self._most = most
        self._starting: set[str] = set()
        self._started: set[str] = set()
        self._listed: set[str] = set()
        self._lists = 0
        self._newest = 0
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def room_for(self, run: str, runs: Runs) -> AsyncIterator[None]:
        """Reserve a run while it starts; a run that exists or is being started needs no reservation.

        Raises:
            ApiError: the owner has too many runs.
        """
        # Before the lock: requests must not queue behind a server that does not respond.
        self._lists += 1
        number, listed = self._lists, await runs.open_runs_of(self._owner)
        async with self._lock:
            if number > self._newest:
                # An older list may lack runs that were seen in a newer one and no longer count as started here.
                self._newest, self._listed = number, listed
                self._started -= listed
            is_first = run not in self._starting and await self._has_room(runs)
            if is_first:
                self._starting.add(run)
            elif run not in self._starting and not await runs.is_there(run):
                many = f"{self._most:,} run{'' if self._most == 1 else 's'}"
                words = f"{self._owner!r} may have {many} at a time: wait for a run to end, or cancel one"
                raise limit_exceeded(words, retry_after_s=RETRY_AFTER_S)
        try:
            yield
        finally:
            if is_first:
                # The run may have started even if the start failed.
                self._starting.discard(run)
                self._started.add(run)

    async def _has_room(self, runs: Runs) -> bool:
        if self._count() < self._most:
            return True
        for run in sorted(self._started):
            if not await runs.is_open(run):
                self._started.discard(run)
        return self._count() < self._most

    def _count(self) -> int:
        return len(self._listed | self._starting | self._started)
