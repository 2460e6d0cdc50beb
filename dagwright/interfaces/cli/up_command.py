"""`up` and `down`: start and end server, worker and gateway in the background.

`down` also ends the servers of plugins.
"""

from dagwright.client.connecting import prepare_to_start
from dagwright.core.plugins import installed_plugins
from dagwright.interfaces.cli.background import start_gateway, start_worker
from dagwright.interfaces.cli.background_settings import reject_other_settings
from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.run_host import settings_with_plans, templates_of
from dagwright.interfaces.cli.server_commands import UpArguments
from dagwright.server import LocalServer, open_connection
from dagwright.toolset.toolset import load_toolset, references_of


def up(arguments: UpArguments, output: Output) -> int:
    """Start server, worker and gateway unless they already run; all three run until `down`.

    Raises:
        CommandError: the gateway does not start, or a running process has other settings.
        TemplatesUnreadable: the folder of templates (`--plans`) cannot be read or has no plan.
    """
    settings = settings_with_plans(command_settings(), arguments.plans)
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    # The plans are checked before anything starts, because the gateway reports problems only in its log.
    templates_of(settings, toolset)
    reject_other_settings(settings)

    async def work(_: InterruptHandling) -> int:
        async with open_connection(settings) as connection:
            await prepare_to_start(connection, settings, toolset)
            worker, is_new_worker = await start_worker(settings, toolset)
            LocalServer(settings).keep_running()
            program = LocalServer(settings).program() if connection.server.pid is not None else None
            gateway_address, is_new_gateway = await start_gateway(settings, toolset, port=arguments.port)
        server = connection.server
        if output.is_json:
            document: dict[str, str | None] = {"status": "up", "address": server.address, "namespace": server.namespace}
            document |= {"url": f"{gateway_address}/v1"}
            document |= {"ui_url": server.ui_url, "worker_log": str(worker.log_path), "temporal": program}
            output.document(document)
        else:
            output.print(f"server at {server.address}, namespace {server.namespace}")
            if program is not None:
                output.print(f"temporal program: {program}")
            output.print(f"worker {'started' if is_new_worker else 'runs already'}; its log: {worker.log_path}")
            output.print(f"API at {gateway_address}/v1{'' if is_new_gateway else ', which runs already'}")
            output.print(f"console at {gateway_address}/console/")
            if server.ui_url:
                output.print(f"Temporal UI: {server.ui_url}")
        return ExitCode.COMPLETED

    return run_async(work, output)


def down(_: None, output: Output) -> int:
    """End the workers, gateway, server and plugin servers of this folder; the exit code is always 0."""
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        ended_names = await LocalServer(settings).stop()
        # The servers of plugins end after the workers, because a worker that drains may still need them.
        for installed_plugin in installed_plugins():
            if (stop := installed_plugin.plugin.stop) is not None:
                ended_names += await installed_plugin.load(stop)(settings)
        message = f"ended: {', '.join(ended_names)}" if ended_names else "nothing was running here"
        if output.is_json:
            output.document({"status": "down", "ended": ended_names, "message": message})
        else:
            output.print(message)
        return ExitCode.COMPLETED

    return run_async(work, output)
