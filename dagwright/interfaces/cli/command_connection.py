"""Settings, logging and server connection of commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from dagwright.client.list_cursors import ListCursor
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.output import Output
from dagwright.logging import configure_logging
from dagwright.server import Connection, LocalServer, Server, open_connection
from dagwright.settings import Settings, load_settings


def command_settings() -> Settings:
    """Load the settings and configure logging.

    By default, only errors are logged: the progress and the result already show failed tools.
    """
    settings = load_settings()
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "error"})
    configure_logging(settings)
    return settings


def server_without_temporary_ui_link(connection: Connection, settings: Settings) -> Server:
    """Return the server, without its UI link if the server ends with this command."""
    server = connection.server
    is_lasting = server.pid is None or LocalServer(settings).is_persistent()
    return server if is_lasting else replace(server, ui_url=None)


@asynccontextmanager
async def open_command_connection(settings: Settings, output: Output) -> AsyncIterator[Connection]:
    """Connect for a command about existing runs; report a server that had to be started.

    Raises:
        RunNotFound: the block raised it. If the server belongs to a state folder, the message names the folder.
        ServerUnreachable: no server is reachable.
    """
    async with open_connection(settings) as connection:
        if connection.server.is_new:
            output.log("no server was running, so one was started for this command; it ends with the command")
        try:
            yield connection
        except RunNotFound as error:
            if connection.server.pid is None or not str(error).startswith("there is no run"):
                raise
            server_text = f"on the server of {settings.state_dir.absolute()}"
            raise RunNotFound(f"{error} {server_text}; a run belongs to the folder in which it was started") from None


@asynccontextmanager
async def open_read_connection(settings: Settings, output: Output) -> AsyncIterator[Connection]:
    """Connect for a command that only reads. The UI links of a server that ends with the command are omitted.

    Raises:
        RunNotFound, ServerUnreachable: as in `open_command_connection`.
    """
    async with open_command_connection(settings, output) as connection:
        is_new = connection.server.is_new
        yield (
            replace(connection, server=server_without_temporary_ui_link(connection, settings)) if is_new else connection
        )


def parse_cursor(after: str | None) -> ListCursor | None:
    """Parse `--after`.

    Raises:
        CommandError: the value is not a cursor of a list.
    """
    try:
        return None if after is None else ListCursor.parse(after)
    except ValueError:
        raise CommandError(f"--after: {after!r:.80} is not the cursor that a list has returned") from None


def next_page_field(cursor: ListCursor | None) -> dict[str, str | None]:
    """Return the field `cursor` of a JSON list: the value of `--after` for the next page."""
    return {"cursor": None if cursor is None else str(cursor)}
