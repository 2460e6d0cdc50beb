"""The model itself: a request is passed on to the service, and its answer handed back, neither of them changed."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from dagwright.contracts.model_failures import ModelFailure
from dagwright.gateway.desk import Desk
from dagwright.gateway.errors import told_as
from dagwright.gateway.streams import DONE, Events, event


async def answered(desk: Desk, body: Mapping[str, Any]) -> Any:
    """Returns the JSON that the service answers.

    Raises:
        ModelFailure: it does not answer.
    """
    return await desk.model.pass_on(body)


async def opened_stream(desk: Desk, body: Mapping[str, Any]) -> Events:
    """Returns the events of an answer that has begun.

    Raises:
        ModelFailure: the service does not answer.
    """
    chunks = desk.model.pass_on_stream(body)
    first = await anext(chunks, None)
    return _events(first, chunks)


async def _events(first: Any, chunks: AsyncGenerator[Any, None]) -> Events:
    async with aclosing(chunks):
        try:
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
