"""One session with an MCP server, through the SDK of MCP.

The scopes of the SDK must be exited by the task that entered them, so one task runs a session from start to end. Calls
may be made from any task. No other module imports the SDK, because its import takes over a second.
"""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import IncomingMessage
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dagwright import __version__
from dagwright.mcp_client.call_results import CONNECTION_CLOSED, is_session_gone, tool_error_of
from dagwright.mcp_client.config import Address, Program, ServerConfig
from dagwright.mcp_client.stderr_tail import StderrTail
from dagwright.tools.errors import NotStarted, RemoteFailed
from dagwright.tools.retry_after import requested_delay, requesting_service

START_TIMEOUT_S = 60.0
"""Timeout for the start of a server: `npx` and similar commands download a server before its first start."""
CLOSE_TIMEOUT_S = 15.0
"""Timeout for the end of a session. The SDK's shutdown is shorter: 2 s for the server to exit, and 2 s after each of
two signals."""
_MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Maximum size of a message in an event stream; the SDK's own limit is 1 MiB."""
_MAX_PAGES = 100
"""Limit for the pages of a tool list: an endless list must not block a worker."""

OnProgress = Callable[[float, float | None], None]


@dataclass(slots=True)
class _HttpResponse:
    """Data of the HTTP response to one request, which the SDK does not expose.

    Args:
        status: HTTP status.
        retry_after: delay that the service requests.
        requested_by: status and host of the service that requests the delay.
    """

    status: int | None = None
    retry_after: timedelta | None = None
    requested_by: str | None = None


_current_response: ContextVar[_HttpResponse | None] = ContextVar("dagwright_mcp_http_answer", default=None)


