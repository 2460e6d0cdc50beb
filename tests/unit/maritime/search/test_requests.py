"""Errors of a search server: messages of permanent errors, and retries of temporary errors."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch, exceptions

from dagwright.tools.errors import GiveUp, RetryLater
from dagwright_maritime.search.limits import Check, QueryLimits
from dagwright_maritime.search.read_only import parse_query
from dagwright_maritime.search.requests import (
    AccessDenied,
    IndexMissing,
    QueryInvalid,
    QueryTimeout,
    ServerUnresponsive,
    execute_query,
    read_mapping,
    read_types,
    rejection_reason,
    translate_error,
)


def transport_error(status: Any, error_type: str, reason: str, *causes: dict[str, Any]) -> exceptions.TransportError:
    """Return the error that the client raises for a response of the server."""
    error = {"type": error_type, "reason": reason, "root_cause": [*causes]}
    return exceptions.TransportError(status, error_type, {"error": error, "status": status})


def shards_error(status: int, cause_type: str, reason: str, **cause: Any) -> exceptions.TransportError:
    """Return the error for a search that failed in all shards with the same cause."""
    cause = {"type": cause_type, "reason": reason, **cause}
    return transport_error(status, "search_phase_execution_exception", "all shards failed", cause)


NO_INDEX = transport_error(404, "index_not_found_exception", "no such index [goods-a]")
TEXT_FIELD = shards_error(400, "illegal_argument_exception", "Text fields are not optimised")
TOO_MANY_GROUPS = shards_error(503, "too_many_buckets_exception", "65535")
ORDER_CAUSE = {"type": "illegal_argument_exception", "reason": "order"}
BAD_ORDER = transport_error(500, "aggregation_execution_exception", "", ORDER_CAUSE)
OUT_OF_MEMORY = shards_error(429, "circuit_breaking_exception", "[request] Data too large, would be [2.4gb]")
NULL_POINTER = shards_error(500, "null_pointer_exception", 'Cannot invoke "java.lang.Long.longValue()"')
FORBIDDEN = transport_error(403, "security_exception", "no")
REJECTION = "The search server rejects the query:"
MEMORY_MESSAGE = "The query needs more memory than the search server has; request fewer groups or fig"


@pytest.mark.parametrize(
    ("error", "error_type", "message"),
    [
        (NO_INDEX, IndexMissing, "There is no index 'goods-a' on the search server"),
        (TEXT_FIELD, QueryInvalid, f"{REJECTION} 400: Text fields are not optimised"),
        (TOO_MANY_GROUPS, QueryInvalid, f"{REJECTION} 503: 65535"),
        (OUT_OF_MEMORY, QueryInvalid, MEMORY_MESSAGE),
        (NULL_POINTER, QueryInvalid, f"{REJECTION} 500: Cannot invoke"),
        (BAD_ORDER, QueryInvalid, f"{REJECTION} 500: order"),
        (FORBIDDEN, AccessDenied, "The search server denies access to 'goods-a': 403"),
        (exceptions.TransportError(413, "large", None), QueryInvalid, f"{REJECTION} 413"),
    ],
)
def test_permanent_error_is_not_retried(
    error: exceptions.TransportError, error_type: type[Exception], message: str
) -> None:
    failure = translate_error(error, "goods-a")
    assert type(failure) is error_type
    assert isinstance(failure, GiveUp)
    assert str(failure).startswith(message)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectionError("N/A", "refused", OSError()),
        exceptions.ConnectionTimeout("TIMEOUT", "slow", TimeoutError()),
        transport_error(429, "rejected_execution_exception", "queue is full"),
        transport_error(503, "search_phase_execution_exception", "all shards failed"),
        transport_error(503, "cluster_block_exception", "state not recovered"),
        exceptions.TransportError(502, "bad gateway", "<html>"),
        exceptions.SerializationError("no JSON"),
    ],
)
def test_temporary_error_is_retried_after_five_seconds(error: exceptions.OpenSearchException) -> None:
    failure = translate_error(error, "goods-a")
    assert isinstance(failure, RetryLater)
    assert failure.after == timedelta(seconds=5)
    assert isinstance(failure, QueryTimeout) == isinstance(error, exceptions.ConnectionTimeout)


def test_overload_of_the_server_counts_as_a_query_timeout() -> None:
    failure = translate_error(transport_error(429, "circuit_breaking_exception", "[parent] Data too large"), "goods-a")
    assert type(failure) is QueryTimeout
    assert failure.advice == "request less, such as fewer groups"


def test_repeated_reason_is_reported_once() -> None:
    reason = "failed to parse date field [soon] with format [strict_date]"
    inner_cause = {"type": "illegal_argument_exception", "reason": reason}
    error = shards_error(400, "parse_exception", f"{reason}: [{reason}]", caused_by=inner_cause)
    assert str(translate_error(error, "goods-a")) == f"{REJECTION} 400: {reason}"
    error_with_a_partial_repetition = transport_error(400, "parse_exception", "[b] is not [a]: [b]")
    assert str(translate_error(error_with_a_partial_repetition, "goods-a")).endswith("400: [b] is not [a]: [b]")


class SlowClient:
    """A client whose server does not respond to a search in time."""

    def __init__(self, *, responds_to_ping: bool) -> None:
        self._responds_to_ping = responds_to_ping

    async def search(self, **_: Any) -> Any:
        raise exceptions.ConnectionTimeout("TIMEOUT", "slow", TimeoutError())

    async def ping(self, **_: Any) -> bool:
        return self._responds_to_ping


@pytest.mark.parametrize(("responds_to_ping", "error_type"), [(True, QueryTimeout), (False, ServerUnresponsive)])
async def test_unresponsive_server_is_distinguished_from_a_slow_query(
    responds_to_ping: bool, error_type: type[QueryTimeout]
) -> None:
    query = parse_query("goods-a", {}, prefix="goods", check=Check(QueryLimits()))
    client = cast("AsyncOpenSearch", SlowClient(responds_to_ping=responds_to_ping))
    with pytest.raises(QueryTimeout, match="did not answer in time when 'goods-a' was queried") as error:
        await execute_query(client, query, QueryLimits())
    assert type(error.value) is error_type
    assert ("request less" in error.value.advice) == responds_to_ping
    assert ("dagwright_maritime.search up" in error.value.advice) != responds_to_ping


class RecordingClient:
    """A client that records how long each request may take."""

    def __init__(self) -> None:
        self.indices = self
        self.timeouts_s: list[tuple[str, Any]] = []

    def _record(self, request: str, params: Mapping[str, Any] | None) -> None:
        self.timeouts_s.append((request, (params or {}).get("request_timeout")))

    async def search(self, *, params: Mapping[str, Any] | None = None, **_: Any) -> Any:
        self._record("search", params)
        return {"hits": {"total": {"value": 0, "relation": "eq"}, "hits": []}, "timed_out": False}

    async def validate_query(self, *, params: Mapping[str, Any] | None = None, **_: Any) -> Any:
        self._record("validate_query", params)
        return {"valid": True}

    async def get_mapping(self, *, params: Mapping[str, Any] | None = None, **_: Any) -> Any:
        self._record("get_mapping", params)
        return {"goods-a": {"mappings": {"properties": {"port": {"type": "keyword"}}}}}


async def test_timeout_of_each_request_is_the_query_timeout_plus_a_grace_period() -> None:
    limits = QueryLimits(timeout_s=50.0)
    recording_client = RecordingClient()
    client = cast("AsyncOpenSearch", recording_client)
    body = {"sort": [{"port": "asc"}]}
    query = parse_query("goods-a", body, prefix="goods", check=Check(limits, {"port": "keyword"}))
    await execute_query(client, query, limits)
    assert await rejection_reason(client, query, limits) is None
    assert await read_types(client, "goods-a", limits) == {"port": "keyword"}
    assert await read_mapping(client, "goods-a", limits) == {"properties": {"port": {"type": "keyword"}}}
    requests = ["search", "validate_query", "search", "get_mapping", "get_mapping"]
    assert recording_client.timeouts_s == [(request, 60.0) for request in requests]
