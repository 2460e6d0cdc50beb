"""Find figures in a model's text that were not computed."""

import re
from collections.abc import Iterable, Iterator

_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:[.,'’\u00a0\u202f]\d+)*")
"""A number with any thousands and decimal separators; not the digits of `Q4` and `B2B`."""
_LIST_MARK = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_DIGIT = re.compile(r"\d")
_TOLERANCE = 1e-9


def find_unsupported_numbers(
    text: str, numbers: Iterable[int | float], known_texts: Iterable[str], document_texts: Iterable[str] = ()
) -> list[str]:
    """Return the figures of a text that match none of the numbers: each figure once, as it is written.

    A figure may be a rounded decimal number, but an integer must be repeated exactly. The sign is ignored: the text
    "20 less" matches the number -20.

    Args:
        numbers: the computed numbers.
        known_texts: names and other texts whose numbers may be repeated, each as a whole.
        document_texts: values of documents, such as identifiers and dates. They may only be repeated as a whole: their
            digits alone could match any figure.
    """
    number_texts = {match[0] for known_text in known_texts for match in _NUMBER.finditer(known_text)}
    known_values = {abs(number) for number in numbers} | {
        value for number_text in number_texts for value, _ in _possible_values(number_text)
    }
    remaining_text = _remove_document_texts(_LIST_MARK.sub("", text), document_texts)
    figures = dict.fromkeys(match[0] for match in _NUMBER.finditer(remaining_text))
    return [
        number_text
        for number_text in figures
        if number_text not in number_texts and not _is_known(number_text, known_values)
    ]


def _remove_document_texts(text: str, document_texts: Iterable[str]) -> str:
    """Return a text without those document texts that occur in it as a whole."""
    occurring_texts = {value for value in document_texts if _DIGIT.search(value) and value in text}
    # The longest first: a value may be a prefix of another.
    for value in sorted(occurring_texts, key=lambda value: (-len(value), value)):
        text = re.sub(rf"(?<![\w-])(?<!\d[.,'’]){re.escape(value)}(?![\w-]|[.,'’]\d)", "…", text)
    return text


def _is_known(number_text: str, known_values: set[int | float]) -> bool:
    return any(
        _equals_when_rounded(value, decimals, number)
        for value, decimals in _possible_values(number_text)
        for number in known_values
    )


def _equals_when_rounded(value: float, decimals: int, number: int | float) -> bool:
    if number == int(number):
        return value == number
    return abs(value - number) <= 0.5 * 10.0**-decimals + _TOLERANCE


def _possible_values(number_text: str) -> Iterator[tuple[float, int]]:
    """Yield the possible values of a number: `1.234` may have a thousands separator or three decimals."""
    parts = re.split(r"[.,'’\u00a0\u202f]", number_text)
    if len(number_text) > 40:
        return
    if all(len(part) == 3 for part in parts[1:]):
        yield float("".join(parts)), 0
    if len(parts) > 1 and all(len(part) == 3 for part in parts[1:-1]):
        yield float(f"{''.join(parts[:-1])}.{parts[-1]}"), len(parts[-1])
