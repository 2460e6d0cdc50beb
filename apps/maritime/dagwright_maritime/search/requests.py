"""Requests to the search server, and the mapping of its failures to errors.

    RequestFailed             the request cannot succeed; the message says what would help
    ├── QueryInvalid          the server rejects the query: change it
    ├── IndexMissing          the index does not exist: load the data
    └── AccessDenied          access to the server or index is denied
    (RetryLater)              the server is unavailable or overloaded: the same query may work later
    └── QueryTimeout          the query timed out or the server ran out of memory: often the query is too expensive
        └── ServerUnresponsive  the server does not answer any request

One function maps the errors of the client to the errors above; this module does not retry.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dagwright.tools.errors import GiveUp, RetryLater
from dagwright_maritime.search.limits import QueryLimits
from dagwright_maritime.search.read_only import CheckedQuery
from dagwright_maritime.search.results import SearchResult, parse_result

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch
    from opensearchpy.exceptions import OpenSearchException, TransportError

RETRY_AFTER = timedelta(seconds=5)
"""A server needs about five seconds to restart."""
_GRACE_S = 10.0
"""Extra time for the response after the server's own search timeout."""
_TRANSIENT_STATUSES = (408, 429, 500, 502, 503, 504)
_FINAL_ERROR_TYPES = (
    "too_many_buckets_exception", "index_closed_exception", "illegal_argument_exception", "parsing_exception",
    "query_shard_exception", "null_pointer_exception", "class_cast_exception", "number_format_exception",
    "index_out_of_bounds_exception", "array_index_out_of_bounds_exception",
)  # fmt: skip
"""Errors of the query, although the server reports them with the status of an overloaded or broken server."""
_REQUEST_MEMORY_LIMITS = ("[request]", "[fielddata]")
"""Memory limits of a single request; other limits depend on the total load of the server."""
_PING_TIMEOUT_S = 3.0
_REASON_CHARACTERS = 500


class RequestFailed(GiveUp):
    """The request cannot succeed, so it is not retried."""


class QueryInvalid(RequestFailed):
    """The server rejects the query."""


class IndexMissing(RequestFailed):
    """The index does not exist."""


class AccessDenied(RequestFailed):
    """Access to the server or the index is denied."""


class QueryTimeout(RetryLater):
    """The server did not answer in time. Few retries are made, because each would increase the load."""

    advice = "request less, such as fewer groups"


class ServerUnresponsive(QueryTimeout):
    """The server answers no request in time, so a smaller query would not help."""

    advice = "the server answers no request: check it, or restart it with `python -m dagwright_maritime.search up`"


async def execute_query(client: "AsyncOpenSearch", query: CheckedQuery, limits: QueryLimits) -> SearchResult:
    """Run a query and return its result.

    Raises:
        RequestFailed: the query cannot succeed.
        SearchResultTooLarge: the query makes too many groups.
        RetryLater: the server is unavailable.
    """
    async with _translate_client_errors(client, query.index):
        response = await client.search(index=query.index, body=query.body, params=_params(limits))
    return parse_result(response, query.aggregations, limits)


async def rejection_reason(client: "AsyncOpenSearch", query: CheckedQuery, limits: QueryLimits) -> str | None:
    """Return why the server rejects a query, `None` if the query is valid.

    The server validates the conditions without running them. Aggregations and the sort order can only be validated by
    running them, here without returning documents.

    Raises:
        RequestFailed: the index does not exist, or access is denied.
        SearchResultTooLarge: the query makes too many groups.
        RetryLater: the server is unavailable.
    """
    try:
        async with _translate_client_errors(client, query.index):
            response = await client.indices.validate_query(
                index=query.index,
                body={"query": query.body["query"]},
                params={"explain": "true", **_params(limits)},
            )
            if response.get("valid") is not True:
                return _explanation(response)
            if "aggs" in query.body or "sort" in query.body:
                body = {name: value for name, value in query.body.items() if name not in ("from", "search_after")}
                response = await client.search(index=query.index, body={**body, "size": 0}, params=_params(limits))
                parse_result(response, query.aggregations, limits)
    except QueryInvalid as error:
        return str(error)
    return None


async def read_mapping(client: "AsyncOpenSearch", index: str, limits: QueryLimits) -> Mapping[str, Any]:
    """Return the mapping of an index; for an alias, the mapping of the first index in the response.

    Raises:
        RequestFailed: the index does not exist, or access is denied.
        RetryLater: the server is unavailable.
    """
    return (await _mappings(client, index, limits))[0]


async def read_types(client: "AsyncOpenSearch", index: str, limits: QueryLimits) -> dict[str, str]:
    """Return the field types of an index, or of all indices of an alias; raises the same errors as `read_mapping`."""
    types: dict[str, str] = {}
    for mapping in await _mappings(client, index, limits):
        types |= types_of(mapping)
    return types


