"""The tools of the benchmark plans, passed to Dagwright with `--tools`."""

import asyncio

from dagwright.tools import tool


@tool(effects="read")
async def no_op(value: int = 0) -> int:
    """Return the value."""
    return value


@tool(effects="read", batch=True)
async def short_no_op(value: int = 0) -> int:
    """Return the value; short calls share an activity."""
    return value


@tool(effects="pure")
def pure_no_op(value: int = 0) -> int:
    """Return the value."""
    return value


@tool(effects="read")
async def pause(seconds: float, value: int = 0) -> int:
    """Return the value after a pause."""
    await asyncio.sleep(seconds)
    return value


@tool(effects="read")
async def numbers(count: int) -> list[int]:
    """Return the numbers from 0 to `count` - 1."""
    return list(range(count))
