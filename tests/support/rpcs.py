"""Record the requests that a client sends to its server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from temporalio.client import Client


@contextmanager
def recorded_rpcs(client: Client) -> Iterator[list[str]]:
    """Record the name of each request in the block, except the polls of workers. Each page of a list is a request."""
    service = cast(Any, client.service_client)
    names: list[str] = []
    send = service._rpc_call

    async def record(rpc: str, *arguments: Any, **options: Any) -> Any:
        names.append(rpc)
        return await send(rpc, *arguments, **options)

    with patch.object(service, "_rpc_call", record):
        yield names
