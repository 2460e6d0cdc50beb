"""How commands come to a server, with logging set up as a command line wants it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from dagwright.interfaces.cli.output import Output
from dagwright.logging import configure_logging
from dagwright.server import Connection, LocalServer, Server, open_connection
from dagwright.settings import Settings, load_settings


def command_settings() -> Settings:
    """Reads the settings and starts logging: only errors unless a level was asked for.

    That a tool failed is in the picture and in the result; as log lines it would be told three times more.
    """
    settings = load_settings()
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "error"})
    configure_logging(settings)
    return settings


def lasting_server(connection: Connection, settings: Settings) -> Server:
    """Returns the server, without its UI if both end with this command: a link would lead nowhere."""
    server = connection.server
    stays = server.pid is None or LocalServer(settings).is_kept()
    return server if stays else replace(server, ui_url=None)


@asynccontextmanager
async def connected_to_read(settings: Settings, output: Output) -> AsyncIterator[Connection]:
    """Connects for a command that only looks; says so if a server had to be started for it.

    Raises:
        ServerUnreachable: none could be had.
    """
    was_running = LocalServer(settings).find() is not None
    async with open_connection(settings) as connection:
        if connection.server.pid is not None and not was_running:
            output.tell("no server was running here, so one was started to read; it ends with this command")
            yield replace(connection, server=lasting_server(connection, settings))
        else:
            yield connection
