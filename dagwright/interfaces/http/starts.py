"""Runs that this gateway starts: what they are made of, and how many an owner may have at a time.

They are counted so that requests which come at once do not all find room.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dagwright.client.runs import Runs
from dagwright.client.starts import StartRequest
from dagwright.interfaces.http.errors import RETRY_AFTER_S, too_many
from dagwright.protocol.sessions import Session

Prepare = Callable[[Session | None], StartRequest]
"""Returns a run for what a session knows; `None` stands for no session."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run that is to be started.

    Args:
        run: its id.
        session: whose turn it is; `None` for a run of its own.
        request: in words, as the session keeps it.
        unwanted: set when its client has left that wants no run then: a turn that waits does not start any more.
        waits: set as soon as it is known that its turn waits for the one before it.
    """

    run: str
    session: str | None
    request: str
    prepare: Prepare
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
    waits: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Starting:
    """A run that is being started, or whose turn waits for its session.

    Args:
        owner: whose it will be.
        work: ends when it has started, or does not start.
    """

    job: Job
    owner: str | None
    work: "asyncio.Task[None]"


class Starts:
    """Runs that one owner starts through this gateway.

    The list of the server is a second or so behind, so those that were started here and have not been seen in it yet
    count beside it. Other gateways know of them by the list alone.
    """

    def __init__(self, owner: str, *, most: int) -> None:
        self._owner = owner
        self._most = most
        self._under_way: set[str] = set()
        self._begun: set[str] = set()
        self._listed: set[str] = set()
        self._lists = 0
        self._newest = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def room_for(self, run: str, runs: Runs) -> AsyncIterator[None]:
        """Holds room for a run while it starts; one that is there already, or is about to be, needs none.

        Raises:
            ApiError: the owner has too many.
        """
        # Before its turn: nobody stands in line for a server that does not answer.
        self._lists += 1
        number, listed = self._lists, await runs.open_runs_of(self._owner)
        async with self._turn:
            if number > self._newest:
                # An older one lacks what was seen in a newer one, and does not count as begun any more.
                self._newest, self._listed = number, listed
                self._begun -= listed
            is_first = run not in self._under_way and await self._has_room(runs)
            if is_first:
                self._under_way.add(run)
            elif run not in self._under_way and not await runs.is_there(run):
                many = f"{self._most:,} run{'' if self._most == 1 else 's'}"
                words = f"{self._owner!r} may have {many} at a time: wait for one to end, or cancel one"
                raise too_many(words, retry_after_s=RETRY_AFTER_S)
        try:
            yield
        finally:
            if is_first:
                # Whether or not it was heard of, it may have started.
                self._under_way.discard(run)
                self._begun.add(run)

    async def _has_room(self, runs: Runs) -> bool:
        if self._count() < self._most:
            return True
        for run in sorted(self._begun):
            if not await runs.is_open(run):
                self._begun.discard(run)
        return self._count() < self._most

    def _count(self) -> int:
        return len(self._listed | self._under_way | self._begun)
