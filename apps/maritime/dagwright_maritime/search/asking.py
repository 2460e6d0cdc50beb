"""Asks a search server what `read_only` lets through, and says what to do about it when it does not answer.

    AskFailed                 the server does not take the query, or cannot have it; the text says what would help
    ├── QueryInvalid          write the query in another way: the server says what is wrong with it
    ├── IndexMissing          there is no such index: load the data
    └── AccessRefused         the server does not let us in
    (RetryLater)              the server is not there, or has too much to do: the same query may work later
    └── NoAnswer              it took the query and did not answer, in time or for want of memory: often the query is
        │                     too much for it
        └── ServerHangs       it answers nothing else either

One function maps what the client raises to these; nothing is tried again here.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dagwright.tools.errors import GiveUp, RetryLater
from dagwright_maritime.search.answers import SearchAnswer, search_answer
from dagwright_maritime.search.limits import QueryLimits
from dagwright_maritime.search.read_only import ReadQuery

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch
    from opensearchpy.exceptions import OpenSearchException, TransportError

RETRY_AFTER = timedelta(seconds=5)
"""A server that starts again needs some five seconds."""
_GRACE_S = 10.0
"""How much longer than the server may search an answer may take."""
_PASSING = (408, 429, 500, 502, 503, 504)
_FINAL_TYPES = (
    "too_many_buckets_exception", "index_closed_exception", "illegal_argument_exception", "parsing_exception",
    "query_shard_exception", "null_pointer_exception", "class_cast_exception", "number_format_exception",
    "index_out_of_bounds_exception", "array_index_out_of_bounds_exception",
)  # fmt: skip
"""Errors of the query that come under a status for a server that is busy, or is broken."""
_OWN_MEMORY = ("[request]", "[fielddata]")
"""Limits of memory that a query reaches by itself; others it reaches with all that the server does."""
_SIGN_OF_LIFE_S = 3.0
_REASON_CHARACTERS = 500


class AskFailed(GiveUp):
    """The server does not answer this query, whenever it is asked."""


class QueryInvalid(AskFailed):
    """The server says that the query is wrong."""


class IndexMissing(AskFailed):
    """The index is not there."""


class AccessRefused(AskFailed):
    """The server does not let us in, or not to this index."""


class NoAnswer(RetryLater):
    """The server did not answer; who asks it again and again for that makes it worse."""

    advice = "ask for less, such as fewer groups"


class ServerHangs(NoAnswer):
    """The server did not answer in time, and answers nothing else: it would not help to ask for less."""

    advice = "it answers nothing at all: look after it, or start it anew with `python -m dagwright_maritime.search up`"


async def ask(client: "AsyncOpenSearch", query: ReadQuery, limits: QueryLimits) -> SearchAnswer:
    """Returns what a query finds.

    Raises:
        AskFailed: the server does not take it; the kind says why.
        AnswerTooLarge: it makes too many groups.
        RetryLater: the server cannot be asked now.
    """
    async with _asked(client, query.index):
        told = await client.search(index=query.index, body=query.body, params=_params(limits))
    return search_answer(told, query.groups, limits)


async def why_invalid(client: "AsyncOpenSearch", query: ReadQuery, limits: QueryLimits) -> str | None:
    """Returns what the server has against a query, `None` if it would run it.

    It judges the conditions without looking at documents. What else there is, aggregations and the order, it judges
    only by running them: then it does, for no documents.

    Raises:
        AskFailed: the index is not there, or the server does not let us in.
        AnswerTooLarge: it makes too many groups.
        RetryLater: the server cannot be asked now.
    """
    try:
        async with _asked(client, query.index):
            told = await client.indices.validate_query(
                index=query.index,
                body={"query": query.body["query"]},
                params={"explain": "true", **_params(limits)},
            )
            if told.get("valid") is not True:
                return _explanation(told)
            if "aggs" in query.body or "sort" in query.body:
                body = {name: value for name, value in query.body.items() if name not in ("from", "search_after")}
                told = await client.search(index=query.index, body={**body, "size": 0}, params=_params(limits))
                search_answer(told, query.groups, limits)
    except QueryInvalid as wrong:
        return str(wrong)
    return None


async def read_mapping(client: "AsyncOpenSearch", index: str, limits: QueryLimits) -> Mapping[str, Any]:
    """Return the mapping of an index; for an alias, that of the first index in the response.

    Raises:
        AskFailed: the index is not there, or the server does not let us in.
        RetryLater: the server cannot be asked now.
    """
    return (await _mappings(client, index, limits))[0]


async def read_types(client: "AsyncOpenSearch", index: str, limits: QueryLimits) -> dict[str, str]:
    """Return the types of the fields of an index, for an alias those of all its indices; raises as `read_mapping`."""
    types: dict[str, str] = {}
    for mapping in await _mappings(client, index, limits):
        types |= types_of(mapping)
    return types


def types_of(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Returns the fields of a mapping, those inside of others by their whole name, with their types."""
    types: dict[str, str] = {}
    _add_types(types, mapping, "")
    return types


