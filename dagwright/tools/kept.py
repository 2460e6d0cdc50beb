"""What the tools of a process keep from call to call, such as a client with its connections."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Closes(Protocol):
    """What can be closed."""

    async def close(self) -> None: ...


T = TypeVar("T", bound=Closes)


class Kept:
    """Things that are made by the first call that wants them, used by all, and closed when the process ends.

    It is of one event loop: a tool that is no `async def` runs in a thread, and may not use it.
    """

    def __init__(self) -> None:
        self._made: dict[Callable[[], Any], Any] = {}

    def get(self, make: Callable[[], T]) -> T:
        """Returns what `make` has made, by the first call that named it."""
        if make not in self._made:
            self._made[make] = make()
        found: T = self._made[make]
        return found

    async def close(self) -> None:
        """Closes everything, the newest first; what is wanted after that is made anew."""
        while self._made:
            await self._made.popitem()[1].close()