class McpSession:
    """Session with a connected server. Create one with `open`."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._stderr = StderrTail(server.name)
        self._stop_event = asyncio.Event()
        self._client_future: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._end_error: BaseException | None = None
        self.has_changed_tools = False
        """Whether the server has reported that its tools have changed since the last call of `tools`."""
        self._scope = anyio.CancelScope()
        # Do not use the context of the call that started the session.
        self._session_task = asyncio.create_task(self._run(), name=f"mcp {server.name}", context=contextvars.Context())

    @classmethod
    async def open(cls, server: ServerConfig) -> Self:
        """Start a server or connect to it.

        Raises:
            NotStarted: the server cannot be reached; the message has the reason.
        """
        session = cls(server)
        try:
            start_futures: set[asyncio.Future[Any]] = {session._client_future, session._session_task}
            await asyncio.wait(start_futures, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await session._cancel_session()
            raise
        if session._client_future.done():
            return session
        if not session._session_task.done():
            await session._cancel_session()
            raise NotStarted(f"{server.endpoint} did not respond within {START_TIMEOUT_S:g} s{session._last_output()}")
        raise NotStarted(f"{server.endpoint} cannot be reached: {session.end_reason}")

    @property
    def is_unusable(self) -> bool:
        """Whether calls are impossible, because the server has ended or the connection is lost."""
        return self._stop_event.is_set() or self._session_task.done()

    @property
    def is_closed(self) -> bool:
        """Whether the session and its server have ended completely."""
        return self._session_task.done()

    @property
    def end_reason(self) -> str:
        """Why the session is over, with the last output of the server."""
        end_error = self._end_error
        if isinstance(end_error, FileNotFoundError):
            return f"there is no {end_error.filename or 'such program'}"
        reason = str(end_error) or type(end_error).__name__ if end_error is not None else "the server has ended"
        return f"{reason}{self._last_output()}"

    async def tools(self) -> list[dict[str, Any]]:
        """Return the tools of the server in the form of the protocol, from all pages.

        Raises:
            RemoteFailed: the server does not list its tools.
        """
        client = await self._client_future
        self.has_changed_tools = False
        protocol_tools: list[dict[str, Any]] = []
        cursor: str | None = None
        try:
            for _ in range(_MAX_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="refresh")
                protocol_tools += [
                    tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools
                ]
                cursor = page.next_cursor
                if cursor is None:
                    break
        except (MCPError, ValidationError) as error:
            raise RemoteFailed(f"the server does not list its tools: {error}") from None
        return protocol_tools

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, meta: Mapping[str, Any], report_progress: OnProgress
    ) -> dict[str, Any]:
        """Call a tool and return the response in the form of the protocol. Cancellation is sent to the server.

        Raises:
            ToolError: the call failed; the subclass determines whether the call is retried.
        """
        client = await self._client_future

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            report_progress(progress, total)

        http_response = _HttpResponse()
        token = _current_response.set(http_response)
        # The type has only the keys of the protocol, but the SDK sends all keys.
        params_meta = cast(mcp_types.RequestParamsMeta, dict(meta)) or None
        try:
            answer = await client.call_tool(tool, dict(arguments), progress_callback=on_progress, meta=params_meta)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and isinstance(self._server.endpoint, Program):
                # The standard error of the server is a separate stream. Its last lines may arrive after the connection
                # has closed.
                await asyncio.wait({self._session_task}, timeout=CLOSE_TIMEOUT_S)
            raise self._to_tool_error(error, http_response) from None
        except (RuntimeError, ValidationError) as error:
            # The response does not match the output schema of the tool, or the protocol.
            raise RemoteFailed(str(error)) from None
        finally:
            _current_response.reset(token)
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    def _to_tool_error(self, error: MCPError, http_response: _HttpResponse) -> Exception:
        if is_session_gone(error.code, error.message):
            self._stop_event.set()
        if error.code == CONNECTION_CLOSED and isinstance(self._server.endpoint, Program):
            return RemoteFailed(f"the server ended during the call, so the result is unknown{self._last_output()}")
        status = http_response.status if http_response.status is not None and http_response.status >= 400 else None
        return tool_error_of(
            error.code,
            error.message,
            status=status,
            retry_after=http_response.retry_after,
            requested_by=http_response.requested_by,
        )

    async def close(self) -> None:
        """Close the connection, end the server if it is a program, and wait until it has ended."""
        self._stop_event.set()
        _, running_tasks = await asyncio.wait({self._session_task}, timeout=CLOSE_TIMEOUT_S)
        if running_tasks:
            await self._cancel_session()

    async def _cancel_session(self) -> None:
        """Cancel a session that does not end by itself, and wait until the session has ended."""
        # Cancel the scope, not the task: the SDK's shutdown of a program is shielded from cancelled scopes only.
        self._scope.cancel()
        await asyncio.wait({self._session_task}, timeout=CLOSE_TIMEOUT_S)

    def _last_output(self) -> str:
        return f"; its last output: {self._stderr.text}" if self._stderr.text else ""

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._keep_client_open()
        # Top level of a task that is not awaited: `end_reason` reports the error.
        except Exception as error:
            self._end_error = _first_leaf(error)
        finally:
            self._stop_event.set()
        await asyncio.to_thread(self._stderr.wait)

    async def _keep_client_open(self) -> None:
        async with Client(
            _report_end(self._open_transport(), self._stop_event.set),
            message_handler=self._handle_message,
            client_info=mcp_types.Implementation(name="dagwright", version=__version__),
            cache=None,
        ) as client:
            self._client_future.set_result(client)
            listen_task = asyncio.create_task(self._listen(client))
            await self._stop_event.wait()
            listen_task.cancel()

    async def _listen(self, client: Client) -> None:
        """Subscribe to tool changes, for protocol versions that send them only to subscribers."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with suppress(MCPError, SubscriptionLost):
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.has_changed_tools = True
        # The subscription was lost, so changes after the loss were missed.
        self.has_changed_tools = True

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.has_changed_tools = True

    def _open_transport(self) -> AbstractAsyncContextManager[Any]:
        endpoint = self._server.endpoint
        return self._run_program(endpoint) if isinstance(endpoint, Program) else _connect_to_address(endpoint)

    @asynccontextmanager
    async def _run_program(self, program: Program) -> AsyncIterator[Any]:
        parameters = StdioServerParameters(
            command=program.command, args=[*program.args], env=dict(program.env), cwd=program.cwd
        )
        with self._stderr.capture() as file:
            async with stdio_client(parameters, errlog=file) as streams:
                yield streams


@asynccontextmanager
async def _connect_to_address(address: Address) -> AsyncIterator[Any]:
    # A tool may be silent until its timeout; Temporal's timeout of the attempt ends calls that hang.
    timeout = httpx2.Timeout(30.0, read=None)
    hooks = {"response": [_record_response]}
    async with (
        httpx2.AsyncClient(headers=dict(address.headers), timeout=timeout, event_hooks=hooks) as http,
        streamable_http_client(address.url, http_client=http, max_sse_event_size=_MAX_EVENT_BYTES) as streams,
    ):
        yield streams


async def _record_response(response: httpx2.Response) -> None:
    # The SDK propagates the context of the call to the task that sends its request.
    http_response = _current_response.get()
    if http_response is not None and response.request.method == "POST":
        http_response.status = response.status_code
        http_response.retry_after = requested_delay(response.headers)
        http_response.requested_by = requesting_service(response.status_code, response.request.url.host)


@asynccontextmanager
async def _report_end(transport: AbstractAsyncContextManager[Any], on_end: Callable[[], None]) -> AsyncIterator[Any]:
    """Enter a transport, and call `on_end` when the server closes its stream."""
    async with transport as (read_stream, write_stream):
        yield _EndReportingStream(read_stream, on_end), write_stream


class _EndReportingStream:
    """Stream of messages from a server. Calls `on_end` when the stream ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> contextvars.Context | None:
        """Context in which the newest message was sent, if the transport provides it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _first_leaf(error: BaseException) -> BaseException:
    """Return the first leaf error of an exception group; the SDK's task groups nest several groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
