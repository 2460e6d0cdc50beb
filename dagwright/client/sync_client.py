"""The synchronous client, for scripts and notebooks: the methods of `Client` and `Run`, which wait for their results.

Each method runs the method of the asynchronous class on an event loop in a thread of its own. There is no other logic.
"""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dagwright.client.client import Client
from dagwright.client.events import AnyRunEvent, FeedbackRequested
from dagwright.client.feedback_request import FeedbackRequest, Inbox
from dagwright.client.results import NodeResult
from dagwright.client.run import Run
from dagwright.client.session import Session
from dagwright.process.loop_thread import LoopThread
from dagwright.settings import Settings
from dagwright.toolset.given_tools import AgentSource, ToolSource
from dagwright.worker.worker import Worker

P = ParamSpec("P")
Result = TypeVar("Result")
Item = TypeVar("Item")
_END: Any = object()


def _of_run(
    method: Callable[Concatenate[Run, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["SyncRun", P], Result]:
    """Return a method of `Run` as one that waits for its result."""

    def wait(self: "SyncRun", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._loop.run(method(self._run, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


def _of_client(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["SyncClient", P], Result]:
    """Return a method of `Client` as one that waits for its result."""

    def wait(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._loop.run(method(self._client, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


def _run_of_client(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, Run]],
) -> Callable[Concatenate["SyncClient", P], "SyncRun"]:
    """Return a method of `Client` that starts a run as one that returns a `SyncRun`."""

    def wait(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> "SyncRun":
        return SyncRun(self._loop, self._loop.run(method(self._client, *args, **kwargs)))

    functools.update_wrapper(wait, method)
    return wait


def _run_of_run(
    method: Callable[Concatenate[Run, P], Coroutine[Any, Any, Run]],
) -> Callable[Concatenate["SyncRun", P], "SyncRun"]:
    """Return a method of `Run` that starts a run as one that returns a `SyncRun`."""

    def wait(self: "SyncRun", /, *args: P.args, **kwargs: P.kwargs) -> "SyncRun":
        return SyncRun(self._loop, self._loop.run(method(self._run, *args, **kwargs)))

    functools.update_wrapper(wait, method)
    return wait


def _of_session(
    method: Callable[Concatenate[Session, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["SyncSession", P], Result]:
    """Return a method of `Session` as one that waits for its result."""

    def wait(self: "SyncSession", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._loop.run(method(self._session, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


def _run_of_session(
    method: Callable[Concatenate[Session, P], Coroutine[Any, Any, Run]],
) -> Callable[Concatenate["SyncSession", P], "SyncRun"]:
    """Return a method of `Session` that starts a run as one that returns a `SyncRun`."""

    def wait(self: "SyncSession", /, *args: P.args, **kwargs: P.kwargs) -> "SyncRun":
        return SyncRun(self._loop, self._loop.run(method(self._session, *args, **kwargs)))

    functools.update_wrapper(wait, method)
    return wait


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
    """A run of a `SyncClient`: the methods of `Run`, which wait for their results and raise as those."""

    def __init__(self, loop: LoopThread, run: Run) -> None:
        self._loop = loop
        self._run = run

    @property
    def id(self) -> str:
        """ID of the run."""
        return self._run.id

    status = _of_run(Run.status)
    result = _of_run(Run.result)
    watch = _of_run(Run.watch)
    snapshot = _of_run(Run.snapshot)
    document = _of_run(Run.document)
    url = _of_run(Run.url)
    node = _of_run(Run.node)
    feedback = _of_run(Run.feedback)
    cancel = _of_run(Run.cancel)
    pause = _of_run(Run.pause)
    resume = _of_run(Run.resume)
    cancel_node = _of_run(Run.cancel_node)
    retry = _of_run(Run.retry)
    set_result = _of_run(Run.set_result)
    add_nodes = _of_run(Run.add_nodes)
    set_limits = _of_run(Run.set_limits)
    set_policy = _of_run(Run.set_policy)
    limits = _of_run(Run.limits)
    policy = _of_run(Run.policy)
    fork = _run_of_run(Run.fork)
    preview_fork = _of_run(Run.preview_fork)
    explain = _of_run(Run.explain)
    lineage = _of_run(Run.lineage)
    draw = _of_run(Run.draw)

    def events(self, *, after: str | None = None, text: bool = False) -> Iterator[AnyRunEvent]:
        """Yield the events of the run until it has ended, as `Run.events`."""
        for event in _iterate(self._loop, self._run.events(after=after, text=text)):
            if isinstance(event, FeedbackRequested):
                yield replace(event, request=replace(event.request, run=None))
            else:
                yield event

    def feedback_requests(self) -> list[FeedbackRequest]:
        """Return the open requests, as `Run.feedback_requests`; `feedback(request.id, ...)` answers one."""
        return [replace(request, run=None) for request in self._loop.run(self._run.feedback_requests())]

    def nodes(self) -> Iterator[NodeResult]:
        """Yield the nodes and items as they are now, as `Run.nodes`."""
        return _iterate(self._loop, self._run.nodes())


class SyncSession:
    """A session of a `SyncClient`: the methods of `Session`, which wait for their results and raise as those."""

    def __init__(self, loop: LoopThread, session: Session) -> None:
        self._loop = loop
        self._session = session

    @property
    def id(self) -> str:
        """ID of the session."""
        return self._session.id

    ask = _run_of_session(Session.ask)
    start = _run_of_session(Session.start)
    state = _of_session(Session.state)
    turns = _of_session(Session.turns)
    end = _of_session(Session.end)


class SyncClient:
    """A client for code without an event loop, such as scripts and notebooks: the methods of `Client`, which wait.

    Its methods raise as those of `Client`.

    Answer the requests of `inbox()` with `client.get_run(request.run_id).feedback(request.id, ...)`.

    Example:
        with SyncClient.connect() as client, client.worker(tools=[stock]):
            print(client.start(plan).result().output)
    """

    def __init__(self, loop: LoopThread, client: Client) -> None:
        self._loop = loop
        self._client = client

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
        keep_server: bool = False,
    ) -> Self:
        """Connect to a server, as `Client.connect`; use it in `with`, or close it later.

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
            self._loop.run(self._client.close())
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
        """Serve runs and tools while the block lasts, as `Worker`.

        Raises:
            ToolLoadError, StoreMismatch, StoreUnavailable, PricesUnreadable: as `Worker`.
        """
        worker = self._loop.call(lambda: Worker(self._client, tools, agents, task_queue=task_queue))
        self._loop.run(worker.__aenter__())
        try:
            yield worker
        finally:
            # `close` of the client closes its workers.
            if not self._loop.is_closed:
                self._loop.run(worker.__aexit__(None, None, None))

    start = _run_of_client(Client.start)
    ask = _run_of_client(Client.ask)
    list_runs = _of_client(Client.list_runs)
    _inbox = _of_client(Client.inbox)
    list_sessions = _of_client(Client.list_sessions)
    pause_tool = _of_client(Client.pause_tool)
    resume_tool = _of_client(Client.resume_tool)
    paused_tools = _of_client(Client.paused_tools)

    @functools.wraps(Client.inbox)
    def inbox(self, **filters: Any) -> Inbox:
        page = self._inbox(**filters)
        return replace(page, requests=[replace(request, run=None) for request in page])

    def get_run(self, run_id: str) -> SyncRun:
        """Return the handle of a run; its methods raise `RunNotFound` if there is no such run."""
        return SyncRun(self._loop, self._loop.call(lambda: self._client.get_run(run_id)))

    def session(self, name: str) -> SyncSession:
        """Return the handle of a session; its first turn creates it.

        Raises:
            SessionNameInvalid: no session can have this name.
        """
        return SyncSession(self._loop, self._loop.call(lambda: self._client.session(name)))
