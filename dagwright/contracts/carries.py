"""What an execution hands on when a run goes on in a new one, as it travels in the next input.

The text is for programs: base64 of compressed JSON, since the states of a large run are long and much alike.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

LARGEST_BYTES = 16_000_000
"""JSON of a carry: reading or writing more would take a workflow too long at one moment."""


class CarryTooLarge(Exception):
    """A run has more results of its own than can be handed on."""


@dataclass(frozen=True, slots=True)
class RunCarry:
    """What a run has been through before this execution.

    Args:
        scheduler: the states of its nodes, as `dagwright.plan.carry` made them.
        began_at: seconds since the epoch at which the first execution started; deadlines count from there.
        notes: what there was worth saying so far.
        notes_left_out: count of the notes that were too many.
    """

    scheduler: Mapping[str, Any]
    began_at: float
    notes: Sequence[Mapping[str, Any]] = ()
    notes_left_out: int = 0


def carry_to_text(carry: RunCarry) -> str:
    """Returns a carry as it travels.

    Raises:
        CarryTooLarge: it has over 16 MB.
    """
    content = {
        "scheduler": carry.scheduler,
        "began_at": carry.began_at,
        "notes": list(carry.notes),
        "notes_left_out": carry.notes_left_out,
    }
    encoded = pydantic_core.to_json(content)
    if len(encoded) > LARGEST_BYTES:
        size = len(encoded) / 1e6
        message = f"the results in the run's own history have {size:.0f} MB, which is more than can be handed on"
        raise CarryTooLarge(message)
    # The fastest level: the states are so much alike that the best one saves a few per cent.
    return base64.b64encode(zlib.compress(encoded, 1)).decode()


def carry_from_text(text: str) -> RunCarry:
    """Returns the carry of a text.

    Raises:
        ValueError: the text is none that `carry_to_text` made.
    """
    try:
        reader = zlib.decompressobj()
        encoded = reader.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
        if not reader.eof:
            raise ValueError("it is cut off, or too long")
        content = pydantic_core.from_json(encoded, allow_inf_nan=False)
        return RunCarry(
            scheduler=content["scheduler"],
            began_at=float(content["began_at"]),
            notes=list(content["notes"]),
            notes_left_out=int(content["notes_left_out"]),
        )
    except (binascii.Error, zlib.error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what the execution before handed on cannot be read: {error!r}") from None
