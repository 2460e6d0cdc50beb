"""Answers of the model: requests are passed on to the service, and its answers returned, both unchanged."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from dagwright.interfaces.http.calls import START_S
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import told_as
from dagwright.interfaces.http.streams import DONE, Events, event
from dagwright.planning.model_calls.failures import ModelFailure

T = TypeVar("T")


async def answered(desk: Desk, body: Mapping[str, Any]) -> Any:
    """Return the JSON response of the service.

    Raises:
        ModelFailure: the call failed.
    """
    return await desk.model.pass_on(body)


async def soon(asking: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a call of a model and return its task after at most `START_S`, so that a stream can send its headers.

    Raises:
        ModelFailure: the call failed by then.
    """
    task = asyncio.create_task(asking)
    try:
        await asyncio.wait({task}, timeout=START_S)
        if task.done():
            await task
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task


async def opened_stream(desk: Desk, body: Mapping[str, Any]) -> Events:
    """Return the events of a streamed answer; raises as `soon`."""
    chunks = desk.model.pass_on_stream(body)
    return _events(await soon(_first(chunks)), chunks)


async def _first(chunks: AsyncGenerator[Any, None]) -> Any:
    return await anext(chunks, None)


async def _events(beginning: "asyncio.Task[Any]", chunks: AsyncGenerator[Any, None]) -> Events:
    async with aclosing(chunks):
        try:
            # A disconnect cancels it.
            first = await beginning
            if first is not None:
                yield event(first, id="0")
            number = 0
            async for chunk in chunks:
                number += 1
                yield event(chunk, id=str(number))
        except ModelFailure as failure:
            told = told_as(failure)
            assert told is not None
            yield event(told.body())
    yield DONE
