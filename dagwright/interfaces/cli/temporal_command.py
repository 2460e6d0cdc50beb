"""`temporal`: run the Temporal CLI against the local server of the state folder."""

import os
from collections.abc import Sequence

from dagwright.interfaces.cli.command_connection import command_settings
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.server import LocalServer, configured_server
from dagwright.server.binary import get_binary


def temporal(arguments: Sequence[str], output: Output) -> int:
    """Replace this process with the `temporal` program, which is installed if it is missing.

    Raises:
        ServerUnreachable: the program is missing and cannot be installed.
    """
    settings = command_settings()
    binary_paths: list[str] = []

    async def work(_: InterruptHandling) -> int:
        binary = await get_binary(settings.cache_home, preferred_version=None)
        binary_paths.append(str(binary.path))
        return ExitCode.COMPLETED

    if (code := run_async(work, output)) != ExitCode.COMPLETED:
        return code
    server = None if "TEMPORAL_ADDRESS" in configured_server() else LocalServer(settings).find()
    address_variable = {} if server is None else {"TEMPORAL_ADDRESS": server.address}
    os.execve(binary_paths[0], ["temporal", *arguments], settings.environment_with(address_variable))
