"""Summaries of the turns of a session for people, for later requests and for planners."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import MAX_DOCUMENT_NODES, MAX_INLINE_VALUE_BYTES
from dagwright.core.expressions.stored_values import StoredValue, paths_to_json, stored_from_json
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import tool_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import Effects
from dagwright.core.text import decode_first_bytes, join_first

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_MAX_SHOWN_CALLS = 12
_MAX_SHOWN_TEXTS = 4
_MAX_TEXT_CHARACTERS = 80
"""Longer texts of a result are omitted, because they are not names."""
_CHANGING_EFFECTS = (Effects.IDEMPOTENT, Effects.WRITE)
_ID_KEY = re.compile(r"(?:.*[_-])?ids?|.*[a-z]Ids?")
"""Keys of ids, which are only for programs."""
_NO_EFFECT_NOTES = {"created": "existed already", "removed": "did not exist"}
"""Key of a result -> text that is shown if the value of the key is false."""


def effects_summary(scheduler: "RunScheduler") -> str | None:
    """Return the effects of a run that are not compensated, in plan order; `None` without such effects.

    The text of a call is its tool and the short texts of its result, without ids: `orders.make: order, lamps`.
    """
    if scheduler.plan.visible_count > MAX_DOCUMENT_NODES:
        return None
    completed_nodes = [
        (node, record) for node, record in scheduler.state.visible_nodes() if record.status is NodeStatus.COMPLETED
    ]
    compensated_ids = {node.compensates for node, _ in completed_nodes}
    summaries = [
        _call_summary(node.tool, record.result)
        for node, record in completed_nodes
        if node.compensates is None
        and node.id not in compensated_ids
        and node.tool in scheduler.plan.tools
        and tool_of(node, scheduler.plan.tools).effects in _CHANGING_EFFECTS
    ]
    return join_first(summaries, _MAX_SHOWN_CALLS, separator="; ") or None


def _call_summary(tool: str, result: Any) -> str:
    if not isinstance(result, Mapping):
        return tool
    texts = [
        value.strip()
        for key, value in result.items()
        if isinstance(value, str) and 0 < len(value.strip()) <= _MAX_TEXT_CHARACTERS and not _ID_KEY.fullmatch(str(key))
    ]
    effect_notes = [message for key, message in _NO_EFFECT_NOTES.items() if result.get(key) is False]
    excerpt = ", ".join(list(dict.fromkeys(texts))[:_MAX_SHOWN_TEXTS])
    return tool + (f": {excerpt}" if excerpt else "") + (f" ({effect_notes[0]})" if effect_notes else "")


MAX_RESPONSE_BYTES = MAX_INLINE_VALUE_BYTES
"""Maximum JSON size of the answer of the newest turn: an answer that is not in the payload store always fits."""
MAX_OLDER_RESPONSE_BYTES = 2_000
"""Maximum JSON size of the answer of an older turn."""
MAX_RESPONSES_BYTES = 16_000
"""Maximum JSON size of the answers of all turns in total. Over the limit, the oldest turns have only their outcome."""
MAX_ANSWER_REF_BYTES = 1_000
"""Maximum JSON size of the reference of an answer; a larger reference is dropped, and the answer stays cut."""
CUT_MARK = "\n[… cut here …]\n"
"""Text in the place of omitted text."""


def response_of(output: Any) -> str | None:
    """Return the output of a run as an answer, cut to the length that a session stores.

    The result is `None` if the output is not a text.

    Args:
        output: output of the run, which may be in the payload store.
    """
    if isinstance(output, StoredValue):
        part = output.root_part
        if part is None or part.shape is None or part.shape.type != "text":
            return None
        output = part.value if part.state == "whole" else f"{part.shape.preview}{CUT_MARK}"
    if not isinstance(output, str) or not output.strip():
        return None
    return cut_middle(output.strip(), max_bytes=MAX_RESPONSE_BYTES)


def answer_ref_of(output: Any) -> dict[str, Any] | None:
    """Return the reference of an answer in the payload store: `{"ref", "paths"}`.

    Returns:
        `None` for an output that is in the run itself, or is not a text.
    """
    part = output.root_part if isinstance(output, StoredValue) else None
    if part is None or part.shape is None or part.shape.type != "text":
        return None
    return answer_ref_from_json({"ref": output.ref, "paths": paths_to_json(output.paths)})


def answer_ref_from_json(encoded: Any) -> dict[str, Any] | None:
    """Decode the reference of an answer; `None` if the reference is invalid."""
    try:
        stored_value = stored_from_json(encoded) if isinstance(encoded, Mapping) else None
    except ValueError:
        return None
    ref = {"ref": stored_value.ref, "paths": paths_to_json(stored_value.paths)} if stored_value is not None else None
    return ref if ref is not None and encoded_size(ref) <= MAX_ANSWER_REF_BYTES else None


def cut_middle(text: str, *, max_bytes: int) -> str:
    """Return a text with at most `max_bytes` as JSON.

    A longer text is cut in the middle: the start that remains is twice as long as the end.

    Args:
        max_bytes: much larger than `CUT_MARK`.
    """
    encoded = text.encode(errors="replace")
    decoded, size_limit = encoded.decode(), len(encoded)
    # A character has one to six bytes in JSON, so the length that fits is found by trial.
    while (size := encoded_size(decoded)) > max_bytes:
        size_limit = min(size_limit - 1, size_limit * max_bytes // size)
        end_bytes = size_limit // 3
        last_part = encoded[len(encoded) - end_bytes :]
        decoded = decode_first_bytes(encoded, size_limit - end_bytes) + CUT_MARK + last_part.decode(errors="ignore")
    return decoded


def shorten_responses(responses: Sequence[str | None]) -> list[str | None]:
    """Return the answers of turns with the lengths that a session stores. The oldest answers are dropped first.

    Args:
        responses: answers, the newest last.
    """
    short_responses: list[str | None] = []
    remaining_bytes, max_bytes = MAX_RESPONSES_BYTES, MAX_RESPONSE_BYTES
    for response in reversed(responses):
        text = None if response is None else cut_middle(response, max_bytes=max_bytes)
        if text is not None:
            max_bytes = MAX_OLDER_RESPONSE_BYTES
            remaining_bytes -= encoded_size(text)
        short_responses.append(text if remaining_bytes >= 0 else None)
    return short_responses[::-1]
