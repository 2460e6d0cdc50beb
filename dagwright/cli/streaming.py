"""Writes JSON that may be too large for the memory: an object part by part, as `Output.document` would write it."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

Write = Callable[[str], object]

Parts = AsyncIterable[tuple[str, Any]]
"""The members of an object in order. A value may be members itself, or `Elements`: it is written before the next."""


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a list, one after the other; each stands on a line."""

    each: AsyncIterator[Any]


async def write_object(parts: Parts, write: Write, *, depth: int = 0) -> None:
    """Writes an object.

    Args:
        write: takes pieces of text.
        depth: how deep it stands in what is around it.
    """
    await _write_between(("{", "}"), _members(parts, write, depth=depth + 1), write, depth=depth)


async def _members(parts: Parts, write: Write, *, depth: int) -> AsyncIterator[str]:
    """Yields the beginning of each member, and writes its value."""
    async for name, value in parts:
        yield f"{json.dumps(name, ensure_ascii=False)}: "
        if isinstance(value, Elements):
            await _write_between(("[", "]"), _lines(value.each), write, depth=depth)
        elif isinstance(value, AsyncIterable):
            await write_object(value, write, depth=depth)
        else:
            write(_text(value, depth))


async def _lines(elements: AsyncIterator[Any]) -> AsyncIterator[str]:
    async for element in elements:
        yield json.dumps(element, ensure_ascii=False)


async def _write_between(signs: tuple[str, str], pieces: AsyncIterator[str], write: Write, *, depth: int) -> None:
    opening, closing = signs
    is_empty = True
    write(opening)
    async for piece in pieces:
        write(f"{'' if is_empty else ','}\n{'  ' * (depth + 1)}{piece}")
        is_empty = False
    write(closing if is_empty else f"\n{'  ' * depth}{closing}")


def _text(value: Any, depth: int) -> str:
    # JSON has no newline but between its parts.
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + "  " * depth)
