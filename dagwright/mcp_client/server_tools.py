"""Tools of MCP servers as tools of a plan: the implementation of `--tools FILE.json`."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dagwright.core.extras import require_extra
from dagwright.core.model.argument_checks import problem_of_call
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.mcp_client.config import ServerConfig, Variables, read_servers
from dagwright.mcp_client.connection import McpConnection, RemoteCall
from dagwright.mcp_client.listing import ListedTool, listed_tools
from dagwright.tools.context import context
from dagwright.tools.errors import InvalidArguments, RemoteFailed, ToolError, ToolLoadError
from dagwright.tools.parameters import Parameters
from dagwright.tools.redaction import Redaction
from dagwright.tools.registry import ToolRegistry
from dagwright.tools.spec import ToolSpec

LIST_TIMEOUT_S = 30.0
"""Timeout for listing all tools of a running server."""


@dataclass(frozen=True, slots=True)
class LoadedServers:
    """Tools of MCP servers, with the connections to the servers.

    Args:
        registry: the tools.
        connections: one connection per server; none is opened before the first call.
    """

    registry: ToolRegistry
    connections: tuple[McpConnection, ...]

    async def close(self) -> None:
        """End all running servers."""
        await asyncio.gather(*(connection.close() for connection in self.connections))


def load_servers(files: Sequence[Path], variables: Variables) -> LoadedServers:
    """Load the tools of the servers in files: connect to each server, list its tools, and disconnect.

    Raises:
        ToolLoadError: a file is invalid, a server cannot be reached, or two tools have the same name.
        MissingExtra: the MCP SDK is not installed.
    """
    file_servers = [(file, server) for file in files for server in read_servers(file, variables)]
    listings = _list_tools([server for _, server in file_servers])
    specs: list[ToolSpec] = []
    sources: dict[str, str] = {}
    connections: list[McpConnection] = []
    for (file, server), tools in zip(file_servers, listings, strict=True):
        connections.append(McpConnection(server))
        try:
            server_tools = listed_tools(server, tools)
        except ToolLoadError as error:
            raise ToolLoadError(f"{file.name}: {error}") from None
        server_specs = [_spec_of(tool, connections[-1]) for tool in server_tools]
        specs += server_specs
        sources.update({spec.name: str(file) for spec in server_specs})
    try:
        return LoadedServers(ToolRegistry.of(*specs, sources=sources), tuple(connections))
    except ValueError as error:
        raise ToolLoadError(f"{', '.join(file.name for file in files)}: {error}") from None


def _list_tools(servers: Sequence[ServerConfig]) -> list[list[dict[str, Any]]]:
    """List the tools of all servers concurrently."""
    listings_future: Future[list[list[dict[str, Any]]]] = Future()

    def list_tools() -> None:
        try:
            listings_future.set_result(asyncio.run(_list_tools_async(servers)))
        # Top level of a thread: pass the error to the waiting thread.
        except BaseException as error:
            listings_future.set_exception(error)

    # Use a separate event loop: if the caller runs on an event loop, this function blocks that loop.
    # Use a daemon thread, so a server that hangs does not block the exit of the process.
    threading.Thread(target=list_tools, name="mcp", daemon=True).start()
    return listings_future.result()


async def _list_tools_async(servers: Sequence[ServerConfig]) -> list[list[dict[str, Any]]]:
    listings = await asyncio.gather(*map(_list_tools_of, servers), return_exceptions=True)
    problems: list[str] = []
    for server, listing in zip(servers, listings, strict=True):
        if isinstance(listing, ToolError):
            problems.append(Redaction(server.secrets).redact_text(f"the MCP server {server.name!r}: {listing}"))
        elif isinstance(listing, BaseException):
            raise listing
    if problems:
        raise ToolLoadError("; ".join(problems))
    return [listing for listing in listings if not isinstance(listing, BaseException)]


async def _list_tools_of(server: ServerConfig) -> list[dict[str, Any]]:
    require_extra("mcp")
    from dagwright.mcp_client.session import McpSession  # noqa: PLC0415 - the SDK takes over a second to import

    session = await McpSession.open(server)
    try:
        async with asyncio.timeout(LIST_TIMEOUT_S):
            return await session.tools()
    except TimeoutError:
        raise RemoteFailed(f"the server does not list its tools within {LIST_TIMEOUT_S:g} s") from None
    finally:
        await session.close()


@dataclass(frozen=True, slots=True)
class _RemoteTool:
    """Tool of a server, called by the function of a `ToolSpec`. The result cache identifies a tool by its `repr`."""

    identity: str
    name: str
    reads_json: bool
    declaration: ToolDeclaration
    connection: McpConnection = field(repr=False)

    async def call(self, arguments: dict[str, Any]) -> Any:
        tool_context = context()
        version = tool_context.checked_version or self.declaration.version
        # The schema of another version is unknown here; the connection checks whether the server has that version.
        problem = problem_of_call(self.declaration, arguments) if version == self.declaration.version else None
        if problem is not None:
            raise InvalidArguments(f"Invalid arguments: {problem}")
        remote_call = RemoteCall(
            tool=self.name,
            arguments=arguments,
            version=version,
            reads_json=self.reads_json,
            sends_key=self.declaration.effects in (Effects.IDEMPOTENT, Effects.WRITE),
        )
        return await self.connection.call(remote_call, tool_context)


def _spec_of(tool: ListedTool, connection: McpConnection) -> ToolSpec:
    remote_tool = _RemoteTool(connection.server.identity, tool.name, tool.reads_json, tool.declaration, connection)

    async def call_remote(arguments: dict[str, Any]) -> Any:
        return await remote_tool.call(arguments)

    schema = {"properties": {}, **(tool.declaration.input_schema or {})}
    any_object: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
    parameters = Parameters(schema, any_object, model_parameter="arguments", extra_adapter=TypeAdapter(Any))
    return ToolSpec(tool.declaration, call_remote, parameters)
