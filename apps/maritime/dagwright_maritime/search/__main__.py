"""Start and stop the search server of the state folder: `python -m dagwright_maritime.search up`, and `down`."""

import argparse
import asyncio
import sys

from dagwright.settings import SettingsError, load_settings, settings_as
from dagwright_maritime.search.errors import NoSearchServer
from dagwright_maritime.search.server import LocalSearch
from dagwright_maritime.settings import MaritimeSettings

_NO_SERVER = 4
_BAD_USAGE = 2


def main() -> int:
    """Return the exit code: 0 on success, 2 for invalid settings, 4 if there is no server."""
    parser = argparse.ArgumentParser(prog="python -m dagwright_maritime.search", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    command = parser.parse_args().command
    try:
        settings = settings_as(MaritimeSettings, load_settings())
        asyncio.run(_start_server(settings) if command == "up" else _stop_server(settings))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return _BAD_USAGE
    except NoSearchServer as error:
        sys.stderr.write(f"{error}\n")
        return _NO_SERVER
    return 0


async def _start_server(settings: MaritimeSettings) -> None:
    server = await LocalSearch.from_settings(settings).start()
    sys.stdout.write(f"{server.address}\n")
    if settings.opensearch_url is not None:
        sys.stderr.write("commands use another server: DAGWRIGHT_OPENSEARCH_URL is set\n")


async def _stop_server(settings: MaritimeSettings) -> None:
    was_running = await LocalSearch.from_settings(settings).stop()
    sys.stdout.write(
        "the search server was stopped\n" if was_running else f"no search server runs in {settings.state_dir}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
