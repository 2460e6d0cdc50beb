"""Commands of an application: options, output, and errors with an exit code."""

from dagwright.interfaces.cli.command_dispatch import call
from dagwright.interfaces.cli.error_boundary import guarded, leave
from dagwright.interfaces.cli.exit_codes import CommandRefused, ExitCode, Refusal, exit_code_of
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plan_input import STANDARD_INPUT
from dagwright.interfaces.cli.process_exit import leave_at_once
from dagwright.interfaces.cli.shared_options import Json, NoColor, PlainGroup, PlainHelp

__all__ = [
    "STANDARD_INPUT",
    "CommandRefused",
    "ExitCode",
    "Json",
    "NoColor",
    "Output",
    "PlainGroup",
    "PlainHelp",
    "Refusal",
    "call",
    "exit_code_of",
    "guarded",
    "leave",
    "leave_at_once",
    "one_line",
]
