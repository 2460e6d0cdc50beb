"""Commands of an application: options, output, and errors with an exit code."""

from dagwright.interfaces.cli.calling import call
from dagwright.interfaces.cli.edge import guarded, leave
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode, exit_code_of
from dagwright.interfaces.cli.leaving import leave_at_once
from dagwright.interfaces.cli.options import Json, NoColor, PlainGroup, PlainHelp
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plans import STANDARD_INPUT

__all__ = [
    "STANDARD_INPUT",
    "CommandRefused",
    "ExitCode",
    "Json",
    "NoColor",
    "Output",
    "PlainGroup",
    "PlainHelp",
    "call",
    "exit_code_of",
    "guarded",
    "leave",
    "leave_at_once",
    "one_line",
]
