"""Asks a scripted server with the real client."""

from typing import Any

from dagwright.llm import Endpoint, ModelAnswer, ModelCall, ModelClient, ModelConfig, user
from dagwright.testing import ModelServer

KEY = "sk-test-0123456789"


def client_of(server: ModelServer, **options: Any) -> ModelClient:
    """Returns a client of a scripted server; its model is `small`."""
    return ModelClient(Endpoint(server.base_url, KEY), **{"model": "small", **options})


def saying(words: str = "Hello?", *, config: ModelConfig | None = None, **fields: Any) -> ModelCall:
    """Returns a call of one message."""
    return ModelCall((user(words),), config=config or ModelConfig(), **fields)


async def ask(server: ModelServer, call: ModelCall | None = None, **options: Any) -> ModelAnswer:
    """Asks with a client that knows nothing yet."""
    async with client_of(server, **options) as client:
        return await client.complete(call or saying())
