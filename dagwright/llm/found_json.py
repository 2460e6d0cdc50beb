"""Finds the JSON in what a model wrote around it: a fence, a sentence before, its thoughts.

Only JSON that is whole is found here; what is broken is for whoever asks the model again.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_STARTS = re.compile(r"[{\[]")
_MOST_STARTS = 1_000
"""Places at which a value is looked for: a long text of brackets must not cost minutes."""


class Twice:
    """Stands for the value of a key that an object gives twice, with different values: which is meant nobody knows."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = value if key not in found or found[key] == value else Twice()
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def values_in(text: str) -> Iterator[Any]:
    """Yields each JSON value of a text, the likeliest first: the text as a whole, fenced blocks, objects and lists.

    A key that stands twice in an object with different values has a `Twice`, which no JSON can carry.

    Args:
        text: what a model wrote; thoughts at its beginning, in `<think>`, are left out.
    """
    said = _THOUGHT.sub("", text)
    for candidate in (said, *(match[1] for match in _FENCE.finditer(said))):
        try:
            yield _DECODER.decode(candidate.strip())
        except (ValueError, RecursionError):
            continue
    yield from _inside(said)


def _inside(text: str) -> Iterator[Any]:
    """Yields the outermost objects and lists of a text."""
    place = 0
    for _ in range(_MOST_STARTS):
        start = _STARTS.search(text, place)
        if start is None:
            return
        try:
            value, place = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            place = start.end()
        else:
            yield value
