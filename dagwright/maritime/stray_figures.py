"""Finds the figures in a text of a model that nobody has reckoned."""

import re
from collections.abc import Iterable, Iterator

_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:[.,'’\u00a0\u202f]\d+)*")
"""One that stands by itself, in any way of writing thousands and decimals; `Q4` and `B2B` hold none."""
_LIST_MARK = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_DIGITS = re.compile(r"\d+")
_NEAR = 1e-9


def stray_figures(text: str, numbers: Iterable[int | float], texts: Iterable[str]) -> list[str]:
    """Returns the figures of a text that are none of the numbers, as they are written, each once.

    A number may be rounded; one without decimals has to be written whole. Its sign does not count: "20 less" is -20.

    Args:
        numbers: what was reckoned.
        texts: names and the like, whose digits may be repeated.
    """
    known = {abs(number) for number in numbers}
    named = {digits.lstrip("0") or "0" for each in texts for digits in _DIGITS.findall(each)}
    found = dict.fromkeys(match[0] for match in _NUMBER.finditer(_LIST_MARK.sub("", text)))
    return [written for written in found if not _is_named(written, named) and not _is_known(written, known)]


def _is_named(written: str, named: set[str]) -> bool:
    return all((digits.lstrip("0") or "0") in named for digits in _DIGITS.findall(written))


def _is_known(written: str, known: set[int | float]) -> bool:
    return any(_is_of(value, decimals, number) for value, decimals in _readings(written) for number in known)


def _is_of(value: float, decimals: int, number: int | float) -> bool:
    if number == int(number):
        return value == number
    return abs(value - number) <= 0.5 * 10.0**-decimals + _NEAR


def _readings(written: str) -> Iterator[tuple[float, int]]:
    """Yields what a number may be: `1.234` is one of four digits to some, and one with three decimals to others."""
    parts = re.split(r"[.,'’\u00a0\u202f]", written)
    if len(written) > 40:
        return
    if all(len(part) == 3 for part in parts[1:]):
        yield float("".join(parts)), 0
    if len(parts) > 1 and all(len(part) == 3 for part in parts[1:-1]):
        yield float(f"{''.join(parts[:-1])}.{parts[-1]}"), len(parts[-1])
