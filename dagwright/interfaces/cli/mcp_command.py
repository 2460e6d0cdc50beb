"""`mcp`: serve clients of the Model Context Protocol, on standard input and output or by HTTP."""

import socket
from contextlib import AsyncExitStack

from dagwright.client.runs import namespace_runs
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.run_host import (
    open_start_connection,
    serve_unless_served_elsewhere,
    settings_with_plans,
    templates_of,
)
from dagwright.interfaces.cli.server_commands import MCP_HOST, MCP_PORT, McpArguments
from dagwright.interfaces.mcp.server import create_server
from dagwright.interfaces.mcp.transports import PATH, StdioStreams, serve_http, serve_stdio
from dagwright.process.listening import PortTaken, address_of, is_local, open_socket
from dagwright.toolset.toolset import load_toolset, references_of


def mcp(arguments: McpArguments, output: Output) -> int:
    """Serve until the client disconnects, or until SIGINT or SIGTERM. Other workers then continue the runs.

    Raises:
        CommandError: the address is not available, or `--host` or `--port` is given without `--http`.
        TemplatesUnreadable: the template folder cannot be read or has no plan.
    """
    if not arguments.is_http and (arguments.host is not None or arguments.port is not None):
        raise CommandError("--host and --port need --http; without --http, the MCP client starts this command itself")
    # The streams are reserved before tools are imported, because tools may print.
    stdio_streams = None if arguments.is_http else StdioStreams()
    settings = settings_with_plans(command_settings(), arguments.plans)
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    templates = templates_of(settings, toolset)
    listener = _open_listener(arguments) if arguments.is_http else None

    async def work(interrupt_handling: InterruptHandling) -> int:
        async with (
            open_start_connection(settings, toolset, requires_same_settings=False) as connection,
            AsyncExitStack() as stack,
        ):
            has_worker = not arguments.no_worker
            if has_worker:
                worker = serve_unless_served_elsewhere(connection.client, toolset, settings=settings, report=output.log)
                has_worker = await stack.enter_async_context(worker)
            runs = namespace_runs(connection, settings)
            server = create_server(
                runs=runs,
                sessions=Sessions(connection, runs, task_queue=settings.task_queue),
                steering=Steering(connection),
                toolset=toolset,
                templates=templates if templates is not None else {},
                has_worker=has_worker,
            )
            if stdio_streams is not None:
                await serve_stdio(server, stdio_streams)
            elif listener is not None:
                output.log(f"MCP server at {address_of(listener)}{PATH}; Ctrl-C ends it")
                await serve_http(server, listener, host=arguments.host or MCP_HOST)
            interrupt_handling.exit_watchdog.start(ExitCode.COMPLETED)
        return ExitCode.COMPLETED

    return run_async(work, output)


def _open_listener(arguments: McpArguments) -> socket.socket:
    """Open the listening socket: on localhost, unless `--no-auth` allows other addresses.

    Raises:
        CommandError: the address is not available, or other machines can reach it.
    """
    host, port = arguments.host or MCP_HOST, MCP_PORT if arguments.port is None else arguments.port
    try:
        listener = open_socket(host, port)
    except PortTaken as error:
        raise CommandError(str(error)) from None
    if not arguments.no_auth and not is_local(listener):
        listener.close()
        raise CommandError(
            f"any client that reaches {host} could do everything, because the MCP server has no keys: give "
            "--no-auth if a proxy authenticates the clients"
        )
    return listener
