"""What every endpoint works with: the runs, sessions and people of one namespace, tools, templates and models."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from dagwright.client.runs import Runs, open_runs
from dagwright.client.sessions import Sessions
from dagwright.client.starts import checked_id
from dagwright.client.steering import Steering
from dagwright.history.run_reader import RunNotFound
from dagwright.interfaces.http.callers import ANYONE, Caller, Scope
from dagwright.interfaces.http.errors import RETRY_AFTER_S, ApiError, too_many
from dagwright.interfaces.http.keys import KeyFile
from dagwright.interfaces.http.limits import Limits, StreamOfKey, Uses
from dagwright.interfaces.http.plan_checks import PlanChecks
from dagwright.interfaces.http.starts import Starting, Starts
from dagwright.llm import ModelClient
from dagwright.llm.clients import ModelClients
from dagwright.plans.templates import TemplateFolder, Templates
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset

T = TypeVar("T")

CALLER = "dagwright.caller"
"""Where the scope of a request has its caller, once its key is known."""
STREAM = "dagwright.stream"
"""Where it has the stream that it may become, of a caller with a key."""
HEARTBEAT_S = 10.0
"""Between two signs of life in a stream: proxies give up on connections that are silent for 30 s or more."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What endpoints work with; nothing in here has to outlive the process.

    Args:
        server: where the runs are, and the Temporal UI.
        runs: one object for all, since those who look at one run share its reader.
        models: asks the models of the service.
        keys: of those who may call, where one is needed.
        uses: what each key has used here.
        heartbeat_s: after which silence in a stream is broken.
        leaving: set when the gateway ends: streams end then, and their clients come back elsewhere.
        caller: who works with it.
        stream: that the request may become; `None` where no key is needed.
        starts: of each owner.
        checks: of plans that callers send.
        starting: runs that start here now, or wait here for their sessions.
        plans: the folder of the templates; `None` without a folder, or if it is not read again.
        broken: name of a template that cannot be used -> why, as `Published.problems`.
    """

    settings: Settings
    server: Server
    toolset: Toolset
    templates: Templates
    runs: Runs
    sessions: Sessions
    steering: Steering
    models: ModelClients
    keys: KeyFile
    uses: Uses
    heartbeat_s: float = HEARTBEAT_S
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    caller: Caller = ANYONE
    stream: StreamOfKey | None = None
    starts: dict[str, Starts] = field(default_factory=dict)
    starting: list[Starting] = field(default_factory=list)
    plans: TemplateFolder | None = None
    broken: Mapping[str, list[str]] = field(default_factory=dict)
    checks: PlanChecks = field(default_factory=PlanChecks)
    _tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)

    @property
    def model(self) -> ModelClient:
        """Returns the client of the service of the settings."""
        return self.models.client(None)

    @property
    def shown_server(self) -> Server:
        """The server as the caller may know it: with its UI only for callers with the scope `operate`.

        The UI lets its users do everything. The one of our own server is off as soon as there are keys.
        """
        is_closed = self.server.pid is not None and self.caller.key is not None
        if is_closed or Scope.OPERATE not in self.caller.scopes:
            return replace(self.server, ui_url=None)
        return self.server

    async def own(self, run: str) -> str:
        """Returns the id of a run that the caller sees.

        Raises:
            RunNotFound: there is none.
            IdInvalid: no run can have it.
        """
        checked_id(run)
        if self.caller.owner is not None and not self.caller.sees(await self.runs.owner_of(run)):
            # What others have is not told from what nobody has.
            raise RunNotFound(f"there is no run {run!r:.200}")
        return run

    def hold_stream(self) -> None:
        """Holds room for a stream of the caller until its request has ended.

        Raises:
            ApiError: it has too many.
        """
        if self.stream is not None and not self.stream.opens():
            words = f"a key may have {self.uses.limits.streams:,} streams open at a time: close one, or ask again later"
            raise too_many(words, retry_after_s=RETRY_AFTER_S)

    def room_for_run(self, run: str) -> AbstractAsyncContextManager[None]:
        """Returns what holds room for a run of the caller while it starts; entering it raises `ApiError` if none is."""
        owner = self.caller.starts_for
        if owner is None:
            return nullcontext()
        if owner not in self.starts:
            self.starts[owner] = Starts(owner, most=self.uses.limits.runs)
        return self.starts[owner].room_for(run, self.runs)

    def keep_doing(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Does something to its end, whether or not whoever asked for it is still there.

        Who awaits it shields it, for otherwise it ends with them.
        """
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        # Whoever still waits for it is told what it raised; of one that nobody waits for it is of no use.
        if not task.cancelled():
            task.exception()

    async def finish(self) -> None:
        """Waits for what was to be done to its end."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_desk(
    settings: Settings,
    connection: Connection,
    toolset: Toolset,
    *,
    templates: Templates | None = None,
    plans: TemplateFolder | None = None,
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncIterator[Desk]:
    """Opens what endpoints work with, for as long as the block lasts.

    Args:
        templates: plans that are published by name.
        plans: a folder of them, which is read again when its files change; in place of `templates`.

    Raises:
        PricesUnreadable: the user's own price table cannot be used.
        KeysUnreadable: the file of keys holds something else.
    """
    runs = open_runs(connection, settings)
    keys = KeyFile(settings.api_keys)
    # From here on a file that goes away is known to have been there.
    keys.are_needed()
    async with ModelClients(toolset.models) as models:
        desk = Desk(
            settings,
            connection.server,
            toolset,
            templates or {},
            runs,
            Sessions(connection, runs, task_queue=settings.task_queue),
            Steering(connection),
            models,
            keys,
            Uses(limits_of(settings), time.monotonic),
            heartbeat_s,
            plans=plans,
        )
        try:
            yield desk
        finally:
            desk.leaving.set()
            await desk.checks.close()
            await desk.finish()


def limits_of(settings: Settings) -> Limits:
    """Returns what each key may do."""
    return Limits(
        settings.api_requests, settings.api_streams, settings.api_runs, settings.api_body_bytes, settings.api_plan_bytes
    )


def desk_of(request: Request) -> Desk:
    """Returns what the app was made with, for whoever sends a request."""
    desk: Desk = request.app.state.desk
    caller = request.scope.get(CALLER)
    return desk if caller is None else replace(desk, caller=caller, stream=request.scope.get(STREAM))


TheDesk = Annotated[Desk, Depends(desk_of)]


def desk_with_plans(desk: TheDesk) -> Desk:
    """Return the desk with the templates as their files are now; FastAPI calls it in a thread, as it reads files."""
    if desk.plans is None:
        return desk
    published = desk.plans.read()
    return replace(desk, templates=published.templates, broken=published.problems)


PlansDesk = Annotated[Desk, Depends(desk_with_plans)]
"""Of endpoints that use published plans."""


def refuse_without(desk: Desk, scope: Scope) -> None:
    """Makes sure that the caller may do something.

    Raises:
        ApiError: its key does not let it.
    """
    if scope not in desk.caller.scopes:
        words = f"this key may not do that: it lacks the scope {scope.value!r}; make one with `dagwright keys add`"
        raise ApiError(403, words, code="insufficient_scope")


@dataclass(frozen=True, slots=True)
class Needs:
    """Dependency of a route that only some keys may use; `JsonRoute` checks it before it reads the body.

    Args:
        scopes: the caller has one of them.
        unless: a header with which the request only reads.
    """

    scopes: tuple[Scope, ...]
    unless: str = ""

    def __call__(self, desk: TheDesk, request: Request) -> None:
        """Raise `ApiError` if the caller has none of the scopes."""
        if self.unless not in request.headers and not desk.caller.scopes & set(self.scopes):
            refuse_without(desk, self.scopes[0])


def needs(*scopes: Scope, unless: str = "") -> Any:
    """Return the dependency `Needs`."""
    return Depends(Needs(scopes, unless))
