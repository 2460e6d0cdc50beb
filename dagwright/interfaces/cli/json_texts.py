"""JSON values in options, decoded with the same limits as in a run."""

from typing import Any

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.interfaces.cli.exit_codes import CommandRefused


def json_of(text: str, *, option: str) -> Any:
    """Decode a JSON text.

    Args:
        option: name of the option for the error message.

    Raises:
        CommandRefused: the text is invalid JSON, or its value could not be encoded again.
    """
    try:
        return json_from_bytes(text.encode())
    except ValueError as error:
        raise CommandRefused(f"{option} must be JSON, not {text!r:.80}: {error}") from None
