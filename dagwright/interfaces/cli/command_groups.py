"""Command groups such as `store …` and `keys …`. Other modules implement the commands."""

from typing import Annotated

import typer

from dagwright.interfaces.cli.command_dispatch import call_command
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.shared_options import DocumentedCommand, DocumentedGroup, Json, NoColor

store = typer.Typer(cls=DocumentedGroup, help="Manage the store of large values.", rich_markup_mode=None)
agents = typer.Typer(cls=DocumentedGroup, help="Manage the agents in the database.", rich_markup_mode=None)
new = typer.Typer(cls=DocumentedGroup, help="Create files from templates.", rich_markup_mode=None)
keys = typer.Typer(cls=DocumentedGroup, help="Manage the keys of the HTTP API.", rich_markup_mode=None)

AgentName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent.")]


@store.command("show", cls=DocumentedCommand)
def show_store(*, json: Json = False) -> int:
    """Show the content of the store and how much can be removed."""
    return call_command("store_command", "show", None, Output(is_json=json))


@store.command("prune", cls=DocumentedCommand)
def prune_store(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove the values; by default, only report them.")] = False,
    json: Json = False,
) -> int:
    """Remove the values that no run can need any more."""
    return call_command("store_command", "prune", yes, Output(is_json=json))


@store.command("adopt", cls=DocumentedCommand)
def adopt_store(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Make the change; by default, only report it.")] = False,
    json: Json = False,
) -> int:
    """Make this store the store of the task queue."""
    return call_command("store_command", "adopt", yes, Output(is_json=json))


@store.callback()
def _store() -> None:
    """Manage the store of large values."""


@agents.command("add", cls=DocumentedCommand)
def add_agents(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML, JSON or .py file with agents.")],
    *,
    json: Json = False,
) -> int:
    """Add the agents of a file. Changed agents become new versions."""
    return call_command("agents_command", "add", file, Output(is_json=json), extra="database")


@agents.command("list", cls=DocumentedCommand)
def list_agents(*, json: Json = False, no_color: NoColor = False) -> int:
    """List the agents."""
    return call_command(
        "agents_command", "list_agents", None, Output(is_json=json, has_color=not no_color), extra="database"
    )


@agents.command("show", cls=DocumentedCommand)
def show_agent(
    name: AgentName,
    *,
    json: Json = False,
) -> int:
    """Show the card and the versions of an agent."""
    return call_command("agents_command", "show", name, Output(is_json=json), extra="database")


@agents.command("remove", cls=DocumentedCommand)
def remove_agent(
    name: AgentName,
    *,
    json: Json = False,
) -> int:
    """Remove an agent for new plans; running plans keep its card."""
    return call_command("agents_command", "remove", name, Output(is_json=json), extra="database")


@agents.callback()
def _agents() -> None:
    """Manage the agents in the database."""


@new.command("worker", cls=DocumentedCommand)
def new_worker(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the worker tool: letters, digits and _.")],
    *,
    json: Json = False,
) -> int:
    """Create a worker tool and its test in this folder."""
    return call_command("new_command", "write_worker", name, Output(is_json=json))


@new.callback()
def _new() -> None:
    """Create files from templates."""


@keys.command("add", cls=DocumentedCommand)
def add_key(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Owner whose runs the key can see; * for all runs.")],
    *,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="Scope: run, answer or operate, repeatable; or only read, for a read-only key; "
            "default: run, answer and operate.",
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            "--weight",
            metavar="WEIGHT",
            help="Weight of the owner's runs when worker slots are shared between owners; default 1.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Create a key and show it once."""
    return call_command("keys_command", "add", (owner, scopes or [], weight), Output(is_json=json), extra="gateway")


@keys.command("list", cls=DocumentedCommand)
def list_keys(*, json: Json = False, no_color: NoColor = False) -> int:
    """List the keys without their secrets."""
    return call_command(
        "keys_command", "list_keys", None, Output(is_json=json, has_color=not no_color), extra="gateway"
    )


@keys.command("remove", cls=DocumentedCommand)
def remove_key(
    id: Annotated[str, typer.Argument(metavar="ID", help="ID of the key, see `keys list`.")],
    *,
    json: Json = False,
) -> int:
    """Remove a key."""
    return call_command("keys_command", "remove", id, Output(is_json=json), extra="gateway")


@keys.callback()
def _keys() -> None:
    """Manage the keys of the HTTP API."""
