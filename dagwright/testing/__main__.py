"""Serve a script until SIGINT or SIGTERM: `python -m dagwright.testing SCRIPT.yaml --port 8081`.

The first line on stdout is the address, for `OPENAI_BASE_URL`. At the end, deviations from the script are reported
and the exit code is 1. If the script is invalid, the exit code is 2.
"""

import argparse
import asyncio
import errno
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dagwright.testing.script import ScriptNotFollowed
from dagwright.testing.script_file import ScriptInvalid, read_script
from dagwright.testing.server import ModelServer


async def _serve(server: ModelServer) -> None:
    stop_requested = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    async with server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await stop_requested.wait()


def main(arguments: Sequence[str]) -> int:
    """Serve according to the arguments and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dagwright.testing", description="Serve a scripted model.")
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="YAML file with the responses")
    parser.add_argument("--port", type=int, default=0, help="port to serve on (default: any free port)")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default 127.0.0.1)")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_serve(read_script(options.script, host=options.host, port=options.port)))
    except ScriptInvalid as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            sys.stderr.write(f"{error}\n")
            return 1
        advice = "end the process that uses it, or choose another `--port` (without `--port`, any free port is used)"
        sys.stderr.write(f"port {options.port} of {options.host} is in use: {advice}\n")
        return 1
    except ScriptNotFollowed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
