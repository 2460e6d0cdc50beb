"""The context of every endpoint: the runs and sessions of one namespace, and its tools, templates and models."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from dagwright.client.runs import Runs, namespace_runs
from dagwright.client.sessions import Sessions
from dagwright.client.starts import checked_run_id
from dagwright.client.steering import Steering
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import ANYONE, Caller, KeyScope
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import RETRY_AFTER_S, ApiError, rate_limit_error
from dagwright.interfaces.http.key_limits import KeyLimits, KeyUsage, StreamReservation
from dagwright.interfaces.http.plan_checks import PlanChecks
from dagwright.interfaces.http.run_starts import ActiveStart, RunQuota
from dagwright.llm import ModelClient
from dagwright.llm.client import ModelClients
from dagwright.plans.templates import TemplateFolder, Templates
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset

T = TypeVar("T")

ASGI_CALLER = "dagwright.caller"
"""Key of the caller in the ASGI scope of an authenticated request."""
ASGI_STREAM = "dagwright.stream"
"""Key of the stream reservation in the ASGI scope, if the caller has a key."""
HEARTBEAT_S = 10.0
"""Interval of heartbeats in a stream: proxies close connections that are silent for 30 s or more."""


@dataclass(frozen=True, slots=True)
class GatewayContext:
    """The context of endpoints. Nothing is lost if the process of the gateway ends.

    Args:
        server: the Temporal server and its UI.
        runs: one object for all requests, so that clients of one run share its reader.
        models: clients of the model services.
        keys: keys of the API.
        usage: usage of each key at this gateway.
        heartbeat_s: interval of heartbeats in streams.
        stop_event: set when the gateway stops. Streams then end, and their clients reconnect to another gateway.
        caller: the caller of the current request.
        stream_reservation: reservation for a stream of the current request; `None` if no key is required.
        run_quotas: owner -> quota of open runs.
        plan_checks: checks of plans that callers send.
        active_starts: runs that this gateway is starting, including those that wait for their sessions.
        template_folder: folder of the templates; `None` if the templates do not change.
        plan_problems: name of an unusable template -> problems, as in `PublishedTemplates.problems`.
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
    usage: KeyUsage
    heartbeat_s: float = HEARTBEAT_S
    stop_event: asyncio.Event = field(default_factory=asyncio.Event)
    caller: Caller = ANYONE
    stream_reservation: StreamReservation | None = None
    run_quotas: dict[str, RunQuota] = field(default_factory=dict)
    active_starts: list[ActiveStart] = field(default_factory=list)
    template_folder: TemplateFolder | None = None
    plan_problems: Mapping[str, list[str]] = field(default_factory=dict)
    plan_checks: PlanChecks = field(default_factory=PlanChecks)
    _tasks: "set[asyncio.Task[Any]]" = field(default_factory=set)

    @property
    def model(self) -> ModelClient:
        """The client of the model service in the settings."""
        return self.models.client(None)

    @property
    def visible_server(self) -> Server:
        """The server as shown to the caller: with its UI only for callers with the scope `operate`.

        The UI has full access to all workflows. The UI of a development server is off as soon as keys exist.
        """
        is_ui_off = self.server.pid is not None and self.caller.key_id is not None
        if is_ui_off or KeyScope.OPERATE not in self.caller.scopes:
            return replace(self.server, ui_url=None)
        return self.server

    async def visible_run(self, run_id: str) -> str:
        """Return the ID unchanged if the caller sees the run.

        Raises:
            RunNotFound: there is no such run, or it belongs to another owner.
            RunIdInvalid: the ID is not valid for a run.
        """
        checked_run_id(run_id)
        if self.caller.owner is not None and not self.caller.can_see(await self.runs.owner_of(run_id)):
            # The same error as for a missing run, because the error must not reveal runs of other owners.
            raise RunNotFound(f"there is no run {run_id!r:.200}")
        return run_id

    def reserve_stream(self) -> None:
        """Reserve a stream of the caller until the request ends.

        Raises:
            ApiError: the caller has too many open streams.
        """
        if self.stream_reservation is not None and not self.stream_reservation.reserve():
            message = (
                f"a key may have {self.usage.limits.streams:,} open streams at a time: close one, or try again later"
            )
            raise rate_limit_error(message, retry_after_s=RETRY_AFTER_S)

    def reserve_run(self, run_id: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager that counts a starting run in the caller's quota; entering may raise `ApiError`."""
        owner = self.caller.run_owner
        if owner is None:
            return nullcontext()
        if owner not in self.run_quotas:
            self.run_quotas[owner] = RunQuota(owner, limit=self.usage.limits.runs)
        return self.run_quotas[owner].reserve(run_id, self.runs)

    def run_in_background(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine to its end, even if the client disconnects.

        Await the task through `asyncio.shield`: otherwise the task is cancelled with the coroutine that awaits it.
        """
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._remove_task)
        return task

    def _remove_task(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        # Marks the exception as retrieved. Code that awaits the task still gets the exception.
        if not task.cancelled():
            task.exception()

    async def finish(self) -> None:
        """Wait for all background work."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_context(
    settings: Settings,
    connection: Connection,
    toolset: Toolset,
    *,
    templates: Templates | None = None,
    template_folder: TemplateFolder | None = None,
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncIterator[GatewayContext]:
    """Open the gateway context.

    Args:
        templates: published plans by name.
        template_folder: folder of published plans, read again when its files change; replaces `templates`.

    Raises:
        PricesUnreadable: the user's price table is invalid.
        KeysUnreadable: the key file is invalid.
    """
    runs = namespace_runs(connection, settings)
    keys = KeyFile(settings.api_keys)
    # Read now, so that keys stay required if the file is removed later.
    keys.requires_keys()
    async with ModelClients(toolset.models) as models:
        context = GatewayContext(
            settings,
            connection.server,
            toolset,
            templates or {},
            runs,
            Sessions(connection, runs, task_queue=settings.task_queue),
            Steering(connection),
            models,
            keys,
            KeyUsage(key_limits(settings), time.monotonic),
            heartbeat_s,
            template_folder=template_folder,
        )
        try:
            yield context
        finally:
            context.stop_event.set()
            await context.plan_checks.close()
            await context.finish()


def key_limits(settings: Settings) -> KeyLimits:
    """Return the limits of each key."""
    return KeyLimits(
        settings.api_requests, settings.api_streams, settings.api_runs, settings.api_body_bytes, settings.api_plan_bytes
    )


def context_of(request: Request) -> GatewayContext:
    """Return the gateway context with the caller of a request."""
    context: GatewayContext = request.app.state.context
    caller = request.scope.get(ASGI_CALLER)
    return (
        context
        if caller is None
        else replace(context, caller=caller, stream_reservation=request.scope.get(ASGI_STREAM))
    )


ContextDep = Annotated[GatewayContext, Depends(context_of)]


def context_with_plans(context: ContextDep) -> GatewayContext:
    """Return the context with the current templates.

    FastAPI calls this function in a thread, because reading files blocks.
    """
    if context.template_folder is None:
        return context
    published_templates = context.template_folder.read()
    return replace(context, templates=published_templates.templates, plan_problems=published_templates.problems)


PlansContextDep = Annotated[GatewayContext, Depends(context_with_plans)]
"""Dependency of endpoints that use published plans."""


def require_scope(context: GatewayContext, scope: KeyScope) -> None:
    """Raise `ApiError` if the caller lacks a scope."""
    if scope not in context.caller.scopes:
        message = f"this key lacks the scope {scope.value!r}; create one that has it with `dagwright keys add`"
        raise ApiError(ErrorCode.INSUFFICIENT_SCOPE, message)


@dataclass(frozen=True, slots=True)
class RequiredScopes:
    """Dependency of a route that requires a scope. `JsonRoute` calls the dependency before the body is read.

    Args:
        scopes: the caller must have one of these scopes.
        read_only_header: a header that makes the request read-only, so that it requires no scope.
    """

    scopes: tuple[KeyScope, ...]
    read_only_header: str = ""

    def __call__(self, context: ContextDep, request: Request) -> None:
        """Raise `ApiError` if the caller has none of the scopes."""
        if self.read_only_header not in request.headers and not context.caller.scopes & set(self.scopes):
            require_scope(context, self.scopes[0])


def scope_dependency(*scopes: KeyScope, read_only_header: str = "") -> Any:
    """Return the dependency `RequiredScopes`."""
    return Depends(RequiredScopes(scopes, read_only_header))


@dataclass(frozen=True, slots=True)
class AllOwnersRequirement(RequiredScopes):
    """Dependency of a route that changes something for the runs of all owners."""

    def __call__(self, context: ContextDep, request: Request) -> None:  # noqa: ARG002 - signature of the dependency
        """Raise `ApiError` if the key of the caller belongs to an owner."""
        if context.caller.owner is not None:
            message = "this key belongs to one owner; create one for all owners with `dagwright keys add '*'`"
            raise ApiError(ErrorCode.INSUFFICIENT_SCOPE, message)


def all_owners_dependency() -> Any:
    """Return the dependency `AllOwnersRequirement`."""
    return Depends(AllOwnersRequirement(()))
