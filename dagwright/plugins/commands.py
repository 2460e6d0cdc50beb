"""Commands of an application: options, output, and errors with an exit code."""

from dagwright.interfaces.cli.command_dispatch import call_command
from dagwright.interfaces.cli.error_boundary import end_process, run_guarded
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode, exit_code_of
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plan_input import STANDARD_INPUT
from dagwright.interfaces.cli.process_exit import end_process_at_once
from dagwright.interfaces.cli.shared_options import DocumentedCommand, DocumentedGroup, Json, NoColor

__all__ = [
    "STANDARD_INPUT",
    "CommandError",
    "CommandErrorCode",
    "DocumentedCommand",
    "DocumentedGroup",
    "ExitCode",
    "Json",
    "NoColor",
    "Output",
    "call_command",
    "end_process",
    "end_process_at_once",
    "exit_code_of",
    "one_line",
    "run_guarded",
]
