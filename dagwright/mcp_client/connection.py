"""Connection of a worker to an MCP server.

The first call opens the connection. After a crash, the next call reopens the connection. The worker closes the
connection when it stops.
"""

import asyncio
import contextvars
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from dagwright.core.extras import require_extra
from dagwright.core.name_hints import suggestion
from dagwright.mcp_client.call_results import failure_text, locations_of, result_of
from dagwright.mcp_client.config import ServerConfig
from dagwright.mcp_client.listing import versions_of
from dagwright.tools.context import ToolContext
from dagwright.tools.errors import NotStarted, RemoteFailed, ToolChanged, ToolError
from dagwright.tools.redaction import Redaction

if TYPE_CHECKING:
    from dagwright.mcp_client.session import McpSession

LIST_VALID_S = 60.0
"""Seconds for which a list of tools is valid. A limit is needed because a server that is redeployed at the same URL
sends no notification."""
MAX_RESTART_DELAY_S = 30.0
"""Maximum delay before a server that crashes repeatedly is restarted."""
HEALTHY_S = 60.0
"""A server that crashes after running this long is restarted without delay."""
IDEMPOTENCY_KEY_META = "dagwright/idempotencyKey"
"""Key in `_meta` of calls with side effects: the value is the same for all attempts to make the same change."""

_LOG = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """Call of a server's tool.

    Args:
        tool: name on the server.
        version: required version of the tool; see `dagwright.mcp_client.listing`.
        reads_json: whether a text that is a JSON object or list is parsed.
        sends_key: whether the idempotency key is sent to the server.
    """

    tool: str
    arguments: Mapping[str, Any]
    version: str
    reads_json: bool
    sends_key: bool


class McpConnection:
    """Connection to one server for all calls of a process; must be used on one event loop.

    Args:
        server: configuration of the server.
    """

    def __init__(self, server: ServerConfig) -> None:
        self.server = server
        self._server_name = f"The MCP server {server.name!r}"
        self._redaction = Redaction(server.secrets)
        self._session: McpSession | None = None
        self._former_sessions: list[McpSession] = []
        self._open_task: asyncio.Task[McpSession] | None = None
        self._opened_at = float("-inf")
        self._crash_count = 0
        """Consecutive crashes, without a lifetime of `HEALTHY_S` in between."""
        self._crash_reason = ""
        self._versions: Mapping[str, str] = {}
        self._listed_at = float("-inf")
        self._list_lock = asyncio.Lock()

    async def call(self, remote_call: RemoteCall, context: ToolContext) -> Any:
        """Call a tool and return its result.

        Args:
            context: receives progress and the reason for waiting.

        Raises:
            ToolError: the call failed; the subclass determines whether the call is retried.
        """
        try:
            session = await self._open_session(context)
            await self._check_version(session, remote_call)
        except RemoteFailed as error:
            raise NotStarted(self._error_text(error)) from None
        except ToolError as error:
            error.args = (self._error_text(error),)
            raise
        meta = {IDEMPOTENCY_KEY_META: context.idempotency_key} if remote_call.sends_key else {}
        try:
            response = await session.call(
                remote_call.tool, remote_call.arguments, meta=meta, report_progress=context.progress
            )
        except ToolError as error:
            error.args = (self._error_text(error),)
            raise
        for location in locations_of(remote_call.arguments, response):
            context.record_read(location)
        failure = failure_text(response)
        if failure is not None:
            raise RemoteFailed(self._redaction.redact_text(failure))
        return self._redaction.redact_value(result_of(response, reads_json=remote_call.reads_json))

    async def close(self) -> None:
        """End the server, if it is running, and wait until it has ended."""
        if self._open_task is not None:
            self._open_task.cancel()
            await asyncio.wait({self._open_task})
        sessions = [session for session in [self._session, *self._former_sessions] if session is not None]
        self._session, self._former_sessions = None, []
        await asyncio.gather(*(session.close() for session in sessions))

    def _error_text(self, error: ToolError) -> str:
        return self._redaction.redact_text(f"{self._server_name}: {error}")

    async def _open_session(self, context: ToolContext) -> "McpSession":
        if self._session is not None and self._session.is_unusable:
            self._retire(self._session)
        if self._session is not None:
            return self._session
        if self._open_task is None:
            # Other calls may wait for this task, so it does not use the context of this call, and outlives the call.
            self._open_task = asyncio.create_task(self._open(), context=contextvars.Context())
            self._open_task.add_done_callback(_retrieve_exception)
        if self._crash_count:
            context.heartbeat({"waits_for": f"{self._server_name} is started again: {self._crash_reason}"})
        return await asyncio.shield(self._open_task)

    async def _open(self) -> "McpSession":
        require_extra("mcp")
        from dagwright.mcp_client.session import McpSession  # noqa: PLC0415 - the SDK takes over a second to import

        try:
            if self._crash_count > 1:
                await asyncio.sleep(min(2.0 ** (self._crash_count - 2), MAX_RESTART_DELAY_S))
            self._session = await McpSession.open(self.server)
            self._opened_at = time.monotonic()
            self._listed_at = float("-inf")
            if self._crash_count:
                _LOG.info("an MCP server runs again", server=self.server.name)
            return self._session
        except NotStarted as error:
            self._record_crash(str(error))
            raise
        finally:
            self._open_task = None

    def _retire(self, session: "McpSession") -> None:
        self._session = None
        self._former_sessions = [
            *(former_session for former_session in self._former_sessions if not former_session.is_closed),
            session,
        ]
        if time.monotonic() - self._opened_at >= HEALTHY_S:
            self._crash_count = 0
        self._record_crash(session.end_reason)

    def _record_crash(self, reason: str) -> None:
        self._crash_count += 1
        self._crash_reason = self._redaction.redact_text(reason)
        _LOG.warning("an MCP server is gone", server=self.server.name, why=self._crash_reason, times=self._crash_count)

    async def _check_version(self, session: "McpSession", remote_call: RemoteCall) -> None:
        """Reject a call if the tool differs from the tool that the plan was checked against."""
        async with self._list_lock:
            if session.has_changed_tools or time.monotonic() - self._listed_at > LIST_VALID_S:
                self._versions = versions_of(self.server, await session.tools())
                self._listed_at = time.monotonic()
        version = self._versions.get(remote_call.tool)
        if version is None:
            hint = suggestion(remote_call.tool, list(self._versions)) or f"it has {', '.join(self._versions) or 'none'}"
            raise ToolChanged(f"the server no longer has the tool {remote_call.tool!r}; {hint}; check the plan again")
        if version != remote_call.version:
            change = "its arguments, result or effects are not those that the plan was checked against"
            raise ToolChanged(f"{remote_call.tool!r} has changed: {change}; check and run the plan again")


def _retrieve_exception(task: "asyncio.Task[McpSession]") -> None:
    """Retrieve the exception of a failed start. Otherwise, asyncio logs the exception if no call waits for the task."""
    if not task.cancelled():
        task.exception()
