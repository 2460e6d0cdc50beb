"""Follow a run: live progress on a terminal, a line per change elsewhere, nothing with `--json`."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.client.run_follower import follow, wait_for_end
from dagwright.history.executions import RunNotFound
from dagwright.history.text_stream import DeliveredText
from dagwright.interfaces.cli.live_display import LiveDisplay
from dagwright.interfaces.cli.lost_calls import LostCalls
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.progress_lines import LineWriter
from dagwright.interfaces.cli.request_text import Request

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView


def _is_never_done(_: Sequence[Request]) -> bool:
    return False


class RunFollower:
    """Follows a run to its end and shows its progress."""

    def __init__(self, runs: "Runs", client: Client, run_id: str, *, output: Output) -> None:
        self._runs, self._run_id = runs, run_id
        self._moments = follow(runs, run_id)
        """States of the run over time, each with the open requests."""
        self._lost_calls = LostCalls(client)
        """Marks the calls whose worker has died."""
        self._output = output
        self._line_writer = LineWriter(output.print)
        self.requests: Sequence[Request] = ()
        """Open requests of the run when it was last shown."""

    async def follow_until(self, is_done: Callable[[Sequence[Request]], bool] = _is_never_done) -> "RunView":
        """Show the run until it ends or `is_done` returns true; can be called again to continue.

        Args:
            is_done: called with the open requests after each change.

        Raises:
            RunNotFound: the run does not exist.
            RPCError: the server has not responded for a minute.
        """
        if self._output.is_terminal:
            with LiveDisplay(self._output.console) as display, self._show_streamed_answer(display):
                return await self._follow_until(is_done, display.show)
        if self._output.is_json:
            return await wait_for_end(self._runs, self._run_id)
        return await self._follow_until(is_done, self._line_writer.show)

    async def _follow_until(
        self,
        is_done: Callable[[Sequence[Request]], bool],
        show: "Callable[[RunView, Sequence[Request]], None]",
    ) -> "RunView":
        last_view: RunView | None = None
        async for moment in self._moments:
            last_view, self.requests = moment.view, moment.requests
            show(await self._lost_calls.mark_lost_calls(last_view), self.requests)
            if is_done(self.requests):
                break
        assert last_view is not None
        return last_view

    @contextmanager
    def _show_streamed_answer(self, display: LiveDisplay) -> Iterator[None]:
        """While the block lasts, show the answer that a model is writing."""
        stream_task = asyncio.create_task(self._stream_answer(display))
        try:
            yield
        finally:
            stream_task.cancel()

    async def _stream_answer(self, display: LiveDisplay) -> None:
        delivered_text = DeliveredText()
        # The code that follows the run reports these errors.
        with suppress(RunNotFound, RPCError):
            async with aclosing(self._runs.token_streams.parts(self._run_id, delivered_text)) as parts:
                async for _ in parts:
                    # `parts` has added the part to `delivered_text`.
                    display.show_answer(delivered_text.text)

    async def close(self) -> None:
        """Stop following."""
        await self._moments.aclose()
