"""Shows one run as it goes on: a picture on a terminal, a line for each change elsewhere, nothing with `--json`."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress

from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.client.following import follow, wait_for_end
from dagwright.client.runs import Runs
from dagwright.history.run_reader import RunNotFound, RunView
from dagwright.history.text_stream import ToldText
from dagwright.interfaces.cli.lines import LineWriter
from dagwright.interfaces.cli.lost_calls import LostCalls
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.rendering import LivePicture
from dagwright.interfaces.cli.request_words import Request


def _is_never_enough(_: Sequence[Request]) -> bool:
    return False


class Following:
    """One run, from now to its end.

    Args:
        runs: of its namespace.
        client: connected to it.
        workflow_id: id of the run.
        output: of the command.
    """

    def __init__(self, runs: Runs, client: Client, workflow_id: str, *, output: Output) -> None:
        self._runs, self._workflow_id = runs, workflow_id
        self._moments = follow(runs, workflow_id)
        self._lost = LostCalls(client)
        self._output = output
        self._lines = LineWriter(output.say)
        self.requests: Sequence[Request] = ()
        """What is asked of people, as it was shown last."""

    async def until(self, is_enough: Callable[[Sequence[Request]], bool] = _is_never_enough) -> RunView:
        """Shows the run until it has ended, or asks what is enough; it can be gone on with then.

        Args:
            is_enough: told what the run asks of people.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not answered for a minute.
        """
        if self._output.is_terminal:
            with LivePicture(self._output.console) as picture, self._writing_to(picture):
                return await self._until(is_enough, picture.show)
        if self._output.is_json:
            return await wait_for_end(self._runs, self._workflow_id)
        return await self._until(is_enough, self._lines.show)

    async def _until(
        self,
        is_enough: Callable[[Sequence[Request]], bool],
        show: Callable[[RunView, Sequence[Request]], None],
    ) -> RunView:
        last: RunView | None = None
        async for moment in self._moments:
            last, self.requests = moment.view, moment.requests
            show(await self._lost.marked(last), self.requests)
            if is_enough(self.requests):
                break
        assert last is not None
        return last

    @contextmanager
    def _writing_to(self, picture: LivePicture) -> Iterator[None]:
        """Shows the answer while it is written, for as long as the block lasts."""
        writing = asyncio.create_task(self._write(picture))
        try:
            yield
        finally:
            writing.cancel()

    async def _write(self, picture: LivePicture) -> None:
        told = ToldText()
        # What ends the run, or the look at it, is told by whoever follows it.
        with suppress(RunNotFound, RPCError):
            async with aclosing(self._runs.texts.pieces(self._workflow_id, told)) as coming:
                async for _ in coming:
                    picture.write(told.text)

    async def close(self) -> None:
        """Looks no more."""
        await self._moments.aclose()
