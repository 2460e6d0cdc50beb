"""Write JSON objects part by part, because a whole object may not fit into memory.

Elements of lists are on one line each, so that `grep` finds them; indentation would double the size.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

Write = Callable[[str], object]

Members = AsyncIterable[tuple[str, Any]]
"""Members of an object in order. A value may be a stream of members, or `Elements`."""

_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of a list. Each is written on one line."""

    items: AsyncIterator[Any]


async def write_object(members: Members, write: Write) -> None:
    """Write an object.

    Args:
        write: writes a piece of text.
    """
    separator = "{"
    async for name, value in members:
        write(f"{separator}\n  {_encode(name)}: ")
        separator = ","
        if isinstance(value, Elements):
            await _write_lines("[]", (_encode(entry) async for entry in value.items), write)
        elif isinstance(value, AsyncIterable):
            await _write_lines("{}", (f"{_encode(key)}: {_encode(member)}" async for key, member in value), write)
        else:
            # JSON has newlines only between its tokens.
            write(json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n  "))
    write("{}" if separator == "{" else "\n}")


async def _write_lines(brackets: str, lines: AsyncIterator[str], write: Write) -> None:
    separator = brackets[0]
    async for line in lines:
        write(f"{separator}\n    {line}")
        separator = ","
    write(brackets if separator != "," else f"\n  {brackets[1]}")
