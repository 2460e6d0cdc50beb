"""The sections of the command line, from its commands and options."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from dagwright.interfaces.cli.app import click_command
from scripts.reference.markdown import code, first_paragraph, section, sentence, table

_COMMON_OPTIONS = frozenset({"help", "version"})


def command_index() -> str:
    """Return a table of all commands with links to their sections, by group."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for group, name, command in _commands():
        link = f"[`{name}`](commands.md#{anchor(name)})"
        groups.setdefault(group, []).append((group, link, first_paragraph(command.help)))
    return table(("Group", "Command", "Meaning"), chain.from_iterable(groups.values()))


def command_sections() -> str:
    """Return a section for each command: usage, arguments and options."""
    return "".join(_section(name, command) for _, name, command in _commands())


def anchor(name: str) -> str:
    """Return the anchor of the section of a command, such as `dagwright-store-show`."""
    return f"dagwright {name}".replace(" ", "-")


def _commands() -> Iterator[tuple[str, str, Any]]:
    """Yield group, full name and command, in the order of the help."""
    program = click_command()
    context = program.make_context("dagwright", [], resilient_parsing=True)
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        group = command.rich_help_panel if isinstance(command.rich_help_panel, str) else "Other"
        if hasattr(command, "list_commands"):
            for subcommand in command.list_commands(context):
                yield group, f"{name} {subcommand}", command.get_command(context, subcommand)
        else:
            yield group, name, command


def _section(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden and parameter.name not in _COMMON_OPTIONS
    ]
    usage = " ".join(["dagwright", name, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    return section(
        f"`dagwright {name}`",
        command.help,
        f"`{usage}`",
        table(
            ("Argument", "Meaning"),
            [(code(_metavar(parameter)), sentence(parameter.help or "")) for parameter in arguments],
        )
        if arguments
        else "",
        table(("Option", "Meaning"), map(_option_row, options)) if options else "",
    )


def _usage(argument: Any) -> str:
    name = _metavar(argument) + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("{}[].")


def _option_row(option: Any) -> tuple[str, str]:
    names = ", ".join(code(name if option.is_flag else f"{name} {_metavar(option)}") for name in option.opts)
    required = " Required." if option.required else ""
    default = option.default
    has_default = not option.is_flag and default not in (None, "", [], ()) and not callable(default)
    return names, sentence(option.help or "") + required + (f" Default: {code(default)}." if has_default else "")
