"""What a session keeps of the answers of its turns, for the requests that follow.

The answer of the newest turn counts most: it may be a question that the next request answers. So all of it is kept
that a run itself holds of an answer, and less of the answers before it, in the middle of which something is left out:
what an answer asks stands at its end.

Of an answer that is too long for a run to hold, the place in the payload store is kept as well. It keeps nothing there:
as long as the run is known, its answer can be read, and then its beginning is what is left.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary.limits import INLINE_VALUE_BYTES
from dagwright.core.expressions.stored_values import StoredValue, paths_to_json, stored_from_json
from dagwright.protocol.documents import encoded_size

RESPONSE_BYTES = INLINE_VALUE_BYTES
"""JSON of the answer of the newest turn: room for every one that lies in no store."""
OLDER_RESPONSE_BYTES = 2_000
"""The same of a turn before it."""
RESPONSES_BYTES = 16_000
"""The same of all turns in sum; of the oldest ones only a line is kept."""
PLACE_BYTES = 1_000
"""JSON of where an answer lies; one that takes more is known by its beginning alone."""
CUT = "\n[… cut here …]\n"
"""Stands where something was left out."""


def response_of(output: Any) -> str | None:
    """Returns the answer that the output of a run is, as far as a session keeps it; `None` if it is no text.

    Args:
        output: as the run has it, so it may lie in the payload store.
    """
    if isinstance(output, StoredValue):
        told = output.told
        if told is None or told.shape is None or told.shape.type != "text":
            return None
        output = told.value if told.state == "whole" else f"{told.shape.preview}{CUT}"
    if not isinstance(output, str) or not output.strip():
        return None
    return cut_inside(output.strip(), max_bytes=RESPONSE_BYTES)


def place_of(output: Any) -> dict[str, Any] | None:
    """Returns where in the payload store the answer lies that the output of a run is: `{"ref", "paths"}`.

    `None` of an answer that the run holds, and of what is no text.
    """
    told = output.told if isinstance(output, StoredValue) else None
    if told is None or told.shape is None or told.shape.type != "text":
        return None
    return place_from_json({"ref": output.ref, "paths": paths_to_json(output.paths)})


def place_from_json(encoded: Any) -> dict[str, Any] | None:
    """Returns where an answer lies; `None` of what is no such place."""
    try:
        found = stored_from_json(encoded) if isinstance(encoded, Mapping) else None
    except ValueError:
        return None
    place = {"ref": found.ref, "paths": paths_to_json(found.paths)} if found is not None else None
    return place if place is not None and encoded_size(place) <= PLACE_BYTES else None


def cut_inside(text: str, *, max_bytes: int) -> str:
    """Returns a text of at most so many bytes as JSON: of a longer one two parts of the beginning and one of the end.

    Args:
        max_bytes: far more than the mark that shows the cut has.
    """
    encoded = text.encode(errors="replace")
    found, kept = encoded.decode(), len(encoded)
    # A sign takes one to six bytes in JSON, so how much of the text has room is known only when it is tried.
    while (size := encoded_size(found)) > max_bytes:
        kept = min(kept - 1, kept * max_bytes // size)
        end = kept // 3
        first, last = encoded[: kept - end], encoded[len(encoded) - end :]
        found = first.decode(errors="ignore") + CUT + last.decode(errors="ignore")
    return found


def shortened(responses: Sequence[str | None]) -> list[str | None]:
    """Returns the answers of turns, the newest last, as a session keeps them: the oldest ones go first."""
    kept: list[str | None] = []
    left, most = RESPONSES_BYTES, RESPONSE_BYTES
    for response in reversed(responses):
        text = None if response is None else cut_inside(response, max_bytes=most)
        if text is not None:
            most = OLDER_RESPONSE_BYTES
            left -= encoded_size(text)
        kept.append(text if left >= 0 else None)
    return kept[::-1]
