"""Names, options and help of `worker`, `serve`, `up` and `mcp`; other modules do the work."""

from typing import Annotated

import typer

from dagwright.interfaces.cli.calling import call
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.options import Agents, Json, Plans, Tools, ToolsQueue, with_queue
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.requests import McpRequest, ServeRequest, UpRequest, WorkerRequest

Port = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="PORT", min=0, max=65535, help="0 is any free one; 8484, or a free one, if left out."
    ),
]


def worker(
    *,
    tools: Tools = None,
    agents: Agents = None,
    task_queue: Annotated[
        str | None, typer.Option("--task-queue", metavar="QUEUE", help="Queue of workflows and built-in tools.")
    ] = None,
    tools_queue: ToolsQueue = None,
    json: Json = False,
) -> int:
    """Serve runs and tools until SIGTERM or SIGINT."""
    request = WorkerRequest(with_queue(tools, tools_queue), agents or [], task_queue)
    return call("worker", "worker", request, Output(is_json=json))


def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 is all of this machine.")
    ] = "127.0.0.1",
    port: Port = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plans: Plans = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Leave the runs to other workers.")] = False,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Let everybody who reaches another address than localhost do all.")
    ] = False,
    told: Annotated[str | None, typer.Option("--told", hidden=True)] = None,
    json: Json = False,
) -> int:
    """Serve the API that speaks OpenAI's protocol, until SIGTERM or SIGINT."""
    request = ServeRequest(
        host,
        port,
        with_queue(tools, tools_queue),
        agents or [],
        plans,
        is_serving=not no_worker,
        needs_keys=not no_keys,
        told=told,
    )
    return call("serving", "serve", request, Output(is_json=json), extra="gateway")


def up(
    *,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plans: Plans = None,
    port: Port = None,
    json: Json = False,
) -> int:
    """Start server, worker and API in the background, until `down`."""
    request = UpRequest(with_queue(tools, tools_queue), agents or [], plans, port)
    return call("parts", "up", request, Output(is_json=json), extra="gateway")


_HOST = "127.0.0.1"
_PORT = 8765


def mcp(
    *,
    http: Annotated[
        bool, typer.Option("--http", help="Serve by streamable HTTP; else one client on standard input and output.")
    ] = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help=f"Where to listen with --http; else {_HOST}.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=0, max=65_535, help=f"With --http; else {_PORT}. 0 is a free one."),
    ] = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plans: Plans = None,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Let everybody who reaches another address than localhost do all.")
    ] = False,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Leave the runs to other workers.")] = False,
) -> int:
    """Be an MCP server: clients run plans, ask, answer and fetch."""
    if not http and (host is not None or port is not None):
        raise CommandRefused("--host and --port go with --http: without it the client starts this command itself")
    request = McpRequest(
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        plans=plans,
        host=host or _HOST,
        port=_PORT if port is None else port,
        is_http=http,
        is_serving=not no_worker,
        needs_keys=not no_keys,
    )
    return call("mcp_serving", "mcp", request, Output(), extra="mcp")
