"""What an execution hands on when a run goes on in a new one, as it travels in the next input.

The states of the nodes are a text for programs, since those of a large run are long and much alike; a very long text
lies in the payload store, in pieces.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from dagwright.core.boundary.decoding import UNPACKED_LIMIT_BYTES, packed_text, unpacked_text

PIECE_CHARACTERS = 1_000_000
"""Characters of one piece in the store: half of what an activity may be given."""
_MOST_PIECES = 64
_REF_BYTES = 200


class CarryTooLarge(Exception):
    """A run has more results of its own than can be handed on."""


@dataclass(frozen=True, slots=True)
class RunCarry:
    """What a run has been through before this execution, or what a fork takes over of another run.

    Args:
        began_at: seconds since the epoch at which the first execution started; deadlines count from there.
        state: the states of the nodes, as `state_to_text` made them; or
        refs: references of the pieces of that text, in order.
        notes: what there was worth saying so far.
        omitted_notes: count of the notes that were too many.
        deadline_s: seconds from `began_at` that the run may take; infinite is as long as it takes, `None` is what plan
            and starter say.
        origin: workflow id of the run that this one is a fork of, which it begins from; `began_at` says nothing then.
    """

    began_at: float
    state: str = ""
    refs: Sequence[str] = ()
    notes: Sequence[Mapping[str, Any]] = ()
    omitted_notes: int = 0
    deadline_s: float | None = None
    origin: str | None = None


def state_to_text(state: Mapping[str, Any]) -> str:
    """Returns the states of nodes, as `dagwright.protocol.scheduler_snapshot` made them, as they travel.

    Raises:
        CarryTooLarge: they have over 16 MB.
    """
    encoded = pydantic_core.to_json(state)
    if len(encoded) > UNPACKED_LIMIT_BYTES:
        size = len(encoded) / 1e6
        message = f"the results in the run's own history have {size:.0f} MB, which is more than can be handed on"
        raise CarryTooLarge(message)
    return packed_text(encoded)


def state_from_text(text: str) -> Mapping[str, Any]:
    """Returns the states of a text.

    Raises:
        ValueError: the text is none that `state_to_text` made.
    """
    try:
        state = unpacked_text(text)
    except ValueError as error:
        raise ValueError(f"what the execution before handed on cannot be read: {error}") from None
    if not isinstance(state, Mapping):
        raise ValueError("what the execution before handed on must be an object")
    return state


def pieces_of(text: str) -> list[str]:
    """Returns the pieces in which a long text goes to the store."""
    return [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]


def carry_to_json(carry: RunCarry) -> dict[str, Any]:
    """Returns a carry as it stands in an input."""
    where = {"refs": list(carry.refs)} if carry.refs else {"state": carry.state}
    return {
        "began_at": carry.began_at,
        "notes": list(carry.notes),
        "omitted_notes": carry.omitted_notes,
        **where,
        **_deadline_to_json(carry.deadline_s),
        **({"origin": carry.origin} if carry.origin is not None else {}),
    }


def carry_from_json(encoded: Any) -> RunCarry:
    """Returns the carry of an input; its states are read later.

    Raises:
        ValueError: it is none.
    """
    try:
        refs = encoded.get("refs", ())
        if len(refs) > _MOST_PIECES or not all(isinstance(ref, str) and len(ref) < _REF_BYTES for ref in refs):
            raise ValueError("its references are none")
        return RunCarry(
            began_at=float(encoded["began_at"]),
            state="" if refs else str(encoded["state"]),
            refs=tuple(refs),
            notes=tuple(dict(note) for note in encoded["notes"]),
            omitted_notes=int(encoded["omitted_notes"]),
            deadline_s=_deadline(encoded),
            origin=None if encoded.get("origin") is None else str(encoded["origin"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"what the execution before handed on cannot be read: {error!r}") from None


def _deadline_to_json(deadline_s: float | None) -> dict[str, float | None]:
    if deadline_s is None:
        return {}
    return {"deadline_s": None if math.isinf(deadline_s) else deadline_s}


def _deadline(encoded: Mapping[str, Any]) -> float | None:
    if "deadline_s" not in encoded:
        return None
    return math.inf if encoded["deadline_s"] is None else float(encoded["deadline_s"])
