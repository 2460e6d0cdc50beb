"""Writes JSON that may be too large for the memory: an object part by part.

What comes one after the other stands on a line each, so `grep` finds it; an indented form would take twice as long.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

Write = Callable[[str], object]

Parts = AsyncIterable[tuple[str, Any]]
"""The members of an object in order. A value may be members itself, or `Elements`: it is written before the next."""

_line = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a list, one after the other; each stands on a line."""

    each: AsyncIterator[Any]


async def write_object(parts: Parts, write: Write) -> None:
    """Writes an object.

    Args:
        write: takes pieces of text.
    """
    separator = "{"
    async for name, value in parts:
        write(f"{separator}\n  {_line(name)}: ")
        separator = ","
        if isinstance(value, Elements):
            await _write_lines("[]", (_line(each) async for each in value.each), write)
        elif isinstance(value, AsyncIterable):
            await _write_lines("{}", (f"{_line(key)}: {_line(member)}" async for key, member in value), write)
        else:
            # JSON has no newline but between its parts.
            write(json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n  "))
    write("{}" if separator == "{" else "\n}")


async def _write_lines(signs: str, lines: AsyncIterator[str], write: Write) -> None:
    separator = signs[0]
    async for line in lines:
        write(f"{separator}\n    {line}")
        separator = ","
    write(signs if separator != "," else f"\n  {signs[1]}")
