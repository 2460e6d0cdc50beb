"""Snapshot of a run: the state that a run passes to its next execution through continue-as-new, or to its fork.

The state of the nodes is a compressed text, because the states of a large run are long and similar. A very long text is
split into pieces, which are in the payload store.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from dagwright.core.boundary.decoding import UNPACKED_LIMIT_BYTES, json_from_packed_text, packed_text

MAX_PIECE_CHARACTERS = 1_000_000
"""Characters of one stored piece: half of the limit of an activity input."""
_MAX_PIECES = 64
_MAX_REF_CHARACTERS = 200


class SnapshotTooLarge(Exception):
    """The results in the history of a run are too large for a snapshot."""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """State of a run before this execution, or the data that a fork reuses from its source run.

    Args:
        started_at: seconds since the epoch at which the first execution started; deadlines count from this time.
        state: state of the nodes as text (`state_to_text`); empty if `refs` is set.
        refs: references of the pieces of a long state text, in order; empty if `state` is set.
        notes: notes so far.
        omitted_notes: number of omitted notes.
        deadline_s: deadline in seconds from `started_at`; infinite means no deadline, `None` means the deadlines of the
            plan and of the input.
        origin: ID of the source run of a fork. In the snapshot of a fork, `started_at` has no meaning.
    """

    started_at: float
    state: str = ""
    refs: Sequence[str] = ()
    notes: Sequence[Mapping[str, Any]] = ()
    omitted_notes: int = 0
    deadline_s: float | None = None
    origin: str | None = None


def state_to_text(state: Mapping[str, Any]) -> str:
    """Encode the state of nodes from `dagwright.protocol.scheduler_snapshot`.

    Raises:
        SnapshotTooLarge: the state exceeds 16 MB.
    """
    encoded = pydantic_core.to_json(state)
    if len(encoded) > UNPACKED_LIMIT_BYTES:
        size = len(encoded) / 1e6
        message = f"the results in the run's own history have {size:.0f} MB, which is too large for continue-as-new"
        raise SnapshotTooLarge(message)
    return packed_text(encoded)


def state_from_text(text: str) -> Mapping[str, Any]:
    """Decode the result of `state_to_text`.

    Raises:
        ValueError: the text is not an encoded state.
    """
    try:
        state = json_from_packed_text(text)
    except ValueError as error:
        raise ValueError(f"invalid state of the previous execution: {error}") from None
    if not isinstance(state, Mapping):
        raise ValueError("the state of the previous execution must be an object")
    return state


def pieces_of(text: str) -> list[str]:
    """Split a long text into the pieces that are stored."""
    return [text[start : start + MAX_PIECE_CHARACTERS] for start in range(0, len(text), MAX_PIECE_CHARACTERS)]


def snapshot_to_json(snapshot: RunSnapshot) -> dict[str, Any]:
    """Encode a snapshot for the input of a run."""
    state_fields = {"refs": list(snapshot.refs)} if snapshot.refs else {"state": snapshot.state}
    return {
        "started_at": snapshot.started_at,
        "notes": list(snapshot.notes),
        "omitted_notes": snapshot.omitted_notes,
        **state_fields,
        **_deadline_to_json(snapshot.deadline_s),
        **({"origin": snapshot.origin} if snapshot.origin is not None else {}),
    }


def snapshot_from_json(encoded: Any) -> RunSnapshot:
    """Decode a snapshot in the input of a run; its state is decoded later.

    Raises:
        ValueError: the snapshot is invalid.
    """
    try:
        refs = encoded.get("refs", ())
        if len(refs) > _MAX_PIECES or not all(isinstance(ref, str) and len(ref) < _MAX_REF_CHARACTERS for ref in refs):
            raise ValueError("invalid references")
        return RunSnapshot(
            started_at=float(encoded["started_at"]),
            state="" if refs else str(encoded["state"]),
            refs=tuple(refs),
            notes=tuple(dict(note) for note in encoded["notes"]),
            omitted_notes=int(encoded["omitted_notes"]),
            deadline_s=_deadline(encoded),
            origin=None if encoded.get("origin") is None else str(encoded["origin"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"invalid snapshot: {error!r}") from None


def _deadline_to_json(deadline_s: float | None) -> dict[str, float | None]:
    if deadline_s is None:
        return {}
    return {"deadline_s": None if math.isinf(deadline_s) else deadline_s}


def _deadline(encoded: Mapping[str, Any]) -> float | None:
    if "deadline_s" not in encoded:
        return None
    return math.inf if encoded["deadline_s"] is None else float(encoded["deadline_s"])
