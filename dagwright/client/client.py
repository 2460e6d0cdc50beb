"""The public `Client`: starts runs on a Temporal server, lists them and works with them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from temporalio.client import Client as TemporalClient

from dagwright.client.ask_starts import AskStart, prepare_ask
from dagwright.client.call_limits import Limit, read_limits, remove_limit, set_limit
from dagwright.client.client_tools import ClientTools
from dagwright.client.connecting import create_services
from dagwright.client.errors import OptionInvalid, RunIdInUse
from dagwright.client.events import CursorInvalid
from dagwright.client.feedback.feedback_request import Inbox, to_feedback_request
from dagwright.client.feedback.inbox import InboxFilter, read_nonempty_inbox_page
from dagwright.client.list_cursors import ListCursor
from dagwright.client.options import AskOptions, StartOptions, duration_s, validate_tags, without_none
from dagwright.client.plan_starts import (
    PlanSource,
    PlanStart,
    plan_tools,
    prepare_start,
    read_plan,
    read_plan_to_repair,
)
from dagwright.client.requests import TurnRequest, start_turn
from dagwright.client.run import Run
from dagwright.client.run_lists import RunFilter, RunSummary, parse_since
from dagwright.client.server_errors import reports_server_errors
from dagwright.client.service_tools import KnownTools
from dagwright.client.services import Services
from dagwright.client.session import Session, SessionState, state_of
from dagwright.client.starts import StartedRun, StartRequest
from dagwright.client.tool_pauses import PausedTool, ResumedTool, pause_tool, paused_tools, resume_tool
from dagwright.core.boundary.arguments import checks_arguments, checks_methods
from dagwright.core.errors import ClientClosed, DagwrightError, PlanInvalid
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import Duration
from dagwright.core.name_hints import not_one_of_message
from dagwright.plans.human_requests import RequestType
from dagwright.protocol.sessions import SessionRecord as StoredSession
from dagwright.protocol.sessions import Turn, normalized_session_name
from dagwright.server import LocalServer, connection_of, open_connection, separate_client
from dagwright.settings import Settings, load_settings
from dagwright.tools.context import running_loop
from dagwright.toolset.program_tools import ToolSource
from dagwright.toolset.toolset import Toolset


class WrongEventLoop(DagwrightError, RuntimeError):
    """The client is used in another event loop than it was connected in; connect one client per event loop."""


@checks_methods
@reports_server_errors
class Client:
    """A connection to a Temporal server, to start runs there and to work with them.

    Create a client with `Client.connect()` or `Client.from_temporal()`. A client belongs to the event loop that it was
    connected in. `SyncClient` is the client for code without an event loop.

    Every method raises `ClientClosed` if the client is closed, `WrongEventLoop` if the client was connected in another
    event loop, `ServerUnreachable` if the server does not respond, and `ServerError` if the server rejects a request.

    Example:
        async with Client.connect() as client, Worker(client, tools=[stock]):
            run = await client.start(plan, inputs={"item": "lamp"}, run_id="stock-1")
            result = await run.result()
    """

    def __init__(self, services: Services, exit_stack: AsyncExitStack) -> None:
        self._open_services = services
        self._exit_stack = exit_stack
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._worker_closers: list[Callable[[], Awaitable[None]]] = []
        """Functions that close the open workers, in the order in which the workers were opened."""
        self._tools = ClientTools(services)

    @classmethod
    @checks_arguments
    def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
        keep_server: bool = False,
    ) -> "PendingClient":
        """Connect to a server: `async with Client.connect() as client`, or `await` and close the client later.

        Args:
            address: `HOST:PORT`; by default the server in Temporal's environment variables or config file. If they name
                no server, the local server of the state folder, which is started if it does not run.
            namespace: by default the namespace of the environment or config file, or else `default`.
            settings: by default the settings of the environment.
            keep_server: leave a local server running until `dagwright down`, for example to use its UI.

        Raises:
            ServerUnreachable: no server can be reached or started.
            SettingsError: an environment variable is invalid.
        """

        async def open_client() -> Client:
            client_settings = settings or load_settings()
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(
                    open_connection(client_settings, address=address, namespace=namespace)
                )
                if keep_server and connection.server.pid is not None:
                    await asyncio.to_thread(LocalServer(client_settings).keep_running)
                client = cls(create_services(connection, client_settings), stack.pop_all())
            return client

        return PendingClient(open_client)

    @classmethod
    @checks_arguments
    def from_temporal(cls, client: TemporalClient, *, settings: Settings | None = None) -> "PendingClient":
        """Use a connected client of Temporal's SDK; closing the `Client` leaves the SDK's client open.

        Args:
            settings: by default the settings of the environment; the server in the settings is ignored.

        Raises:
            ConverterUnusable: the data converter of the client does not encode JSON values as `json/plain`.
            SettingsError: an environment variable is invalid.
        """

        async def open_client() -> Client:
            client_settings = settings or load_settings()
            return cls(create_services(await connection_of(client), client_settings), AsyncExitStack())

        return PendingClient(open_client)

    @property
    def _services(self) -> Services:
        """The services of the connection.

        Raises:
            ClientClosed, WrongEventLoop: as in `_check_usable`.
        """
        self._check_usable()
        return self._open_services

    def _check_usable(self) -> None:
        """Check that the client can be used now.

        Raises:
            ClientClosed: the client is closed.
            WrongEventLoop: the client was connected in another event loop.
        """
        if self._is_closed:
            raise ClientClosed("the client is closed: connect again with Client.connect()")
        if running_loop() not in (None, self._loop):
            raise WrongEventLoop(
                "the client was connected in another event loop: connect a client in this loop, or use SyncClient"
            )

    @property
    def _address(self) -> str:
        return self._open_services.connection.server.address

    @property
    def temporal(self) -> TemporalClient:
        """The client of Temporal's SDK."""
        return self._services.connection.client

    @property
    def settings(self) -> Settings:
        """Settings of this client and its workers."""
        return self._services.settings

    async def __aenter__(self) -> Self:
        """Return the client.

        Raises:
            ClientClosed: the client is closed.
            WrongEventLoop: the client was connected in another event loop.
        """
        self._check_usable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client, its open workers, and a local server that the client started and no other process uses."""
        if not self._is_closed:
            self._check_usable()
            self._is_closed = True
            async with self._exit_stack as exit_stack:
                for close_worker in self._worker_closers:
                    exit_stack.push_async_callback(close_worker)

    async def start(
        self,
        plan: PlanSource,
        *,
        inputs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        tools: Sequence[ToolSource] = (),
        **options: Unpack[StartOptions],
    ) -> Run:
        """Start a run of a plan; if a run with the same ID, plan, inputs and model exists, return that run.

        Args:
            plan: a `Plan`, a JSON object, the text of a plan in any dialect, or a file.
            run_id: generated by default.
            tools: tools of the plan that workers of other processes serve. Not needed for tools of open workers, tools
                that were added to a `Plan`, and tools that other workers have published.

        Raises:
            PlanInvalid: the plan or its inputs are invalid; `problems` has every problem.
            RunIdInUse: the ID belongs to a run with another plan, other inputs or another model.
            OptionInvalid: an option is invalid.
            RunIdInvalid: the ID is invalid.
            ToolLoadError: an object among the tools is not a tool.
            TurnRejected: the session does not accept the turn.
        """
        options = without_none(options)
        self._check_usable()
        read_source = read_plan_to_repair if options.get("repair") else read_plan
        written_plan = await asyncio.to_thread(read_source, plan)
        request = PlanStart(written_plan, inputs or {}, options)
        toolset = await self._tools.toolset([*tools, *plan_tools(plan)])
        prepare = partial(self._prepare_start, request, toolset)
        if (session_id := options.get("session_id")) is not None:
            request_text = f"(the plan {written_plan.file_name})" if written_plan.file_name else ""
            return await self._start_turn(session_id, request_text, prepare, run_id=run_id)
        try:
            start = await prepare(None)
        except PlanInvalid as invalid:
            return self.get_run((await self._find_existing(request, toolset, invalid, run_id=run_id)).run_id)
        return await self._start_run(replace(start, run_id=run_id))

    async def ask(
        self,
        request: str,
        *,
        run_id: str | None = None,
        tools: Sequence[ToolSource] = (),
        **options: Unpack[AskOptions],
    ) -> Run:
        """Start a run of a request in natural language: a model writes the plan, and the run's output is the answer.

        Args:
            run_id: as in `start`.
            tools: as in `start`.

        Raises:
            GoalRejected: the request cannot be planned.
            RunIdInUse, RunIdInvalid, OptionInvalid, ToolLoadError, TurnRejected: as in `start`.
        """
        options = without_none(options)
        self._check_usable()
        toolset = await self._tools.toolset(tools)
        ask_start = AskStart(request, options)

        async def prepare(session: StoredSession | None) -> StartRequest:
            return await asyncio.to_thread(prepare_ask, ask_start, toolset, session)

        if (session_id := options.get("session_id")) is not None:
            return await self._start_turn(session_id, request, prepare, run_id=run_id)
        return await self._start_run(replace(await prepare(None), run_id=run_id))

    def get_run(self, run_id: str) -> Run:
        """Return the handle of a run. Its methods raise `RunNotFound` if there is no such run."""
        self._check_usable()
        return Run(lambda: self._services, run_id, tools=self._tools)

    async def list_runs(  # noqa: PLR0913 - each is one filter, by keyword
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        status: str | None = None,
        title: str | None = None,
        since: date | timedelta | str | None = None,
        tags: Mapping[str, str] | None = None,
        session_id: str | None = None,
        template: str | None = None,
    ) -> list[RunSummary]:
        """List the newest runs, without runs of sub-plans.

        Args:
            limit: maximum number of runs; `after` continues the list.
            after: `cursor` of the last run that was received; `None` lists from the newest run. The list is complete
                when its last run has no cursor.
            status: a value of `RunStatus`, such as `running` or `failed`; a paused run that runs no node is `waiting`.
            title: prefix of the title or the ID, compared character by character: case and spaces matter.
            since: earliest start of a run: a date or time, also as an ISO string, or a duration before now, as a
                timedelta or a string such as `2h`. A date starts at midnight, local time.
            tags: tags that a run must have.
            session_id: only runs that are turns of this session.
            template: name of the published plan that the runs were started from.

        Raises:
            OptionInvalid: there is no such status, or `limit`, `since` or a tag is invalid.
            CursorInvalid: `after` is not the cursor of a run in a list.
        """
        if status is not None and status not in [*RunStatus]:
            raise OptionInvalid(f"status: {not_one_of_message(status, [*RunStatus])}")
        _check_limit(limit)
        run_filter = RunFilter(
            status=status,
            title=title,
            since=_parse_start_time(since),
            tags=validate_tags(tags or {}),
            session_name=session_id,
            template=template,
        )
        summaries, _ = await self._services.runs.nonempty_page_of_runs(
            limit=limit, run_filter=run_filter, after=_parse_cursor(after)
        )
        return summaries

    async def inbox(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        assignee: str | None = None,
        type: RequestType | None = None,
        older_than: Duration | None = None,
    ) -> Inbox:
        """List the open feedback requests of all runs, oldest first within a page.

        The first page has the requests of the newest runs. A run with many requests is listed with its first requests;
        `Run.feedback_requests` returns all of them. `FeedbackRequest.shortened` marks requests with cut texts.

        Args:
            limit: number of requests after which a page ends; the requests of one run stay on one page. `after`
                continues the inbox.
            after: `cursor` of the previous page; `None` lists the first page. The last page has no cursor.
            assignee: only requests for this person; `anyone` selects the requests without an assignee.
            type: only requests of this type, such as `APPROVAL`.
            older_than: only requests that have been open for longer than this.

        Raises:
            OptionInvalid: `limit` or `older_than` is invalid.
            CursorInvalid: `after` is not the cursor of a page.
        """
        _check_limit(limit)
        opened_before = None if older_than is None else time.time() - duration_s("older_than", older_than)
        inbox_filter = InboxFilter(assignee=assignee, type=type, opened_before=opened_before)
        connection = self._services.connection
        page = await read_nonempty_inbox_page(
            connection, limit=limit, inbox_filter=inbox_filter, after=_parse_cursor(after)
        )
        requests = [
            to_feedback_request(request, self.get_run(str(request.document["run_id"]))) for request in page.requests
        ]
        return Inbox(requests, None if page.cursor is None else str(page.cursor), page.omitted)

    async def pause_tool(self, name: str, *, reason: str | None = None, by: str | None = None) -> PausedTool:
        """Pause a tool in all runs: no call of the tool starts until `resume_tool`; running calls finish.

        Pausing a paused tool has no effect.

        Raises:
            CommandRejected: there is no such tool, or it is pure, or served by a worker of another application.
        """
        return await pause_tool(self._services, name, await self._known_tools(), reason=reason, by=by)

    async def resume_tool(self, name: str, *, ramp: Duration | None = None, by: str | None = None) -> ResumedTool:
        """Resume a paused tool. The waiting calls start gradually over a period.

        Args:
            ramp: the period; by default 0.1 s for each waiting call, but at least 10 s.

        Raises:
            CommandRejected: the tool is not paused, and none of its calls waits.
            OptionInvalid: `ramp` is invalid.
        """
        ramp_s = None if ramp is None else duration_s("ramp", ramp)
        return await resume_tool(self._services, name, ramp_s=ramp_s, by=by)

    async def paused_tools(self) -> list[PausedTool]:
        """Return all paused tools, by name."""
        return await paused_tools(self._services)

    async def set_call_limit(self, subject: str, limit: str, *, by: str | None = None) -> None:
        """Limit calls across all runs, instead of the limit that workers declare.

        Args:
            subject: `tool:NAME`, `model:NAME`, `owner:NAME` or `template:NAME`.
            limit: a rate such as `20/s` or `500/min`, `concurrency=5`, `tokens=100000` (per minute), or several of
                these.

        Raises:
            OptionInvalid: the subject or the limit is invalid.
            CommandRejected: there is no such tool, or its calls cannot wait.
        """
        await set_limit(self._services.connection.client, subject, limit, await self._known_tools(), by=by)

    async def _known_tools(self) -> KnownTools:
        declarations = (await self._tools.toolset()).declarations()
        return KnownTools(declarations, self._services.store, self._services.settings.task_queue)

    async def remove_call_limit(self, subject: str) -> None:
        """Remove a limit that was set with `set_call_limit`; then a limit that workers declare applies again.

        Raises:
            OptionInvalid: the subject is invalid.
            CommandRejected: the subject has no limit.
        """
        await remove_limit(self._services.connection.client, subject)

    async def call_limits(self) -> list[Limit]:
        """Return all limits with their current usage, by subject."""
        return await read_limits(self._services.connection.client)

    def session(self, session_id: str) -> Session:
        """Return the handle of a session. The first turn creates the session.

        Raises:
            SessionIdInvalid: no session can have this ID.
        """
        return Session(self, normalized_session_name(session_id))

    async def list_sessions(
        self, *, limit: int = 100, after: str | None = None, prefix: str = ""
    ) -> list[SessionState]:
        """List the newest sessions.

        Long answers are cut; `Session.state` returns them in full.

        Args:
            limit: maximum number of sessions; `after` continues the list.
            after: `cursor` of the last session that was received; `None` lists from the newest session. The list is
                complete when its last session has no cursor.
            prefix: prefix of the IDs of the sessions.

        Raises:
            OptionInvalid: `limit` is invalid.
            CursorInvalid: `after` is not the cursor of a session.
        """
        _check_limit(limit)
        views, cursor = await self._services.sessions.page_of_sessions(
            limit=limit, prefix=prefix, after=_parse_cursor(after)
        )
        states = [state_of(view) for view in views]
        if states and cursor is not None:
            states[-1] = replace(states[-1], cursor=str(cursor))
        return states

    @contextmanager
    def _register_toolset(self, toolset: Toolset, close: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Register a worker until the `with` block ends: plans of the client may use its tools.

        Args:
            close: closes the worker if the client is closed before the block ends.
        """
        with self._tools.register(toolset):
            self._worker_closers.append(close)
            try:
                yield
            finally:
                self._worker_closers.remove(close)

    async def _temporal_client_for_worker(self) -> TemporalClient:
        """Return a client for a worker. The SDK allows one worker for each connection and task queue."""
        return self.temporal if not self._tools.open_worker_count else await separate_client(self.temporal)

    async def _prepare_start(self, request: PlanStart, toolset: Toolset, session: StoredSession | None) -> StartRequest:
        context = {**(session.names if session is not None else {}), **request.options.get("context", {})}
        dialect = request.options.get("dialect") or request.plan.dialect
        start = await self._tools.compile_plan(
            lambda tools: prepare_start(request, tools, session),
            toolset,
            request.plan.document,
            context=context,
            dialect=dialect,
        )
        return replace(start, tools=toolset.references)

    async def _find_existing(
        self, request: PlanStart, toolset: Toolset, invalid: PlanInvalid, *, run_id: str | None
    ) -> StartedRun:
        """Find the run of a plan whose tools have been renamed or removed since it started.

        Raises:
            PlanInvalid: there is no such run.
        """
        if run_id is None or any(problem.code not in _MISSING_TOOL_CODES for problem in invalid.problems):
            raise invalid
        try:
            start = prepare_start(replace(request, allow_unknown_tools=True), toolset.declarations())
            existing_run = await self._services.runs.find(replace(start, run_id=run_id))
        except (PlanInvalid, RunIdInUse):
            raise invalid from None
        if existing_run is None:
            raise invalid
        return existing_run

    async def _start_run(self, start: StartRequest) -> Run:
        """Start a run; log a warning if this program has no worker for the run and the server stops with the client."""
        services = self._services
        started_run = await services.runs.start(start)
        has_own_server = services.connection.server.is_new and not LocalServer(services.settings).is_persistent()
        if started_run.is_new and has_own_server and not self._tools.open_worker_count:
            _LOG.warning(_OWN_SERVER_WARNING, started_run.run_id)
        return self.get_run(started_run.run_id)

    async def _start_turn(
        self,
        session_id: str,
        request_text: str,
        prepare: Callable[[StoredSession], Awaitable[StartRequest]],
        *,
        run_id: str | None,
    ) -> Run:
        services = self._services
        turn = TurnRequest(normalized_session_name(session_id), request_text, prepare)
        started_run, _ = await start_turn(turn, services.runs, services.sessions, run_id=run_id, on_busy=_wait_silently)
        return self.get_run(started_run.run_id)


