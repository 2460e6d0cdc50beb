"""Registration of search attributes: the first client of a new server waits until the server accepts them."""

from collections.abc import Iterator
from typing import Any

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesResponse
from temporalio.service import RPCError, RPCStatusCode

from dagwright.server import namespace
from dagwright.server.namespace import SEARCH_ATTRIBUTES, register_search_attributes

_QUERY_REJECTED, _SERVER_DOWN = RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE


class _Server:
    """Fake server. Each query gets the next scripted status, and the last status is repeated.

    Args:
        is_registered: whether the search attributes are registered when the server starts.
    """

    namespace = "default"

    def __init__(self, *statuses: RPCStatusCode | None, is_registered: bool = True) -> None:
        self.operator_service, self._is_registered = self, is_registered
        self._statuses: Iterator[RPCStatusCode | None] = iter(statuses)
        self._status: RPCStatusCode | None = None
        self.query_count = self.registration_count = 0

    async def list_search_attributes(self, _: Any, **__: Any) -> ListSearchAttributesResponse:
        kinds = {name: namespace._TYPES_IN_API[kind] for name, kind in SEARCH_ATTRIBUTES.items()}
        return ListSearchAttributesResponse(custom_attributes=kinds if self._is_registered else {})

    async def add_search_attributes(self, _: Any, **__: Any) -> None:
        self._is_registered = True
        self.registration_count += 1

    async def count_workflows(self, _: str) -> None:
        self.query_count += 1
        self._status = next(self._statuses, self._status)
        if self._status is not None:
            raise RPCError("no", self._status, b"")


async def _register(fake_server: _Server) -> frozenset[str]:
    client: Any = fake_server
    return await register_search_attributes(client)


@pytest.mark.parametrize(
    ("fake_server", "query_count", "registration_count"),
    [
        (_Server(None), 1, 0),
        (_Server(_QUERY_REJECTED, _QUERY_REJECTED, None), 3, 0),
        (_Server(_QUERY_REJECTED, _QUERY_REJECTED, None, is_registered=False), 3, 1),
        # A query that fails for another reason does not mean that attributes are missing.
        (_Server(_SERVER_DOWN), 1, 0),
    ],
    ids=["accepted", "registered a moment ago", "not registered", "query fails"],
)
async def test_client_waits_until_attributes_are_accepted(
    fake_server: _Server, query_count: int, registration_count: int
) -> None:
    assert await _register(fake_server) == frozenset()
    assert (fake_server.query_count, fake_server.registration_count) == (query_count, registration_count)


async def test_wait_for_attributes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace, "_ACCEPT_TIMEOUT_S", 0.0)
    assert await _register(_Server(_QUERY_REJECTED)) == frozenset(SEARCH_ATTRIBUTES)
