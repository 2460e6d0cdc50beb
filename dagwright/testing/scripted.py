"""What the scripted servers share: they serve for as long as a block lasts, and its end tells what was not followed."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from dagwright.testing.http import Exchange, HttpServer, Request
from dagwright.testing.script import ScriptNotFollowed


class ScriptedServer(ABC):
    """Answers as a script says, strictly; used as `async with`.

    Raises:
        ScriptNotFollowed: at the end of the block; an error that the block ends with gets it as a note instead, since
            what failed first may well be the cause.
    """

    def __init__(self, *, host: str, port: int) -> None:
        self._http = HttpServer(self._answer, host=host, port=port)

    @abstractmethod
    def report(self) -> str:
        """Returns everything that did not go as the script says, for a person to read; empty if all did."""

    @abstractmethod
    async def _answer(self, request: Request, exchange: Exchange) -> None:
        """Answers one request."""

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)
        report = self.report()
        if report and error is None:
            raise ScriptNotFollowed(report)
        if report and error is not None:
            error.add_note(report)
