"""`serve`: the gateway, with a worker in the same process unless `--no-worker` is given."""

import socket
from contextlib import closing
from pathlib import Path

from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, append_link
from dagwright.interfaces.cli.process_exit import ExitWatchdog, create_stop_event
from dagwright.interfaces.cli.run_host import open_start_connection, serving_toolset, settings_with_plans, templates_of
from dagwright.interfaces.cli.server_commands import ServeArguments
from dagwright.interfaces.http.allowed_hosts import ALL, split_at_commas
from dagwright.interfaces.http.api_keys import KeyFile, KeysUnreadable
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.console import ROOT as CONSOLE
from dagwright.interfaces.http.context import open_context
from dagwright.plans.templates import TemplateFolder
from dagwright.process import event_loop
from dagwright.process.listening import PortTaken, address_of, is_local, open_socket, serving_app
from dagwright.settings import Settings
from dagwright.store.private_files import write_private
from dagwright.toolset.toolset import Toolset, load_toolset, references_of


def serve(arguments: ServeArguments, output: Output) -> int:
    """Serve the HTTP API until SIGINT or SIGTERM; write the address of the API when the API is ready.

    Raises:
        CommandError: the address is not available.
        TemplatesUnreadable: the folder of templates (`--plans`) cannot be read or has no plan.
    """
    settings = settings_with_plans(command_settings(), arguments.plans)
    toolset = load_toolset(settings, references_of(arguments.tools, arguments.agents, arguments.tools_queue))
    templates = templates_of(settings, toolset)
    return event_loop.run(_serve(arguments, settings, toolset, templates, output=output))


def _check_key_file(settings: Settings) -> None:
    """Check that a configured file of keys exists. Without the file, the API would require no key.

    Raises:
        CommandError: the file does not exist.
    """
    if "api_keys" in settings.model_fields_set and not settings.api_keys.exists():
        fix = "create a key with `dagwright keys add OWNER`, or unset DAGWRIGHT_API_KEYS"
        raise CommandError(
            f"the file of keys {settings.api_keys} does not exist: {fix}", code=CommandErrorCode.UNREADABLE
        )


def _check_address(listener: socket.socket, key_file: KeyFile, *, requires_auth: bool) -> None:
    """Check that keys are required on an address that other machines can reach.

    Raises:
        CommandError: there are no keys, or the key file cannot be read.
    """
    try:
        has_keys = key_file.requires_keys()
    except KeysUnreadable as error:
        raise CommandError(str(error), code=CommandErrorCode.UNREADABLE) from None
    if requires_auth and not has_keys and not is_local(listener):
        raise CommandError(
            f"any client that reaches {listener.getsockname()[0]} could do everything: create a key with "
            "`dagwright keys add OWNER`, or give --no-auth if a proxy authenticates the clients"
        )


def _check_origins(settings: Settings, key_file: KeyFile, *, requires_auth: bool) -> None:
    """Check that the API needs keys if pages of all origins may use it.

    Raises:
        CommandError: all origins are allowed, and there are no keys.
    """
    if requires_auth and ALL in split_at_commas(settings.api_origins) and not key_file.requires_keys():
        raise CommandError(
            "DAGWRIGHT_API_ORIGINS is *, so a page of any site could do everything: list your origins, create a "
            "key with `dagwright keys add OWNER`, or give --no-auth if a proxy authenticates the clients"
        )


async def _serve(
    arguments: ServeArguments, settings: Settings, toolset: Toolset, templates: TemplateFolder | None, *, output: Output
) -> int:
    signal_event = create_stop_event()
    try:
        listener = open_socket(arguments.host, arguments.port)
    except PortTaken as error:
        raise CommandError(str(error)) from None
    with listener, closing(ExitWatchdog()) as exit_watchdog:
        _check_key_file(settings)
        key_file = KeyFile(settings.api_keys)
        _check_address(listener, key_file, requires_auth=not arguments.no_auth)
        _check_origins(settings, key_file, requires_auth=not arguments.no_auth)
        worker_toolset = None if arguments.no_worker else toolset
        async with (
            open_start_connection(settings, toolset, requires_same_settings=not arguments.no_worker) as connection,
            open_context(settings, connection, toolset, template_folder=templates) as context,
            serving_app(
                create_app(context, host=arguments.host),
                listener,
                stop_event=context.stop_event,
                proxies=settings.api_proxies,
            ),
            # The worker is the innermost context, so that the gateway still reports its state while the worker drains.
            serving_toolset(connection.client, worker_toolset, settings=settings),
        ):
            address = address_of(listener)
            if arguments.address_file is not None:
                write_private(Path(arguments.address_file), address)
            if output.is_json:
                server = connection.server
                document = {"status": "serving", "url": f"{address}/v1", "address": server.address}
                output.document({**document, "ui_url": server.ui_url}, is_single_line=True)
            else:
                output.print(append_link(f"API at {address}/v1", connection.server.runs_url()))
                output.print(f"console at {address}{CONSOLE}/")
            await signal_event.wait()
            context.stop_event.set()
            exit_watchdog.start(ExitCode.COMPLETED)
    return ExitCode.COMPLETED
