"""Tools with effects: each appends its idempotency key to a ledger that all workers share."""

import asyncio
import os
from pathlib import Path

from dagwright.tools import context, tool

HOLD_S = 0.01
"""Time that a call takes after its effect, during which its worker may be killed."""


@tool(effects="write")
async def write_key(ledger: str, previous_results: list[int]) -> int:
    """Append the key; a call that has started is never repeated."""
    return await _append(ledger, previous_results)


@tool(effects="idempotent")
async def apply_key(ledger: str, previous_results: list[int]) -> int:
    """Append the key; the call is repeated with the same key if its worker dies."""
    return await _append(ledger, previous_results)


async def _append(ledger: str, previous_results: list[int]) -> int:
    line = f"{context().idempotency_key}\t{os.getpid()}\n".encode()
    # One write to a file in append mode is never interleaved with a write of another process.
    descriptor = os.open(Path(ledger), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
    await asyncio.sleep(HOLD_S)
    return len(previous_results) + 1
