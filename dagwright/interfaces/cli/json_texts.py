"""JSON that somebody writes into a command line: read as a run would read it, so that it can be sent."""

from typing import Any

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.interfaces.cli.exits import CommandRefused


def json_of(text: str, *, option: str) -> Any:
    """Returns the value of a JSON text.

    Args:
        option: what the text is, in the words of a message.

    Raises:
        CommandRefused: it is none, or nothing that could be written again.
    """
    try:
        return json_from_bytes(text.encode())
    except ValueError as error:
        raise CommandRefused(f"{option} takes JSON, and {text!r:.80} is none: {error}") from None
