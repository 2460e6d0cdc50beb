"""The command group of the toy application."""

import typer

from toy_app.tools import SHELVES

toy = typer.Typer(help="The shelves of the toy warehouse.", rich_markup_mode=None)


@toy.command("shelves")
def shelves() -> int:
    """List the shelves."""
    typer.echo("\n".join(SHELVES))
    return 0
