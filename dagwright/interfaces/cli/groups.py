"""Commands in groups, such as `store …` and `keys …`; what they do is in a module for each group."""

from collections.abc import Mapping
from typing import Annotated

import typer

from dagwright.interfaces.cli.calling import call
from dagwright.interfaces.cli.options import Json, NoColor, PlainHelp
from dagwright.interfaces.cli.output import Output

store = typer.Typer(help="The store of large values.", rich_markup_mode=None)
agents = typer.Typer(help="The agents that all workers on one database have.", rich_markup_mode=None)
new = typer.Typer(help="Files to begin with.", rich_markup_mode=None)
keys = typer.Typer(help="The keys of the API.", rich_markup_mode=None)
GROUPS: Mapping[str, typer.Typer] = {"store": store, "agents": agents, "new": new, "keys": keys}


@store.command("show", cls=PlainHelp)
def show_store(*, json: Json = False) -> int:
    """Show what the store holds, and what of it no run can need any more."""
    return call("storing", "show", None, Output(is_json=json))


@store.command("clean", cls=PlainHelp)
def clean_store(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without, only say what would be removed.")] = False,
    json: Json = False,
) -> int:
    """Remove what no run can need any more."""
    return call("storing", "clean", yes, Output(is_json=json))


@store.command("adopt", cls=PlainHelp)
def adopt_store(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say which store is used.")] = False,
    json: Json = False,
) -> int:
    """Make this store the one that the workers of the task queue use."""
    return call("storing", "adopt", yes, Output(is_json=json))


@store.callback()
def _store() -> None:
    """The store of large values."""


@agents.command("add", cls=PlainHelp)
def add_agents(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML, JSON or .py file with agents.")],
    *,
    json: Json = False,
) -> int:
    """Add the agents of a file; one that has changed is a new version."""
    return call("agents", "add", file, Output(is_json=json), extra="database")


@agents.command("list", cls=PlainHelp)
def list_agents(*, json: Json = False, no_color: NoColor = False) -> int:
    """List the agents that were added."""
    return call("agents", "list_agents", None, Output(is_json=json, has_color=not no_color), extra="database")


@agents.command("show", cls=PlainHelp)
def show_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    *,
    json: Json = False,
) -> int:
    """Show the card of an agent, and its versions."""
    return call("agents", "show", name, Output(is_json=json), extra="database")


@agents.command("remove", cls=PlainHelp)
def remove_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    *,
    json: Json = False,
) -> int:
    """Remove an agent for new plans; runs that have its card go on with it."""
    return call("agents", "remove", name, Output(is_json=json), extra="database")


@agents.callback()
def _agents() -> None:
    """The agents that all workers on one database have."""


@new.command("worker", cls=PlainHelp)
def new_worker(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the worker: letters, digits and _.")],
    *,
    json: Json = False,
) -> int:
    """Write a worker tool and its test into this folder."""
    return call("writing", "write_worker", name, Output(is_json=json))


@new.callback()
def _new() -> None:
    """Files to begin with."""


@keys.command("add", cls=PlainHelp)
def add_key(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Whose runs it sees; * is one who sees those of all.")],
    *,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="run, answer or operate; may be given often; all three if left out. look: none of them.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Make a key of the API, and show it this once."""
    return call("keys", "add", (owner, scopes or []), Output(is_json=json), extra="gateway")


@keys.command("list", cls=PlainHelp)
def list_keys(*, json: Json = False, no_color: NoColor = False) -> int:
    """List the keys of the API, without their secrets."""
    return call("keys", "list_keys", None, Output(is_json=json, has_color=not no_color), extra="gateway")


@keys.command("remove", cls=PlainHelp)
def remove_key(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
    *,
    json: Json = False,
) -> int:
    """Remove a key of the API."""
    return call("keys", "remove", id, Output(is_json=json), extra="gateway")


@keys.callback()
def _keys() -> None:
    """The keys of the API."""