class PendingClient:
    """A client that is not connected yet: `await` it, or use it in `async with`, which closes the client."""

    def __init__(self, open_client: Callable[[], Awaitable[Client]]) -> None:
        self._open = open_client
        self._client: Client | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r}: {_NOT_CONNECTED_MESSAGE}")

    def __enter__(self) -> NoReturn:
        raise TypeError(_NOT_CONNECTED_MESSAGE)

    def __exit__(self, *error: object) -> None:
        """Do nothing: `__enter__` always raises."""

    def __await__(self) -> Generator[Any, None, Client]:
        return self._open().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()


_LOG = logging.getLogger("dagwright.client")
_OWN_SERVER_WARNING = (
    "the run %s waits for a worker on a local server that stops when this client closes: open a Worker in this "
    "program, run `dagwright up` before the program, or set TEMPORAL_ADDRESS to the server of your workers"
)
_NOT_CONNECTED_MESSAGE = (
    "the client is not connected: write `client = await Client.connect()` or `async with Client.connect() as client`, "
    "or use SyncClient where there is no event loop"
)
_MISSING_TOOL_CODES = ("unknown_tool", "unknown_agent")


def _wait_silently(_: Turn) -> None:
    """Report nothing. `start_turn` waits for the session's running turn only if a callback is passed."""


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise OptionInvalid(f"limit must be at least 1, not {limit}")


def _parse_cursor(after: str | None) -> ListCursor | None:
    try:
        return None if after is None else ListCursor.parse(after)
    except ValueError:
        raise CursorInvalid(f"after: {after!r:.80} is not the cursor of an entry in a list") from None


def _parse_start_time(since: date | timedelta | str | None) -> float | None:
    try:
        return None if since is None else parse_since(since)
    except ValueError as error:
        raise OptionInvalid(f"since {error}") from None
