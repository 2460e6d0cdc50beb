"""What docs/gateway.md says of requests that OpenAI's client sends again by itself."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import openai
import pytest


@asynccontextmanager
async def _breaking(keys: list[str | None]) -> AsyncIterator[str]:
    """Serves requests by closing their connections, and notes the `Idempotency-Key` of each; yields the address."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        keys.append(headers.get("idempotency-key"))
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"http://{host}:{port}/v1"


@pytest.mark.parametrize(
    ("headers", "sent"), [({}, [None, None]), ({"Idempotency-Key": "order-4711"}, ["order-4711", "order-4711"])]
)
async def test_client_sends_again_what_was_lost_with_the_key_that_was_named_and_with_none_else(
    headers: Mapping[str, str], sent: list[str | None]
) -> None:
    keys: list[str | None] = []
    async with (
        _breaking(keys) as address,
        openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=1) as client,
    ):
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(
                model="plan/publish", messages=[{"role": "user", "content": "{}"}], extra_headers=headers
            )
    assert keys == sent
    assert openai.DEFAULT_MAX_RETRIES == 2
