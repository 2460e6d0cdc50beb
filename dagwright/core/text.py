"""Functions that shorten texts to a number of characters or UTF-8 bytes, and functions that format texts and counts.

A limit includes the mark that shows the cut, unless the docstring of a function states otherwise. Every limit is longer
than the mark. This module must not import other packages.
"""

from collections.abc import Sequence

_MARK = "…"
_MODEL_MARK = " […cut]"
"""Mark of a cut in a text that a model reads."""


def cut_characters(text: str, max_characters: int) -> str:
    """Shorten a text to at most `max_characters`, ending in `…` if it was cut."""
    return text if len(text) <= max_characters else text[: max_characters - len(_MARK)] + _MARK


def cut_bytes(text: str, *, max_bytes: int) -> str:
    """Shorten a text to at most `max_bytes` of UTF-8, ending in `…` if it was cut; lone surrogates become `?`."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    return decode_first_bytes(encoded, max_bytes - len(_MARK.encode())) + _MARK


def decode_first_bytes(encoded: bytes, count: int) -> str:
    """Decode the first `count` bytes of UTF-8, without a character that the cut divides."""
    return encoded[:count].decode(errors="ignore")


def cut_for_model(text: str, max_characters: int) -> str:
    """Shorten a text for a model to at most `max_characters`, ending in ` […cut]` if it was cut."""
    return text if len(text) <= max_characters else text[: max_characters - len(_MODEL_MARK)] + _MODEL_MARK


def cut_middle_for_model(text: str, max_characters: int) -> str:
    """Shorten a text for a model to its start and its end, with ` […cut] ` between them.

    The start and the end each have half of `max_characters`; the mark is not included in `max_characters`.
    """
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return f"{text[:half]}{_MODEL_MARK} {text[-half:]}"


def cut_with_count(text: str, max_characters: int) -> str:
    """Shorten a text for a model to its first `max_characters`, and add a line that counts the omitted characters."""
    omitted_count = len(text) - max_characters
    if omitted_count <= 0:
        return text
    return f"{text[:max_characters]}\n[… cut here: {omitted_count:,} of {len(text):,} characters are omitted]"


def one_line(text: str) -> str:
    """Replace line breaks and runs of white space with single spaces."""
    return " ".join(text.split())


def format_count(count: int, word: str) -> str:
    """Return a count with its noun: `1 level`, `1,200 levels`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def join_first(texts: Sequence[str], max_count: int, *, separator: str = ", ") -> str:
    """Join the first `max_count` texts. ` and 3 more` at the end counts the other texts."""
    joined_texts = separator.join(texts[:max_count])
    omitted_count = len(texts) - max_count
    # With another separator, such as "; ", the last text ends with the separator too.
    end = "" if separator == ", " else separator.rstrip()
    return f"{joined_texts}{end} and {omitted_count:,} more" if omitted_count > 0 else joined_texts
