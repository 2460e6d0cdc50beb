"""Errors of Temporal's client that a Python program gets."""

from collections.abc import AsyncGenerator

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.server_errors import reports_server_errors
from dagwright.server.errors import ServerError, ServerUnreachable


@reports_server_errors
class Asked:
    """Send requests to a server that responds with an error."""

    _address = "localhost:7233"

    def __init__(self, status: RPCStatusCode) -> None:
        self._status = status

    async def ask(self) -> None:
        """Send one request."""
        raise RPCError("no luck\nand a stack", self._status, b"")

    async def listen(self) -> AsyncGenerator[int, None]:
        """Yield something before the server fails."""
        yield 1
        raise RPCError("no luck", self._status, b"")

    async def _private(self) -> None:
        raise RPCError("no luck", self._status, b"")


@pytest.mark.parametrize("status", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_server_that_does_not_respond_is_named(status: RPCStatusCode) -> None:
    asked = Asked(status)
    message = r"^the Temporal server at localhost:7233 does not respond: no luck$"
    with pytest.raises(ServerUnreachable, match=message):
        await asked.ask()
    items = asked.listen()
    assert await anext(items) == 1
    with pytest.raises(ServerUnreachable, match=message):
        await anext(items)


async def test_rejected_request_has_the_status_of_the_server() -> None:
    message = r"^the Temporal server at localhost:7233 rejects the request \(PERMISSION_DENIED\): no luck$"
    with pytest.raises(ServerError, match=message) as rejected:
        await Asked(RPCStatusCode.PERMISSION_DENIED).ask()
    assert type(rejected.value) is ServerError
    with pytest.raises(RPCError):
        await Asked(RPCStatusCode.PERMISSION_DENIED)._private()
