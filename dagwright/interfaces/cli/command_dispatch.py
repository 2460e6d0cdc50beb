"""Call the module that implements a command.

The import inside `call` is the only import that is not at the top: `check` needs no Temporal, and `run` has 1.5 s
from the shell to its first node.
"""

import importlib

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.command_arguments import refuse_half_characters
from dagwright.interfaces.cli.output import Output


def call(module: str, function: str, request: object, output: Output, *, extra: str | None = None) -> int:
    """Import the module of a command and call its function, which returns the exit code.

    Args:
        module: in this package, or the full name of a module of an application.
        extra: the extra with the libraries that the module imports.

    Raises:
        CommandRefused: a text of the request is not valid UTF-8.
        MissingExtra: the extra is not installed.
    """
    if extra is not None:
        require_extra(extra)
    refuse_half_characters(request)
    # Tools are loaded and run in this process, and may print.
    with output.alone():
        command = getattr(
            importlib.import_module(module if "." in module else f"dagwright.interfaces.cli.{module}"), function
        )
        code: int = command(request, output)
    return code
