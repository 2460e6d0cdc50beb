"""The tool of the plans that are streamed, given to the worker with `--tools`."""

import asyncio

from dagwright.tools import tool

TOOL_S = 1.0
"""Seconds that a call takes."""


@tool(effects="read")
async def look_up(topic: str, known: str = "") -> str:  # noqa: ARG001 - what is known makes a call wait
    """Return what a reference book says of a topic, after a second."""
    await asyncio.sleep(TOOL_S)
    return said_of(topic)


def said_of(topic: str) -> str:
    """Returns what the tool says of a topic."""
    return f"{topic}: 42 in the last year"
