"""The steps of the graphs as tools, passed to Dagwright with `--tools`: each as an ordinary and as a `batch` tool."""

import asyncio

from benchmarks.peers import graphs
from dagwright.tools import tool

BATCH_PREFIX = "short_"
"""Prefix of the `batch` tools."""


@tool(effects="read")
async def total(values: list[int]) -> int:
    """Return the sum of the values."""
    return graphs.total(values)


@tool(effects="read")
async def draft() -> str:
    """Return a document."""
    return graphs.draft()


@tool(effects="read")
async def rotate(text: str, shift: int) -> str:
    """Move the first `shift` characters of a document to its end."""
    return graphs.rotate(text, shift)


@tool(effects="read")
async def checksum(texts: list[str]) -> int:
    """Return the checksum of the documents, in order."""
    return graphs.checksum(texts)


@tool(effects="read", batch=True)
async def short_total(values: list[int]) -> int:
    """Return the sum of the values."""
    return graphs.total(values)


@tool(effects="read", batch=True)
async def short_draft() -> str:
    """Return a document."""
    return graphs.draft()


@tool(effects="read", batch=True)
async def short_rotate(text: str, shift: int) -> str:
    """Move the first `shift` characters of a document to its end."""
    return graphs.rotate(text, shift)


@tool(effects="read", batch=True)
async def short_checksum(texts: list[str]) -> int:
    """Return the checksum of the documents, in order."""
    return graphs.checksum(texts)


# `append` has an effect. It is declared `read`, because `read` tools have a heartbeat timeout of 3 s instead of 30 s.
@tool(effects="read")
async def append(ledger: str, number: int) -> int:
    """Append a number to the ledger after some time."""
    return await asyncio.to_thread(graphs.append, ledger, number)


@tool(effects="read", batch=True)
async def short_append(ledger: str, number: int) -> int:
    """Append a number to the ledger after some time."""
    return await asyncio.to_thread(graphs.append, ledger, number)
