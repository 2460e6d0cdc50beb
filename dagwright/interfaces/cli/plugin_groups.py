"""The program itself: its options without a command, and the command groups of plugins.

A plugin is loaded only for its own command, for the list of commands, and for a typo.
"""

from typing import Annotated, Any

import typer.main
from typer.core import TyperGroup

from dagwright import __version__
from dagwright.core.plugins import InstalledPlugin, PluginError, contributions


class PluginGroup(TyperGroup):
    """The commands of the engine, and after them those of the installed plugins."""

    def list_commands(self, ctx: Any) -> list[str]:
        own, groups = super().list_commands(ctx), _groups()
        for name, owner in groups.items():
            if name in own:
                raise PluginError(f"the {owner} contributes the command {name!r}, which Dagwright has; rename it")
        return [*own, *groups]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None or (owner := _groups().get(cmd_name)) is None:
            return found
        group = owner.load(owner.plugin.commands[cmd_name])
        command = typer.main.get_command(group)
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
    """Run plans that must not be lost."""


def _groups() -> dict[str, InstalledPlugin]:
    return contributions("command group", lambda plugin: plugin.commands)
