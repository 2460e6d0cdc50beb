"""A fixture for pytest: `from dagwright.testing.fixtures import model_server` in a `conftest.py` is all it takes.

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
"""Takes what `ModelServer` takes, and returns it started."""


@pytest_asyncio.fixture
async def model_server() -> AsyncIterator[StartModelServer]:
    """Starts scripted model servers; when the test ends each must have been used as its script says."""
    async with AsyncExitStack() as stack:

        async def start(*steps: object, **options: object) -> ModelServer:
            return await stack.enter_async_context(ModelServer(*steps, **options))  # type: ignore[arg-type]

        yield start
