"""Parse Google-style docstrings: the leading paragraphs and the section `Args`."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.text import one_line

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?|See Also|Warnings?):\s*")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Documentation:
    """A parsed docstring.

    Args:
        summary: the paragraphs before the first section, as one line.
        descriptions: parameter name -> description of the parameter, as one line.
    """

    summary: str = ""
    descriptions: dict[str, str] = field(default_factory=dict)


def parse_docstring(function: Callable[..., Any]) -> Documentation:
    """Parse the docstring of `function`. Without a docstring, the result is empty."""
    lines = (inspect.getdoc(function) or "").splitlines()
    section_start = next((index for index, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    summary = one_line(" ".join(lines[:section_start]))
    return Documentation(summary, _entries(_section(lines, names=("Args", "Arguments", "Parameters"))))


def _section(lines: list[str], *, names: tuple[str, ...]) -> list[str]:
    section_lines: list[str] = []
    is_inside = False
    for line in lines:
        match = _SECTION.fullmatch(line)
        if match:
            is_inside = match[1] in names
        elif is_inside and line.strip():
            section_lines.append(line)
    return section_lines


def _entries(lines: list[str]) -> dict[str, str]:
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    entries: dict[str, str] = {}
    name = ""
    for line in lines:
        match = _ENTRY.fullmatch(line.strip()) if len(line) - len(line.lstrip()) == margin else None
        if match:
            name = match[1]
            entries[name] = match[2].strip()
        elif name:
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries
