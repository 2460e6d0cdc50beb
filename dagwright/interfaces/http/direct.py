"""The model itself: a request is passed on to the service, and its answer handed back, neither of them changed."""

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
    """Returns the JSON that the service answers.

    Raises:
        ModelFailure: it does not answer.
    """
    return await desk.model.pass_on(body)


async def soon(asking: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Returns what a model is asked, which may still be under way: a stream begins then, though it has nothing to tell.

    Raises:
        ModelFailure: the service has refused it until then.
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
    """Returns the events of an answer, which begins as soon as the model does; raises as `soon`."""
    chunks = desk.model.pass_on_stream(body)
    return _events(await soon(_first(chunks)), chunks)


async def _first(chunks: AsyncGenerator[Any, None]) -> Any:
    return await anext(chunks, None)


async def _events(beginning: "asyncio.Task[Any]", chunks: AsyncGenerator[Any, None]) -> Events:
    async with aclosing(chunks):
        try:
            # Whoever leaves before it cancels it.
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
