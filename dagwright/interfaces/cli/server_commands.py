"""Names, options and help of `worker`, `serve`, `up`, `down`, `temporal` and `mcp`.

Other modules implement the commands.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from dagwright.interfaces.cli.command_dispatch import call_command, command
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.shared_options import Agents, Json, NoWorker, Plans, Tools, ToolsQueue

WorkerRole = Literal["all", "workflows", "tools"]
"""The values of `DAGWRIGHT_SERVE`, repeated here because importing the settings would slow down most commands."""
MCP_HOST, MCP_PORT = "127.0.0.1", 8765
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port, or 0 for any free port; default: 8484, or any free port if 8484 is in use.",
    ),
]

NoAuth = Annotated[
    bool, typer.Option("--no-auth", help="Start without API keys, even if other machines can reach the address.")
]


@dataclass(frozen=True, slots=True)
class WorkerArguments:
    """Arguments of `worker`. The settings have the default task queue and role."""

    tools: Tools = ()
    agents: Agents = ()
    task_queue: Annotated[
        str | None, typer.Option("--task-queue", metavar="QUEUE", help="Task queue of workflows and built-in tools.")
    ] = None
    tools_queue: ToolsQueue = None
    serve: Annotated[
        WorkerRole | None,
        typer.Option(
            "--serve",
            metavar="ROLE",
            help="Role: workflows (execute runs), tools (call tools and models) or all; default: DAGWRIGHT_SERVE.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ServeArguments:
    """Arguments of `serve`.

    Args:
        address_file: file for the address of the API; the command that started this process reads it.
    """

    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 for all.")] = (
        "127.0.0.1"
    )
    port: Port = None
    tools: Tools = ()
    agents: Agents = ()
    tools_queue: ToolsQueue = None
    plans: Plans = None
    no_worker: NoWorker = False
    no_auth: NoAuth = False
    address_file: Annotated[str | None, typer.Option("--address-file", hidden=True)] = None


@dataclass(frozen=True, slots=True)
class UpArguments:
    """Arguments of `up`; `plans` and `port` as for `serve`."""

    tools: Tools = ()
    agents: Agents = ()
    tools_queue: ToolsQueue = None
    plans: Plans = None
    port: Port = None


@dataclass(frozen=True, slots=True)
class McpArguments:
    """Arguments of `mcp`."""

    is_http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP; default: one client on standard input and output.")
    ] = False
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help=f"Address to listen on with --http; default: {MCP_HOST}."),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65_535,
            help=f"Port with --http, 0 for any free port; default: {MCP_PORT}.",
        ),
    ] = None
    tools: Tools = ()
    agents: Agents = ()
    tools_queue: ToolsQueue = None
    plans: Plans = None
    no_auth: NoAuth = False
    no_worker: NoWorker = False


_JSON_OPTION = {"json": Json}

worker = command(
    WorkerArguments,
    "worker_command",
    "worker",
    summary="Run a worker until SIGTERM or SIGINT.",
    output_options=_JSON_OPTION,
)
serve = command(
    ServeArguments,
    "serve_command",
    "serve",
    summary="Serve the OpenAI-compatible HTTP API until SIGTERM or SIGINT.",
    extra="gateway",
    output_options=_JSON_OPTION,
)
up = command(
    UpArguments,
    "up_command",
    "up",
    summary="Start server, worker and HTTP API in the background.",
    extra="gateway",
    output_options=_JSON_OPTION,
)
mcp = command(
    McpArguments,
    "mcp_command",
    "mcp",
    summary="Serve plans, requests and feedback as MCP tools.",
    extra="mcp",
    output_options={},
)


def down(*, json: Json = False) -> int:
    """Stop the background processes of this folder."""
    return call_command("up_command", "down", None, Output(is_json=json))


def temporal(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Command and options of `temporal`.")
    ] = None,
) -> int:
    """Run Temporal's command line on the server of this folder.

    If `TEMPORAL_ADDRESS` is set, the server at this address is used.
    """
    return call_command("temporal_command", "temporal", arguments or [], Output())
