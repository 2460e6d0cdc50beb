"""Helpers that call a scripted model server with the real client."""

from typing import Any

import pytest

from dagwright.llm import Endpoint, ModelCall, ModelClient, ModelConfig, ModelFailure, ModelResponse, user
from dagwright.testing import ModelServer

KEY = "sk-test-0123456789"


def client_of(server: ModelServer, **options: Any) -> ModelClient:
    """Return a client of a scripted server. The model is `small` by default."""
    return ModelClient(Endpoint(server.base_url, KEY), **{"model": "small", **options})


def model_call(prompt: str = "Hello?", *, config: ModelConfig | None = None, **fields: Any) -> ModelCall:
    return ModelCall((user(prompt),), config=config or ModelConfig(), **fields)


async def complete(server: ModelServer, call: ModelCall | None = None, **options: Any) -> ModelResponse:
    """Call a model with a new client, which has no stored capabilities of the server."""
    async with client_of(server, **options) as client:
        return await client.complete(call or model_call())


async def read_response(client: ModelClient, call: ModelCall, *, is_streamed: bool) -> ModelResponse:
    """Request a complete or streamed response. The pieces of a stream must add up to the text of the answer."""
    if not is_streamed:
        return await client.complete(call)
    async with client.stream(call) as stream:
        pieces = [piece async for piece in stream]
    assert "".join(pieces) == stream.answer.text
    return stream.answer


async def failure_of_client(
    client: ModelClient, call: ModelCall | None = None, *, is_streamed: bool = False
) -> ModelFailure:
    """Return the failure of a call, and close the client."""
    async with client:
        with pytest.raises(ModelFailure) as error_info:
            await read_response(client, call or model_call(), is_streamed=is_streamed)
    return error_info.value


async def failure_of(*steps: Any, call: ModelCall | None = None, **options: Any) -> ModelFailure:
    async with ModelServer(*steps) as server:
        return await failure_of_client(client_of(server, **options), call)
