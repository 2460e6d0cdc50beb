"""The tool of the plans and agents in `streaming`, passed to the worker with `--tools`."""

import asyncio

from dagwright.tools import tool

TOOL_S = 1.0
"""Duration of a call in seconds."""


@tool(effects="read")
async def look_up(topic: str, known: str = "") -> str:  # noqa: ARG001 - `known` only adds dependencies
    """Return an entry of a reference book on a topic, after a second."""
    await asyncio.sleep(TOOL_S)
    return statement_about(topic)


def statement_about(topic: str) -> str:
    """Return the tool's entry on a topic."""
    return f"{topic}: 42 in the last year"