async def _mappings(client: "AsyncOpenSearch", index: str, limits: QueryLimits) -> list[Mapping[str, Any]]:
    async with _asked(client, index):
        told = await client.indices.get_mapping(index=index, params=_params(limits))
    return [each.get("mappings", {}) for each in told.values()]


def _params(limits: QueryLimits) -> dict[str, Any]:
    # The server keeps to the time of the query; this is for one that does not answer at all.
    return {"request_timeout": limits.timeout_s + _GRACE_S}


def _add_types(types: dict[str, str], mapping: Mapping[str, Any], above: str) -> None:
    for word in ("properties", "fields"):
        for name, field in mapping.get(word, {}).items():
            whole = f"{above}{name}"
            if "type" in field:
                types[whole] = str(field["type"])
            _add_types(types, field, f"{whole}.")


def _explanation(told: Mapping[str, Any]) -> str:
    reasons = [str(each["error"]) for each in told.get("explanations", []) if each.get("error")]
    return (reasons or [str(told.get("error") or "the server does not take the query")])[0][:_REASON_CHARACTERS]


@asynccontextmanager
async def _asked(client: "AsyncOpenSearch", index: str) -> AsyncIterator[None]:
    """Turns what the client raises inside the block into what the caller can do about it."""
    # The client is imported when it is used (see `SearchClients`).
    from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException  # noqa: PLC0415

    try:
        yield
    except ConnectionTimeout as error:
        if await client.ping(params={"request_timeout": _SIGN_OF_LIFE_S}):
            raise ask_error_of(error, index) from None
        raise ServerHangs(_late(index), after=RETRY_AFTER) from None
    except OpenSearchException as error:
        raise ask_error_of(error, index) from None


def _late(index: str) -> str:
    return f"The search server did not answer in time when {index!r} was asked"


def ask_error_of(error: "OpenSearchException", index: str) -> AskFailed | RetryLater:
    """Returns what to raise for an error of the client that came when `index` was asked."""
    from opensearchpy.exceptions import ConnectionError as NoConnection  # noqa: PLC0415
    from opensearchpy.exceptions import ConnectionTimeout, TransportError  # noqa: PLC0415

    if isinstance(error, ConnectionTimeout):
        return NoAnswer(_late(index), after=RETRY_AFTER)
    if isinstance(error, NoConnection):
        return RetryLater(f"The search server does not answer: {error.error}", after=RETRY_AFTER)
    if not isinstance(error, TransportError) or not isinstance(error.status_code, int):
        return RetryLater(f"The search server answered what is no answer: {error}", after=RETRY_AFTER)
    kinds, reason = _reason(error)
    told = f"{error.status_code}: {reason}"
    if "index_not_found_exception" in kinds:
        return IndexMissing(f"There is no index {index!r} on the search server")
    if error.status_code in (401, 403):
        return AccessRefused(f"The search server does not let us read {index!r}: {told}")
    if "circuit_breaking_exception" in kinds:
        if reason.startswith(_OWN_MEMORY):
            return QueryInvalid(
                f"The query needs more memory than the search server has; ask for fewer groups or figures: {told}"
            )
        return NoAnswer(f"The search server has no memory left: {told}", after=RETRY_AFTER)
    if error.status_code in _PASSING and not any(kind in kinds for kind in _FINAL_TYPES):
        return RetryLater(f"The search server cannot answer now: {told}", after=RETRY_AFTER)
    return QueryInvalid(f"The search server does not take the query: {told}")


def _reason(error: "TransportError") -> tuple[list[str], str]:
    """Returns the types of an error of the server, and its innermost reason in words."""
    told = error.info.get("error") if isinstance(error.info, Mapping) else None
    if not isinstance(told, Mapping):
        return [str(error.error)], str(told or error.error)[:_REASON_CHARACTERS]
    causes = [told, *_causes(told)]
    kinds = [str(each.get("type", "")) for each in causes]
    reasons = [_once(str(each["reason"])) for each in causes if each.get("reason")]
    # The outermost says no more than that the query failed.
    words = dict.fromkeys(reason for reason in reversed(reasons) if reason != "all shards failed")
    return kinds, "; ".join(words)[:_REASON_CHARACTERS] or str(error.error)


def _once(reason: str) -> str:
    """Returns a reason that says the same twice, as those of dates do, once."""
    half = reason[: (len(reason) - len(": []")) // 2]
    return half if reason == f"{half}: [{half}]" else reason


def _causes(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for each in (*told.get("root_cause", ()), *told.get("failed_shards", ()), told.get("caused_by")):
        inner = each.get("reason") if isinstance(each, Mapping) and isinstance(each.get("reason"), Mapping) else each
        if isinstance(inner, Mapping):
            found += [inner, *_causes({"caused_by": inner.get("caused_by")})] if inner.get("caused_by") else [inner]
    return found
