"""Answers of the model: requests are forwarded to the model service, and its answers are returned unchanged."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from dagwright.interfaces.http.errors import api_error
from dagwright.interfaces.http.run_starts import START_WAIT_S
from dagwright.interfaces.http.sse import DONE, Events, serialize_event
from dagwright.planning.model_calls.model_failure import ModelFailure

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

T = TypeVar("T")


async def completion(context: "GatewayContext", body: Mapping[str, Any]) -> Any:
    """Return the JSON response of the service.

    Raises:
        ModelFailure: the call failed.
    """
    return await context.model.forward_request(body)


async def start_call(model_call: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a call of a model. Return its task as soon as the call has ended, at the latest after `START_WAIT_S`.

    Raises:
        ModelFailure: the call failed before the task was returned.
    """
    task = asyncio.create_task(model_call)
    try:
        await asyncio.wait({task}, timeout=START_WAIT_S)
        if task.done():
            await task
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task


async def stream_events(context: "GatewayContext", body: Mapping[str, Any]) -> Events:
    """Return the events of a streamed answer. Raises the same errors as `start_call`."""
    chunks = context.model.forward_stream(body)
    return _events(await start_call(_first_chunk(chunks)), chunks)


async def _first_chunk(chunks: AsyncGenerator[Any, None]) -> Any:
    return await anext(chunks, None)


async def _events(first_chunk_task: "asyncio.Task[Any]", chunks: AsyncGenerator[Any, None]) -> Events:
    async with aclosing(chunks):
        try:
            # If the client disconnects, the task is cancelled.
            first_chunk = await first_chunk_task
            if first_chunk is not None:
                yield serialize_event(first_chunk, id="0")
            number = 0
            async for chunk in chunks:
                number += 1
                yield serialize_event(chunk, id=str(number))
        except ModelFailure as failure:
            api_failure = api_error(failure)
            assert api_failure is not None
            yield serialize_event(api_failure.body())
    yield DONE
