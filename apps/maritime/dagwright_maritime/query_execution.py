"""The worker tools that run a query: `es_query_exec` at once, `page_query` page by page. Neither calls a model.

Every query is checked again before it is sent, whatever its origin. The check includes the fields of the query.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from dagwright.tools import WorkerResult
from dagwright.tools.errors import GiveUp
from dagwright.tools.worker_tools import worker_tool
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, connect_search
from dagwright_maritime.search.limits import Check, QueryRejected
from dagwright_maritime.search.read_only import CheckedQuery, parse_query
from dagwright_maritime.search.requests import IndexMissing, execute_query, read_types
from dagwright_maritime.search.results import Gap, SearchResult
from dagwright_maritime.slots import EsQuery, EsResults, MissingValues

DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 500
_MAX_GROUPS_WITHOUT_VALUE = 100


@worker_tool(
    preconditions=["has an `es_query`"],
    requires=["es_query"],
    outputs=["es_results", "hit_count"],
    goal_type="support",
    timeout="2m",
    max_attempts=SERVER_ATTEMPTS,
)
async def es_query_exec(es_query: EsQuery) -> WorkerResult:
    """Run a search query and return its result: documents, or figures and groups, and the number of matching documents.

    The result is partial if the server could not search everything, or if a figure is missing for some groups; the
    message lists these problems.

    Args:
        es_query: the query, from es_query_gen
    """
    async with connect_search() as search:
        query = await check_query(search, es_query)
        result = await run_query(search, query)
    results = EsResults(
        hits=result.hits,
        aggregations=result.groups,
        total=result.total,
        took_ms=result.took_ms,
        index=query.index,
        missing_values=[_missing_values(gap) for gap in result.gaps],
        query=query.body,
    )
    problems = [*result.problems, *(gap.describe() for gap in result.gaps)]
    return WorkerResult(
        status="partial" if problems else "success",
        outputs={"es_results": results.model_dump(), "hit_count": result.total},
        # Start with the number of matches, the most useful fact for people and for the planner of the next round.
        message=" ".join([_matches_text(result.total), *problems]),
    )


@worker_tool(
    preconditions=[
        "has an `es_query` that searches for documents",
        "the user wants to see the documents page by page, or wants more documents after the first page",
    ],
    requires=["es_query"],
    outputs=["page_results", "has_more", "next_offset"],
    same_as={"page_results": "es_results"},
    goal_type="support",
    timeout="2m",
    max_attempts=SERVER_ATTEMPTS,
)
async def page_query(
    es_query: EsQuery,
    offset: int | list[Any] | None = None,
    page_size: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = DEFAULT_PAGE_SIZE,
) -> WorkerResult:
    """Return one page of the documents of a search query, and the offset of the next page, if there is one.

    Pages are consistent: documents with equal sort values are ordered by their identifier.

    Args:
        es_query: the query, from es_query_gen; must not have aggregations
        offset: start of the page: `next_offset` of the previous page, or the number of documents before the page
        page_size: documents on a page
    """
    async with connect_search() as search:
        size = min(page_size, search.limits.rows)
        # One more document shows whether there is another page. One more sort field, the identifier, makes the order
        # of documents unambiguous.
        limits = replace(search.limits, rows=search.limits.rows + 1, sorts=search.limits.sorts + 1)
        restricted_query = _restrict_to_page(search, es_query, offset, size + 1)
        page_search = replace(search, limits=limits)
        result = await run_query(page_search, await _check_restricted_query(page_search, restricted_query))
    # Documents that did not fit into the result are on the next page.
    hits, found_count = result.hits[:size], len(result.hits) + result.omitted
    # With a numeric offset, the number of matches shows whether there are more documents: near the end of the server's
    # window, the query cannot request one more document.
    has_remaining_documents = (
        found_count > len(hits) if isinstance(offset, list) else result.total > (offset or 0) + len(hits)
    )
    # A page without documents is the last: the next document is too large for any result.
    has_more = has_remaining_documents and bool(hits)
    page_text = f"{len(hits):,} on this page; {'more follow' if has_more else 'no more follow'}."
    return WorkerResult(
        status="partial" if result.problems else "success",
        outputs={
            "page_results": {"hits": hits, "index": es_query.index, "total": result.total, "has_more": has_more},
            "has_more": has_more,
            "next_offset": result.sort_values[len(hits) - 1] if has_more else None,
        },
        message=" ".join([f"{_matches_text(result.total)} {page_text}", *result.problems]),
    )


async def check_query(search: Search, es_query: EsQuery) -> CheckedQuery:
    """Check a query and its fields: the server would treat an unknown field as a field without values.

    Raises:
        QueryRejected: the query is not allowed, or has an unknown field.
        GiveUp: the index does not exist, or access is denied.
        RetryLater: the server is unavailable.
    """
    return _check_with_types(await _types_of(search, es_query.index), search, es_query)


def check_internal_query(search: Search, es_query: EsQuery) -> CheckedQuery:
    """Check an internal query, whose fields are known to exist.

    Raises:
        QueryRejected: the query is not allowed.
    """
    return _check_with_types(None, search, es_query)


def check_index(search: Search, index: str) -> None:
    """Check that an index may be read.

    Raises:
        QueryRejected: the index is not one of the allowed indices.
    """
    check_internal_query(search, EsQuery(index=index, body={}))


async def run_query(search: Search, query: CheckedQuery) -> SearchResult:
    """Return the result of a query.

    Raises the same errors as `execute_query`, with a hint if the index does not exist.
    """
    try:
        return await execute_query(search.client, query, search.limits)
    except IndexMissing as error:
        raise index_missing_error(error) from None


def index_missing_error(error: IndexMissing) -> GiveUp:
    """Return the error for a missing index, with a hint."""
    return GiveUp(
        f"{error}: load the data with `python -m dagwright_maritime load`, or set DAGWRIGHT_OPENSEARCH_PREFIX to the "
        "prefix of the index names"
    )


async def _types_of(search: Search, index: str) -> Mapping[str, str]:
    """Check that an index may be read, and return its field types; raises the same errors as `check_query`."""
    check_index(search, index)
    try:
        return await read_types(search.client, index, search.limits)
    except IndexMissing as error:
        raise index_missing_error(error) from None


def _check_with_types(types: Mapping[str, str] | None, search: Search, es_query: EsQuery) -> CheckedQuery:
    check = Check(search.limits, types)
    return parse_query(es_query.index, es_query.body, prefix=search.indices.prefix, check=check)


async def _check_restricted_query(search: Search, es_query: EsQuery) -> CheckedQuery:
    """Return the checked query, restricted to a page.

    Raises:
        GiveUp: the documents have no identifier, or as in `check_query`.
        QueryRejected, RetryLater: as in `check_query`.
    """
    types = await _types_of(search, es_query.index)
    name = _identifier_fields(search)[es_query.index]
    if name not in types:
        raise GiveUp(
            f"Documents of {es_query.index!r} have no field {name!r}, which pages need as an identifier: "
            "run the query with es_query_exec"
        )
    return _check_with_types(types, search, es_query)


def _identifier_fields(search: Search) -> dict[str, str]:
    return {search.indices.shipments: "shipment_id", search.indices.helpdesk: "article_id"}


def _restrict_to_page(search: Search, es_query: EsQuery, offset: int | list[Any] | None, rows: int) -> EsQuery:
    """Return the query restricted to a page.

    Near the end of the server's window, the query requests fewer than `rows` documents.

    Raises:
        QueryRejected: the query has aggregations, or its index has no identifier.
    """
    body = {name: value for name, value in es_query.body.items() if name not in ("from", "search_after", "size")}
    if body.keys() & {"aggs", "aggregations"}:
        raise QueryRejected(["/aggs: groups have no pages; request more groups in the query, or remove aggs"])
    identifier_fields = _identifier_fields(search)
    if es_query.index not in identifier_fields:
        raise QueryRejected([f"/index: only {' or '.join(identifier_fields)} have pages, not {es_query.index!r:.100}"])
    body["sort"] = _append_identifier(body.get("sort", []), identifier_fields[es_query.index])
    if isinstance(offset, list):
        return EsQuery(index=es_query.index, body={**body, "search_after": offset, "size": rows})
    start = offset or 0
    remaining_rows = max(search.limits.window - start, 1)
    return EsQuery(index=es_query.index, body={**body, "from": start, "size": min(rows, remaining_rows)})


def _append_identifier(sort: Any, name: str) -> list[Any]:
    sorts = list(sort) if isinstance(sort, list) else [sort]
    names = [
        element if isinstance(element, str) else next(iter(element), "")
        for element in sorts
        if isinstance(element, str | dict)
    ]
    return sorts if name in names else [*sorts, name]


def _matches_text(total: int) -> str:
    return f"{total:,} document{' matches' if total == 1 else 's match'}."


def _missing_values(gap: Gap) -> MissingValues:
    return MissingValues(
        group=gap.group,
        metric=gap.metric,
        groups=gap.group_count,
        with_value=gap.count_with_value,
        without=list(gap.keys_without_value[:_MAX_GROUPS_WITHOUT_VALUE]),
    )
