"""The synchronous client, for scripts and notebooks: the methods of `Client` and `Run` as blocking calls.

Each method runs the asynchronous method on an event loop in a separate thread.
"""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from dagwright.client.client import Client
from dagwright.client.events import AnyRunEvent, FeedbackRequested
from dagwright.client.feedback.feedback_request import FeedbackRequest, Inbox
from dagwright.client.results import NodeResult
from dagwright.client.run import Run
from dagwright.client.session import Session
from dagwright.process.loop_thread import LoopThread
from dagwright.settings import Settings
from dagwright.toolset.program_tools import AgentSource, ToolSource
from dagwright.worker.worker import Worker

P = ParamSpec("P")
Target_co = TypeVar("Target_co", covariant=True)
Result = TypeVar("Result")
Item = TypeVar("Item")
_END: Any = object()


class _SyncWrapper(Protocol[Target_co]):
    """A synchronous wrapper, with the asynchronous object and its event loop."""

    @property
    def _loop(self) -> LoopThread: ...
    @property
    def _target(self) -> Target_co: ...


def _blocking_method(
    method: Callable[Concatenate[Target_co, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[_SyncWrapper[Target_co], P], Result]:
    """Return a blocking method that waits for the result of an asynchronous method."""

    def call(self: _SyncWrapper[Target_co], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._loop.run(method(self._target, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _blocking_run_method(
    method: Callable[Concatenate[Target_co, P], Coroutine[Any, Any, Run]],
) -> Callable[Concatenate[_SyncWrapper[Target_co], P], "SyncRun"]:
    """Like `_blocking_method`, for a method that returns a `Run`; the blocking method returns a `SyncRun`."""

    def call(self: _SyncWrapper[Target_co], /, *args: P.args, **kwargs: P.kwargs) -> "SyncRun":
        return SyncRun(self._loop, self._loop.run(method(self._target, *args, **kwargs)))

    functools.update_wrapper(call, method)
    return call


def _iterate(loop: LoopThread, items: AsyncGenerator[Item, None]) -> Iterator[Item]:
    try:
        while (item := loop.run(_next(items))) is not _END:
            yield item
    finally:
        loop.run(_close(items))


async def _next(items: AsyncGenerator[Item, None]) -> Item:
    return await anext(items, _END)


async def _close(items: AsyncGenerator[Item, None]) -> None:
    await items.aclose()


class SyncRun:
    """A run of a `SyncClient`: the methods of `Run` as blocking calls with the same errors."""

    def __init__(self, loop: LoopThread, run: Run) -> None:
        self._loop = loop
        self._target = run

    @property
    def id(self) -> str:
        """ID of the run."""
        return self._target.id

    status = _blocking_method(Run.status)
    result = _blocking_method(Run.result)
    watch = _blocking_method(Run.watch)
    snapshot = _blocking_method(Run.snapshot)
    document = _blocking_method(Run.document)
    ui_url = _blocking_method(Run.ui_url)
    node = _blocking_method(Run.node)
    feedback = _blocking_method(Run.feedback)
    cancel = _blocking_method(Run.cancel)
    pause = _blocking_method(Run.pause)
    resume = _blocking_method(Run.resume)
    cancel_node = _blocking_method(Run.cancel_node)
    retry = _blocking_method(Run.retry)
    set_result = _blocking_method(Run.set_result)
    add_nodes = _blocking_method(Run.add_nodes)
    set_limits = _blocking_method(Run.set_limits)
    set_policy = _blocking_method(Run.set_policy)
    limits = _blocking_method(Run.limits)
    policy = _blocking_method(Run.policy)
    fork = _blocking_run_method(Run.fork)
    preview_fork = _blocking_method(Run.preview_fork)
    explain = _blocking_method(Run.explain)
    lineage = _blocking_method(Run.lineage)
    draw = _blocking_method(Run.draw)

    def events(self, *, after: str | None = None, text: bool = False) -> Iterator[AnyRunEvent]:
        """Yield the events of the run until it has ended, like `Run.events`."""
        for event in _iterate(self._loop, self._target.events(after=after, text=text)):
            if isinstance(event, FeedbackRequested):
                yield replace(event, request=replace(event.request, run=None))
            else:
                yield event

    def feedback_requests(self) -> list[FeedbackRequest]:
        """Return the open requests, like `Run.feedback_requests`; `feedback(request.id, ...)` answers a request."""
        return [replace(request, run=None) for request in self._loop.run(self._target.feedback_requests())]

    def nodes(self) -> Iterator[NodeResult]:
        """Yield the current nodes and items, like `Run.nodes`."""
        return _iterate(self._loop, self._target.nodes())


class SyncSession:
    """A session of a `SyncClient`: the methods of `Session` as blocking calls with the same errors."""

    def __init__(self, loop: LoopThread, session: Session) -> None:
        self._loop = loop
        self._target = session

    @property
    def id(self) -> str:
        """ID of the session."""
        return self._target.id

    ask = _blocking_run_method(Session.ask)
    start = _blocking_run_method(Session.start)
    state = _blocking_method(Session.state)
    turns = _blocking_method(Session.turns)
    end = _blocking_method(Session.end)


class SyncClient:
    """A client for code without an event loop, such as scripts: the methods of `Client` as blocking calls.

    The methods raise the same errors as those of `Client`.

    Answer the requests of `inbox()` with `client.get_run(request.run_id).feedback(request.id, ...)`.

    Example:
        with SyncClient.connect() as client, client.worker(tools=[stock]):
            print(client.start(plan).result().output)
    """

    def __init__(self, loop: LoopThread, client: Client) -> None:
        self._loop = loop
        self._target = client

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
        keep_server: bool = False,
    ) -> Self:
        """Connect to a server, like `Client.connect`; use the client in `with`, or close it later.

        Raises:
            ServerUnreachable: no server can be reached or started.
            SettingsError: an environment variable is invalid.
        """

        async def connect() -> Client:
            return await Client.connect(address, namespace=namespace, settings=settings, keep_server=keep_server)

        loop = LoopThread()
        try:
            return cls(loop, loop.run(connect()))
        except BaseException:
            loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client and its event loop; closing it twice is allowed."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self._target.close())
        finally:
            self._loop.close()

    @contextmanager
    def worker(
        self,
        tools: Sequence[ToolSource] = (),
        agents: Sequence[AgentSource] = (),
        *,
        task_queue: str | None = None,
    ) -> Iterator[Worker]:
        """Serve runs and tools until the block ends, like `Worker`.

        Raises:
            ToolLoadError, StoreMismatch, StoreUnavailable, PricesUnreadable: as in `Worker`.
        """
        worker = self._loop.call(lambda: Worker(self._target, tools, agents, task_queue=task_queue))
        self._loop.run(worker.__aenter__())
        try:
            yield worker
        finally:
            # `close` of the client closes its workers.
            if not self._loop.is_closed:
                self._loop.run(worker.__aexit__(None, None, None))

    start = _blocking_run_method(Client.start)
    ask = _blocking_run_method(Client.ask)
    list_runs = _blocking_method(Client.list_runs)
    _inbox = _blocking_method(Client.inbox)
    list_sessions = _blocking_method(Client.list_sessions)
    pause_tool = _blocking_method(Client.pause_tool)
    resume_tool = _blocking_method(Client.resume_tool)
    paused_tools = _blocking_method(Client.paused_tools)
    set_call_limit = _blocking_method(Client.set_call_limit)
    remove_call_limit = _blocking_method(Client.remove_call_limit)
    call_limits = _blocking_method(Client.call_limits)

    @functools.wraps(Client.inbox)
    def inbox(self, **filters: Any) -> Inbox:
        page = self._inbox(**filters)
        return replace(page, requests=[replace(request, run=None) for request in page])

    def get_run(self, run_id: str) -> SyncRun:
        """Return the handle of a run. Its methods raise `RunNotFound` if there is no such run."""
        return SyncRun(self._loop, self._loop.call(lambda: self._target.get_run(run_id)))

    def session(self, session_id: str) -> SyncSession:
        """Return the handle of a session. The first turn creates the session.

        Raises:
            SessionIdInvalid: no session can have this ID.
        """
        return SyncSession(self._loop, self._loop.call(lambda: self._target.session(session_id)))
