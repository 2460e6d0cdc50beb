"""Options of the program itself, such as `--version`, and the command groups of plugins.

A plugin is loaded only for its own command, for the list of commands, and for the suggestion after a typo.
"""

from typing import Annotated, Any

import typer.main

from dagwright import __version__
from dagwright.core.plugins import InstalledPlugin, PluginError, plugins_by_contribution
from dagwright.interfaces.cli.shared_options import DocumentedGroup, summary_of

_PLUGIN_PANEL = "Other"


class PluginGroup(DocumentedGroup):
    """The commands of the engine, followed by the command groups of the installed plugins."""

    def list_commands(self, ctx: Any) -> list[str]:
        engine_commands, plugin_by_group = super().list_commands(ctx), _plugin_by_group()
        for name, owner in plugin_by_group.items():
            if name in engine_commands:
                message = f"the {owner} contributes the command {name!r}, but Dagwright has a command of this name"
                raise PluginError(f"{message}; rename the command of the plugin")
        return [*engine_commands, *plugin_by_group]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in panels, each with its own heading."""
        panels: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            panel = command.rich_help_panel
            panels.setdefault(panel if isinstance(panel, str) else _PLUGIN_PANEL, []).append((name, command))
        width = max(len(name) for rows in panels.values() for name, _ in rows)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(f"{name:{width}}", summary_of(command)) for name, command in rows])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        engine_command = super().get_command(ctx, cmd_name)
        if engine_command is not None or (owner := _plugin_by_group().get(cmd_name)) is None:
            return engine_command
        group = owner.load(owner.plugin.commands[cmd_name])
        command = typer.main.get_group(group)
        command.name = cmd_name
        return command


def _show_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"dagwright {__version__}")
        raise typer.Exit


def program_options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """Run durable plans on Temporal."""


def _plugin_by_group() -> dict[str, InstalledPlugin]:
    return plugins_by_contribution("command group", lambda plugin: plugin.commands)
