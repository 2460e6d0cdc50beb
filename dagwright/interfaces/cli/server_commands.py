"""Names, options and help of `serve` and `up`; what they do is in `serving` and `parts`."""

from typing import Annotated

import typer

from dagwright.interfaces.cli.calling import call
from dagwright.interfaces.cli.options import Agents, Json, Plans, Tools, ToolsQueue, with_queue
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.requests import ServeRequest, UpRequest

Port = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="PORT", min=0, max=65535, help="0 is any free one; 8484, or a free one, if left out."
    ),
]


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
    """Serve the API that speaks OpenAI's protocol, until told to stop."""
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
    return call("serving", "serve", request, Output(is_json=json))


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
    return call("parts", "up", request, Output(is_json=json))
