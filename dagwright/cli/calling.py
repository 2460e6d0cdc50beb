"""How the options of a command get to the module that does its work.

The import inside of `call` is the one exception to "imports at the top": `check` needs no Temporal, and `run` has 1.5 s
from the shell to its first node.
"""

import importlib
from collections.abc import Mapping

from dagwright.cli.exits import CommandRefused
from dagwright.cli.output import Output
from dagwright.cli.requests import refuse_half_characters


def call(module: str, function: str, request: object, output: Output) -> int:
    """Loads the module of a command and calls the function in it, which returns the exit code.

    Raises:
        CommandRefused: a text of the request is no UTF-8.
    """
    refuse_half_characters(request)
    command = getattr(importlib.import_module(f"dagwright.cli.{module}"), function)
    code: int = command(request, output)
    return code


def refuse_for_now(options: Mapping[str, str | float | bool | None]) -> None:
    """Refuses options that have their place in the command line and nothing behind them.

    Raises:
        CommandRefused: one of them was given.
    """
    for name, value in options.items():
        if value is not None and value is not False:
            raise CommandRefused(f"{name} is not available yet", status="not_available")
