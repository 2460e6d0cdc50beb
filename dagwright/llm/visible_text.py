"""Extract the text for people from an answer that the model is still writing."""

import re

from pydantic_core import from_json

from dagwright.llm.completions import without_lone_surrogates

MAX_STREAMED_CHARACTERS = 256 * 1024
"""Maximum number of streamed characters of an answer. The rest is sent when the answer is complete."""
_FENCE = "```"
_MARKER = re.compile(r"\[(\[\s*(F(E(E(D(B(A(C(K.*)?)?)?)?)?)?)?)?)?\Z", re.DOTALL)
"""Marker of a request to a person (`planning.agent_loop.feedback_markers`), or a prefix of the marker."""


class VisibleText:
    """Extracts the text for people from the pieces of a model output; the extracted text only grows.

    Args:
        field: field of the JSON output that contains the text; empty if the whole output is the text.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._received_text = ""
        self._pending_surrogate = ""
        self._extracted_text = ""

    def add(self, chunk: str) -> None:
        """Add the next piece of the answer."""
        if len(self._received_text) >= MAX_STREAMED_CHARACTERS:
            return
        chunk = self._pending_surrogate + chunk
        # A surrogate pair may be split between two pieces.
        self._pending_surrogate = chunk[-1:] if "\ud800" <= chunk[-1:] <= "\udbff" else ""
        self._received_text += without_lone_surrogates(chunk[: len(chunk) - len(self._pending_surrogate)])

    @property
    def text(self) -> str:
        """Text extracted so far."""
        visible_text = _before_marker(self._find_text() if self._field else self._received_text)
        # The last piece may make the JSON invalid: keep the text that was already sent.
        self._extracted_text = visible_text if visible_text.startswith(self._extracted_text) else self._extracted_text
        return self._extracted_text

    def _find_text(self) -> str:
        text_so_far = self._received_text.lstrip()
        if text_so_far.startswith("{"):
            return _text_in(text_so_far, self._field)
        if _FENCE.startswith(text_so_far[: len(_FENCE)]):
            position = text_so_far.find("{")
            return _text_in(text_so_far[position:], self._field) if position >= 0 else ""
        # The model wrote plain text instead of the requested JSON.
        return self._received_text


def _before_marker(text: str) -> str:
    """Return the text before the marker of a request to a person, because the request is sent separately."""
    match = _MARKER.search(text)
    return text if match is None else text[: match.start()]


def _text_in(json_text: str, field: str) -> str:
    """Return the text at a field of incomplete JSON; empty if the field is missing or the JSON is invalid."""
    try:
        value = from_json(json_text, allow_partial="trailing-strings")
    except ValueError:
        return ""
    text = value.get(field) if isinstance(value, dict) else None
    return without_lone_surrogates(text) if isinstance(text, str) else ""
