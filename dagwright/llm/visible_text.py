"""The part of an answer that is for people, while the answer is still written. Pure."""

import re

from pydantic_core import from_json

from dagwright.llm.completions import without_lone_surrogates

MOST_CHARACTERS = 256 * 1024
"""Of an answer that is looked at while it is written; what follows is told when it is whole."""
_FENCE = "```"
_MARKER = re.compile(r"\[(\[\s*(F(E(E(D(B(A(C(K.*)?)?)?)?)?)?)?)?)?\Z", re.DOTALL)
"""The words in which an agent asks a person (`planning.agent_loop.asking`), or what may become them."""


class VisibleText:
    """Finds the text for people in what a model has written so far.

    What it finds only grows, whatever pieces the answer comes in.

    Args:
        field: of the JSON that the model writes, the one that holds the text; empty if all it writes is the text.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._written = ""
        self._half = ""
        self._found = ""

    def take(self, words: str) -> None:
        """Takes the next piece of the answer."""
        if len(self._written) >= MOST_CHARACTERS:
            return
        words = self._half + words
        # One half of a character may come in one piece and the other in the next.
        self._half = words[-1:] if "\ud800" <= words[-1:] <= "\udbff" else ""
        self._written += without_lone_surrogates(words[: len(words) - len(self._half)])

    @property
    def text(self) -> str:
        """Returns the text as far as it is written."""
        found = _before_marker(self._find() if self._field else self._written)
        # What follows may be no JSON any more: what was told stays.
        self._found = found if found.startswith(self._found) else self._found
        return self._found

    def _find(self) -> str:
        begun = self._written.lstrip()
        if begun.startswith("{"):
            return _text_in(begun, self._field)
        if _FENCE.startswith(begun[: len(_FENCE)]):
            place = begun.find("{")
            return _text_in(begun[place:], self._field) if place >= 0 else ""
        # It was asked for JSON and says it in words: that is its answer then.
        return self._written


def _before_marker(text: str) -> str:
    """Returns a text up to where a model asks a person, who is asked in another way."""
    found = _MARKER.search(text)
    return text if found is None else text[: found.start()]


def _text_in(written: str, field: str) -> str:
    """Returns the text at a field of JSON that is not whole; empty if it is not there, or no JSON is."""
    try:
        value = from_json(written, allow_partial="trailing-strings")
    except ValueError:
        return ""
    found = value.get(field) if isinstance(value, dict) else None
    return without_lone_surrogates(found) if isinstance(found, str) else ""