def types_of(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a mapping with their types; nested fields by their full name."""
    types: dict[str, str] = {}
    _add_types(types, mapping, "")
    return types


async def _mappings(client: "AsyncOpenSearch", index: str, limits: QueryLimits) -> list[Mapping[str, Any]]:
    async with _translate_client_errors(client, index):
        response = await client.indices.get_mapping(index=index, params=_params(limits))
    return [value.get("mappings", {}) for value in response.values()]


def _params(limits: QueryLimits) -> dict[str, Any]:
    # The server limits the time of the query; this timeout is for a server that does not respond.
    return {"request_timeout": limits.timeout_s + _GRACE_S}


def _add_types(types: dict[str, str], mapping: Mapping[str, Any], prefix: str) -> None:
    for key in ("properties", "fields"):
        for name, field in mapping.get(key, {}).items():
            full_name = f"{prefix}{name}"
            if "type" in field:
                types[full_name] = str(field["type"])
            _add_types(types, field, f"{full_name}.")


def _explanation(response: Mapping[str, Any]) -> str:
    reasons = [
        str(explanation["error"]) for explanation in response.get("explanations", []) if explanation.get("error")
    ]
    return (reasons or [str(response.get("error") or "the server rejects the query")])[0][:_REASON_CHARACTERS]


@asynccontextmanager
async def _translate_client_errors(client: "AsyncOpenSearch", index: str) -> AsyncIterator[None]:
    """Map errors of the client inside the block to errors of this module."""
    # The client is imported when it is used (see `SearchClients`).
    from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException  # noqa: PLC0415

    try:
        yield
    except ConnectionTimeout as error:
        if await client.ping(params={"request_timeout": _PING_TIMEOUT_S}):
            raise translate_error(error, index) from None
        raise ServerUnresponsive(_timeout_message(index), after=RETRY_AFTER) from None
    except OpenSearchException as error:
        raise translate_error(error, index) from None


def _timeout_message(index: str) -> str:
    return f"The search server did not answer in time when {index!r} was queried"


def translate_error(error: "OpenSearchException", index: str) -> RequestFailed | RetryLater:
    """Return the error of this module for an error of the client on a request to `index`."""
    from opensearchpy.exceptions import ConnectionError as NoConnection  # noqa: PLC0415
    from opensearchpy.exceptions import ConnectionTimeout, TransportError  # noqa: PLC0415

    if isinstance(error, ConnectionTimeout):
        return QueryTimeout(_timeout_message(index), after=RETRY_AFTER)
    if isinstance(error, NoConnection):
        return RetryLater(f"The search server does not answer: {error.error}", after=RETRY_AFTER)
    if not isinstance(error, TransportError) or not isinstance(error.status_code, int):
        return RetryLater(f"The search server returned an invalid response: {error}", after=RETRY_AFTER)
    error_types, reason = _types_and_reasons(error)
    detail = f"{error.status_code}: {reason}"
    if "index_not_found_exception" in error_types:
        return IndexMissing(f"There is no index {index!r} on the search server")
    if error.status_code in (401, 403):
        return AccessDenied(f"The search server denies access to {index!r}: {detail}")
    if "circuit_breaking_exception" in error_types:
        if reason.startswith(_REQUEST_MEMORY_LIMITS):
            return QueryInvalid(
                f"The query needs more memory than the search server has; request fewer groups or figures: {detail}"
            )
        return QueryTimeout(f"The search server has no memory left: {detail}", after=RETRY_AFTER)
    if error.status_code in _TRANSIENT_STATUSES and not any(
        error_type in error_types for error_type in _FINAL_ERROR_TYPES
    ):
        return RetryLater(f"The search server cannot answer now: {detail}", after=RETRY_AFTER)
    return QueryInvalid(f"The search server rejects the query: {detail}")


def _types_and_reasons(error: "TransportError") -> tuple[list[str], str]:
    """Return the types of a server error, and its reasons, the innermost first."""
    failure = error.info.get("error") if isinstance(error.info, Mapping) else None
    if not isinstance(failure, Mapping):
        return [str(error.error)], str(failure or error.error)[:_REASON_CHARACTERS]
    causes = [failure, *_causes(failure)]
    error_types = [str(cause.get("type", "")) for cause in causes]
    reasons = [_remove_repetition(str(cause["reason"])) for cause in causes if cause.get("reason")]
    # The outermost reason only says that the query failed.
    distinct_reasons = dict.fromkeys(reason for reason in reversed(reasons) if reason != "all shards failed")
    return error_types, "; ".join(distinct_reasons)[:_REASON_CHARACTERS] or str(error.error)


def _remove_repetition(reason: str) -> str:
    """Return a reason without its repetition: the server writes reasons about dates twice."""
    half = reason[: (len(reason) - len(": []")) // 2]
    return half if reason == f"{half}: [{half}]" else reason


def _causes(failure: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    causes: list[Mapping[str, Any]] = []
    for cause in (*failure.get("root_cause", ()), *failure.get("failed_shards", ()), failure.get("caused_by")):
        nested_cause = (
            cause.get("reason") if isinstance(cause, Mapping) and isinstance(cause.get("reason"), Mapping) else cause
        )
        if isinstance(nested_cause, Mapping):
            causes += (
                [nested_cause, *_causes({"caused_by": nested_cause.get("caused_by")})]
                if nested_cause.get("caused_by")
                else [nested_cause]
            )
    return causes
