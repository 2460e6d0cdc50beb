"""The command group `entities …`; `party_commands` has the implementation, which is loaded when a command is called."""

from typing import Annotated

import typer

from dagwright.plugins.commands import DocumentedCommand, DocumentedGroup, Json, NoColor, Output, call_command

_ACTIONS = "dagwright_onboarding.party_commands"
entities = typer.Typer(
    cls=DocumentedGroup,
    help="Manage the parties that onboarding plans look up.",
    rich_markup_mode=None,
)


@entities.command("load", cls=DocumentedCommand)
def load_entities(
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV file with a header line; - is standard input.")],
    *,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Load parties from a CSV file."""
    return call_command(_ACTIONS, "load", file, Output(is_json=json, has_color=not no_color))


@entities.command("find", cls=DocumentedCommand)
def find_entities(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="A name, a part of a name, an identifier such as a LEI, or the id of a party."
        ),
    ],
    *,
    entity_type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="Type of the parties, such as person, fund or entity.")
    ] = "entity",
    jurisdiction: Annotated[
        str | None, typer.Option("--jurisdiction", metavar="CODE", help="Code of the jurisdiction, such as LU.")
    ] = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show which parties a lookup finds, and why."""
    return call_command(
        _ACTIONS, "find", (text, entity_type, jurisdiction), Output(is_json=json, has_color=not no_color)
    )


@entities.command("migrate", cls=DocumentedCommand)
def migrate_entities(*, json: Json = False, no_color: NoColor = False) -> int:
    """Migrate the database and the search index to this version."""
    return call_command(_ACTIONS, "migrate", None, Output(is_json=json, has_color=not no_color))
