"""Pytest fixture: put `from dagwright.testing.fixtures import model_server` into a `conftest.py`.

    async def test_greets(model_server: StartModelServer) -> None:
        server = await model_server("Hello")
        ...

This module imports pytest, so nothing else of Dagwright imports it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest_asyncio

from dagwright.testing.server import ModelServer

StartModelServer = Callable[..., Awaitable[ModelServer]]
"""Arguments of `ModelServer` -> a started server."""


@pytest_asyncio.fixture
async def model_server() -> AsyncIterator[StartModelServer]:
    """Start scripted model servers; at the end of the test, each script must be used up without deviations."""
    async with AsyncExitStack() as stack:

        async def start(*steps: object, **options: object) -> ModelServer:
            return await stack.enter_async_context(ModelServer(*steps, **options))  # type: ignore[arg-type]

        yield start
