"""The commands of the program and their groups in the help.

The composition root of the command line. `*_commands` modules define names, options and help; the module that does the
work of a command is loaded when the command is called.
"""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from dagwright.interfaces.cli import (
    command_groups,
    goal_commands,
    people_commands,
    run_commands,
    server_commands,
    steering_commands,
)
from dagwright.interfaces.cli.error_boundary import open_standard_streams, run_guarded
from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.plugin_groups import PluginGroup, program_options
from dagwright.interfaces.cli.shared_options import DocumentedCommand, PassThroughCommand

if TYPE_CHECKING:
    from dagwright.settings import Settings

_COMMANDS: Mapping[str, Mapping[str, Callable[..., int] | typer.Typer]] = {
    "Runs": {
        "run": run_commands.run,
        "ask": goal_commands.ask,
        "chat": goal_commands.chat,
        "session": goal_commands.session,
        "check": run_commands.check,
        "list": run_commands.list_runs,
        "status": run_commands.status,
        "watch": run_commands.watch,
        "result": run_commands.result,
        "graph": run_commands.graph,
        "node": run_commands.node,
        "explain": run_commands.explain,
        "fork": run_commands.fork,
    },
    "People": {
        "inbox": people_commands.inbox,
        "feedback": people_commands.feedback,
    },
    "Steering": {
        "cancel": steering_commands.cancel,
        "pause": steering_commands.pause,
        "resume": steering_commands.resume,
        "limits": steering_commands.limits,
        "policy": steering_commands.policy,
        "retry": steering_commands.retry,
        "set-result": steering_commands.set_result,
        "add-nodes": steering_commands.add_nodes,
        "tool": steering_commands.tool,
        "call-limits": steering_commands.call_limits,
    },
    "Services": {
        "up": server_commands.up,
        "down": server_commands.down,
        "worker": server_commands.worker,
        "serve": server_commands.serve,
        "mcp": server_commands.mcp,
        "temporal": server_commands.temporal,
    },
    "Other": {
        "new": command_groups.new,
        "agents": command_groups.agents,
        "keys": command_groups.keys,
        "store": command_groups.store,
    },
}
"""Help panel -> command name -> function or group."""


def _create_app() -> typer.Typer:
    app = typer.Typer(
        name="dagwright",
        cls=PluginGroup,
        callback=program_options,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for panel, commands in _COMMANDS.items():
        for name, command in commands.items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel=panel)
            else:
                cls = PassThroughCommand if name == "temporal" else DocumentedCommand
                app.command(name, cls=cls, rich_help_panel=panel)(command)
    return app


def run_command_line(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, write to stdout and stderr, and return the exit code.

    Args:
        arguments: without the name of the program.
    """
    is_json = "--json" in arguments
    open_standard_streams()
    return run_guarded(
        lambda: _exit_code(
            click_command()(args=list(arguments) or ["--help"], prog_name="dagwright", standalone_mode=False)
        ),
        Output(is_json=is_json),
        load_settings=_settings,
    )


@functools.cache
def click_command() -> Any:
    """Build the tree of commands and options once per process; this takes 20 ms."""
    return typer.main.get_command(_create_app())


def _exit_code(result: Any) -> int:
    return result if isinstance(result, int) else ExitCode.COMPLETED


def _settings() -> "Settings":
    settings: Settings = importlib.import_module("dagwright.settings").load_settings()
    return settings
