"""Summaries of the turns of a session, for people, for later requests and for planners."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary.limits import DOCUMENT_NODES, INLINE_VALUE_BYTES
from dagwright.core.boundary.text import first_bytes
from dagwright.core.expressions.stored_values import StoredValue, paths_to_json, stored_from_json
from dagwright.core.model.compiled import tool_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import Effects
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.documents import encoded_size

_CALLS_TOLD = 12
_TEXTS_TOLD = 4
_TEXT_CHARACTERS = 80
"""A longer text is no name of anything."""
_CHANGING = (Effects.IDEMPOTENT, Effects.WRITE)
_OF_ID = re.compile(r"(?:.*[_-])?ids?|.*[a-z]Ids?")
"""Keys of what only programs are told."""
_WITHOUT_EFFECT = {"created": "was there", "removed": "was not there"}
"""Key of a result -> what is said where it is false."""


def done_words(scheduler: RunScheduler) -> str | None:
    """Returns what the calls of a run have changed and not taken back, in plan order; `None` if there is nothing.

    Of each call its tool and the short texts of its result: `orders.make: order, lamps`. No ids are among them.
    """
    if scheduler.plan.written_count > DOCUMENT_NODES:
        return None
    completed = [(node, record) for node, record in scheduler.state.shown() if record.status is NodeStatus.COMPLETED]
    undone = {node.undoes for node, _ in completed}
    told = [
        _call_words(node.tool, record.result)
        for node, record in completed
        if node.undoes is None
        and node.id not in undone
        and node.tool in scheduler.plan.tools
        and tool_of(node, scheduler.plan.tools).effects in _CHANGING
    ]
    more = f"; and {len(told) - _CALLS_TOLD:,} more" if len(told) > _CALLS_TOLD else ""
    return "; ".join(told[:_CALLS_TOLD]) + more or None


def _call_words(tool: str, result: Any) -> str:
    if not isinstance(result, Mapping):
        return tool
    texts = [
        value.strip()
        for key, value in result.items()
        if isinstance(value, str) and 0 < len(value.strip()) <= _TEXT_CHARACTERS and not _OF_ID.fullmatch(str(key))
    ]
    without = [words for key, words in _WITHOUT_EFFECT.items() if result.get(key) is False]
    told = ", ".join(list(dict.fromkeys(texts))[:_TEXTS_TOLD])
    return tool + (f": {told}" if told else "") + (f" ({without[0]})" if without else "")


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
        told = output.own_part
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
    told = output.own_part if isinstance(output, StoredValue) else None
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
        last = encoded[len(encoded) - end :]
        found = first_bytes(encoded, kept - end) + CUT + last.decode(errors="ignore")
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
