"""The public `Worker`: serves runs and the tools of a Python program."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

from temporalio.client import Client as TemporalClient

from dagwright.core.boundary.arguments import checks_methods
from dagwright.core.errors import DagwrightError
from dagwright.logging import configure_default_logging
from dagwright.process.stop_signals import stop_signals
from dagwright.settings import Settings
from dagwright.toolset.program_tools import AgentSource, ToolSource, read_program_tools
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker.capacity import capacity_of
from dagwright.worker.serving import prepare_to_serve, running_task, serving

_LOG = logging.getLogger("dagwright.worker")


class WorkerClient(Protocol):
    """The members of `Client` that a worker uses."""

    @property
    def settings(self) -> Settings:
        """Settings of the worker."""
        ...

    async def _temporal_client_for_worker(self) -> TemporalClient:
        """Return a client of Temporal's SDK that no other worker uses."""
        ...

    def _register_toolset(self, toolset: Toolset, close: Callable[[], Awaitable[None]]) -> AbstractContextManager[None]:
        """Register the tools until the block ends. When the client closes, it first calls `close`."""
        ...


@checks_methods
class Worker:
    """Serves runs, the built-in tools and the tools passed to it, while it is open.

    While the worker is open, plans that the client starts are compiled against the worker's tools. Tools of one module
    share a task queue, which `dagwright worker --tools MODULE` also serves. Workers in several processes with different
    tools of one module need different queues. If the program has not configured logging, the worker logs to stderr,
    with `DAGWRIGHT_LOG_LEVEL` and `DAGWRIGHT_LOG_FORMAT`.

    Args:
        client: a connected client; closing the client closes the worker.
        tools: functions decorated with `@tool`, declared activities, modules, module names, or files (.py with tools,
            .json with MCP servers).
        agents: agent cards, or files of agents.
        task_queue: queue of these tools and agents; by default, each module or file has its own queue. Runs are served
            on this queue and on the queue of the settings.

    Raises:
        ToolLoadError: an object is not a tool or an agent, or two objects have the same name.
        ClientClosed: the client is closed.

    Example:
        async with Worker(client, tools=[stock, order]):
            await (await client.start(plan)).result()

        await Worker(client, tools=["shop.tools"]).run()    # until SIGTERM, SIGINT or cancellation
    """

    def __init__(
        self,
        client: WorkerClient,
        tools: Sequence[ToolSource] = (),
        agents: Sequence[AgentSource] = (),
        *,
        task_queue: str | None = None,
    ) -> None:
        if not hasattr(client, "_temporal_client_for_worker"):
            hint = "await Client.connect(), or use the client in `async with`"
            raise TypeError(f"Worker(): client must be a connected Client, not {client!r:.60}; {hint}")
        self._client = client
        self._settings = client.settings
        self._program_tools = read_program_tools(tools, agents, task_queue=task_queue)
        self._exit_stack: AsyncExitStack | None = None
        self._close_event = asyncio.Event()
        self._queues: tuple[str, ...] = ()

    @property
    def task_queues(self) -> tuple[str, ...]:
        """Task queues that the open worker serves; empty if the worker is not open."""
        return self._queues

    async def __aenter__(self) -> Self:
        """Start to serve.

        Raises:
            DagwrightError: the worker is open already.
            ToolLoadError: a module or file cannot be loaded.
            StoreMismatch: the other workers use another payload store.
            StoreUnavailable: the payload store does not respond.
            PricesUnreadable: the prices of models cannot be read.
        """
        if self._exit_stack is not None:
            raise DagwrightError("the worker is open already")
        configure_default_logging(self._settings)
        toolset = await asyncio.to_thread(load_toolset, self._settings, program_tools=self._program_tools)
        await prepare_to_serve(self._settings, toolset)
        task_queue = self._settings.task_queue
        async with AsyncExitStack() as stack:
            temporal_client = await self._client._temporal_client_for_worker()
            stack.enter_context(self._client._register_toolset(toolset, self._close))
            capacity = capacity_of(self._settings)
            await stack.enter_async_context(serving(temporal_client, toolset, task_queue=task_queue, capacity=capacity))
            await stack.enter_async_context(running_task(self._log_if_loop_ends()))
            self._exit_stack = stack.pop_all()
        self._close_event.clear()
        self._queues = tuple(dict.fromkeys([task_queue, *toolset.user_queues]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop: calls in flight get time to finish, then they are cancelled."""
        await self._close()

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or cancellation, or until the client is closed.

        Raises the same errors as `__aenter__`.
        """
        with stop_signals() as stop_event:
            if self._exit_stack is not None:
                await self._wait_until_closed_or(stop_event)
                return
            async with self:
                await self._wait_until_closed_or(stop_event)

    async def _close(self) -> None:
        stack, self._exit_stack, self._queues = self._exit_stack, None, ()
        if stack is not None:
            await stack.aclose()
            self._close_event.set()

    async def _wait_until_closed_or(self, stop_event: asyncio.Event) -> None:
        wait_tasks = [asyncio.create_task(event.wait()) for event in (self._close_event, stop_event)]
        try:
            await asyncio.wait(wait_tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in wait_tasks:
                task.cancel()

    async def _log_if_loop_ends(self) -> None:
        """Wait until this task is cancelled, and log an error if the worker is still open then.

        In this case, the event loop is ending although the program has not closed the worker. Temporal's SDK would then
        wait for its polls forever.
        """
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self._exit_stack is not None:
                _LOG.error(
                    "a Worker is open at the end of the event loop, so the program may not end: use the Worker in "
                    "`async with`"
                )
            raise
