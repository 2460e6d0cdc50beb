"""Names, options and help of `worker`, `serve`, `up`, `down`, `temporal` and `mcp`; other modules do the work."""

from typing import Annotated

import typer

from dagwright.interfaces.cli.command_arguments import McpRequest, ServeRequest, UpRequest, WorkerRequest, WorkerRole
from dagwright.interfaces.cli.command_dispatch import call
from dagwright.interfaces.cli.exit_codes import CommandRefused
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.shared_options import Agents, Json, NoWorker, Plans, Tools, ToolsQueue, with_queue

Port = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="PORT", min=0, max=65535, help="Port, 0 for any free one; default: 8484, or a free one."
    ),
]

NoAuth = Annotated[
    bool, typer.Option("--no-auth", help="Serve other addresses than localhost without keys, to any client.")
]


def worker(
    *,
    tools: Tools = None,
    agents: Agents = None,
    task_queue: Annotated[
        str | None, typer.Option("--task-queue", metavar="QUEUE", help="Task queue of workflows and built-in tools.")
    ] = None,
    tools_queue: ToolsQueue = None,
    serve: Annotated[
        WorkerRole | None,
        typer.Option(
            "--serve",
            metavar="ROLE",
            help="workflows executes runs, tools calls tools and models, all does both; default: DAGWRIGHT_SERVE.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Run a worker until SIGTERM or SIGINT."""
    request = WorkerRequest(with_queue(tools, tools_queue), agents or [], task_queue, serve)
    return call("worker_command", "worker", request, Output(is_json=json))


def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Port = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plans: Plans = None,
    no_worker: NoWorker = False,
    no_auth: NoAuth = False,
    address_file: Annotated[str | None, typer.Option("--address-file", hidden=True)] = None,
    json: Json = False,
) -> int:
    """Serve the OpenAI-compatible HTTP API until SIGTERM or SIGINT."""
    request = ServeRequest(
        host,
        port,
        with_queue(tools, tools_queue),
        agents or [],
        plans,
        is_serving=not no_worker,
        needs_keys=not no_auth,
        address_file=address_file,
    )
    return call("serve_command", "serve", request, Output(is_json=json), extra="gateway")


def up(
    *,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plans: Plans = None,
    port: Port = None,
    json: Json = False,
) -> int:
    """Start server, worker and HTTP API in the background."""
    request = UpRequest(with_queue(tools, tools_queue), agents or [], plans, port)
    return call("up_command", "up", request, Output(is_json=json), extra="gateway")


def down(*, json: Json = False) -> int:
    """Stop the background processes of this folder."""
    return call("up_command", "down", None, Output(is_json=json))


def temporal(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Command and options of `temporal`.")
    ] = None,
) -> int:
    """Run Temporal's command line on the server of this folder.

    If `TEMPORAL_ADDRESS` is set, the server of this address is used.
    """
    return call("temporal_command", "temporal", arguments or [], Output())


_HOST = "127.0.0.1"
_PORT = 8765


def mcp(
    *,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP; default: one client on standard input and output.")
    ] = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help=f"Address to listen on with --http; default: {_HOST}.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65_535, help=f"Port with --http, 0 for any; default: {_PORT}."
        ),
    ] = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plans: Plans = None,
    no_auth: NoAuth = False,
    no_worker: NoWorker = False,
) -> int:
    """Serve plans, requests and feedback as MCP tools."""
    if not http and (host is not None or port is not None):
        raise CommandRefused("--host and --port need --http; without it the MCP client starts this command itself")
    request = McpRequest(
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        plans=plans,
        host=host or _HOST,
        port=_PORT if port is None else port,
        is_http=http,
        is_serving=not no_worker,
        needs_keys=not no_auth,
    )
    return call("mcp_command", "mcp", request, Output(), extra="mcp")
