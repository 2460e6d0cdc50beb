"""An event loop in a separate thread, for code without an event loop and for notebooks, whose loop already runs."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from dagwright.core.errors import ClientClosed, DagwrightError
from dagwright.process import event_loop

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines on an event loop in another thread and waits for their results."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_event = asyncio.Event()
        self._start_event = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="dagwright", daemon=True)
        self._thread.start()
        self._start_event.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to completion and return its result.

        On Ctrl-C the coroutine is cancelled, and `KeyboardInterrupt` is raised after it has ended.

        Raises:
            ClientClosed: the loop is closed.
            DagwrightError: the caller is in the thread of the loop and would wait for itself.
        """
        loop = self._loop
        if loop is None:
            work.close()
            raise ClientClosed("the client is closed: connect again with SyncClient.connect()")
        if threading.current_thread() is self._thread:
            work.close()
            raise DagwrightError("this code runs in the event loop of the synchronous client: use Client there")
        end_event = threading.Event()

        async def await_work() -> Result:
            try:
                return await work
            finally:
                end_event.set()

        future = asyncio.run_coroutine_threadsafe(await_work(), loop)
        try:
            return future.result()
        except DagwrightError as error:
            # The frames of the loop, and errors that were handled earlier, would hide the line of the caller. An
            # explicit cause is kept.
            raise error.with_traceback(None) from error.__cause__
        except KeyboardInterrupt:
            future.cancel()
            end_event.wait()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the loop was stopped."""
        return self._loop is None

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the event loop and return its result; errors as in `run`."""

        async def call_on_loop() -> Result:
            return function()

        return self.run(call_on_loop())

    def close(self) -> None:
        """Stop the loop and its thread. Running coroutines are cancelled."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stop_event.set)
            self._thread.join()

    def _serve(self) -> None:
        event_loop.run(self._wait_for_stop())

    async def _wait_for_stop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start_event.set()
        await self._stop_event.wait()
