"""The workers that run a query: `es_query_exec` at once, `page_query` page by page. Neither asks a model.

Whoever made the query, it is checked again here, by the fields of the index too, and only what passes is sent.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from dagwright.tools import WorkerResult
from dagwright.tools.errors import GiveUp
from dagwright.tools.worker_tools import worker_tool
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, reach_search
from dagwright_maritime.search.answers import Gap, SearchAnswer
from dagwright_maritime.search.asking import IndexMissing, ask, read_types
from dagwright_maritime.search.limits import Check, QueryRefused
from dagwright_maritime.search.read_only import ReadQuery, read_query
from dagwright_maritime.slots import EsQuery, EsResults, MissingValues

DEFAULT_PAGE = 20
LARGEST_PAGE = 500
_KEYS_KEPT = 100


@worker_tool(
    preconditions=["has an `es_query`"],
    requires=["es_query"],
    outputs=["es_results", "hit_count"],
    goal_type="support",
    timeout="2m",
    max_attempts=SERVER_ATTEMPTS,
)
async def es_query_exec(es_query: EsQuery) -> WorkerResult:
    """Runs a search query and returns what it finds: documents, or figures and groups, and how many documents match.

    It is partial if the server could not search everything, or if a figure is there for some groups only; the message
    says which.

    Args:
        es_query: the query, of es_query_gen
    """
    async with reach_search() as search:
        query = await checked(search, es_query)
        answer = await answer_of(search, query)
    results = EsResults(
        hits=answer.hits,
        aggregations=answer.groups,
        total=answer.total,
        took_ms=answer.took_ms,
        index=query.index,
        missing_values=[_missing(gap) for gap in answer.gaps],
        query=query.body,
    )
    problems = [*answer.problems, *(gap.words() for gap in answer.gaps)]
    return WorkerResult(
        status="partial" if problems else "success",
        outputs={"es_results": results.model_dump(), "hit_count": answer.total},
        # How many there are is the first thing to know, for people and for the planner of the next round.
        message=" ".join([_matching(answer.total), *problems]),
    )


@worker_tool(
    preconditions=[
        "has an `es_query` that searches for documents",
        "the user wants to see them page by page, or more of what was shown",
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
    page_size: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = DEFAULT_PAGE,
) -> WorkerResult:
    """Brings one page of the documents of a search query, and says where the next one begins, if there are more.

    Pages fit together: documents that the query orders alike are ordered by their identifier.

    Args:
        es_query: the query, of es_query_gen; not one of groups and figures
        offset: where the page begins: `next_offset` of the page before, or how many documents come before it
        page_size: documents on a page
    """
    async with reach_search() as search:
        size = min(page_size, search.limits.rows)
        # One document more shows whether there is another page, and one field more keeps the order.
        limits = replace(search.limits, rows=search.limits.rows + 1, sorts=search.limits.sorts + 1)
        page = _page(search, es_query, offset, size + 1)
        wider = replace(search, limits=limits)
        answer = await answer_of(wider, await _checked_page(wider, page))
    # What did not fit into the answer is on the next page.
    hits, found = answer.hits[:size], len(answer.hits) + answer.omitted
    # None can be asked for behind the last that can be counted off.
    rest = found > len(hits) if isinstance(offset, list) else answer.total > (offset or 0) + len(hits)
    # A document that is too large for any answer ends the pages.
    has_more = rest and bool(hits)
    on_page = f"{len(hits):,} on this page; {'more follow' if has_more else 'no more follow'}."
    return WorkerResult(
        status="partial" if answer.problems else "success",
        outputs={
            "page_results": {"hits": hits, "index": es_query.index, "total": answer.total, "has_more": has_more},
            "has_more": has_more,
            "next_offset": answer.places[len(hits) - 1] if has_more else None,
        },
        message=" ".join([f"{_matching(answer.total)} {on_page}", *answer.problems]),
    )


async def checked(search: Search, es_query: EsQuery) -> ReadQuery:
    """Returns a query as it may be run: the server would take a field that is not there for one without values.

    Raises:
        QueryRefused: it may not be run, or names a field that the index has not.
        GiveUp: there is no such index, or the server does not let us in.
        RetryLater: the server cannot be asked now.
    """
    return _checked_by(await _types_of(search, es_query.index), search, es_query)


def allowed(search: Search, es_query: EsQuery) -> ReadQuery:
    """Returns a query of ours as it may be run; its fields are those that are there.

    Raises:
        QueryRefused: it may not be run.
    """
    return _checked_by(None, search, es_query)


def refuse_foreign_index(search: Search, index: str) -> None:
    """Does nothing for an index that may be read.

    Raises:
        QueryRefused: it is none of those, or no name of one index.
    """
    allowed(search, EsQuery(index=index, body={}))


async def answer_of(search: Search, query: ReadQuery) -> SearchAnswer:
    """Returns what a query finds; raises as `ask`, and what to do if the index is not there."""
    try:
        return await ask(search.client, query, search.limits)
    except IndexMissing as error:
        raise without_index(error) from None


def without_index(error: IndexMissing) -> GiveUp:
    """Returns what to raise for an index that is not there: what to do is known here."""
    return GiveUp(
        f"{error}: load the data by `python -m dagwright_maritime load`, or set DAGWRIGHT_OPENSEARCH_PREFIX to what "
        "the names of the indices begin with"
    )


async def _types_of(search: Search, index: str) -> Mapping[str, str]:
    """Returns the fields of an index that may be read, with their types; raises as `checked`."""
    refuse_foreign_index(search, index)
    try:
        return await read_types(search.client, index, search.limits)
    except IndexMissing as error:
        raise without_index(error) from None


def _checked_by(types: Mapping[str, str] | None, search: Search, es_query: EsQuery) -> ReadQuery:
    check = Check(search.limits, types)
    return read_query(es_query.index, es_query.body, prefix=search.indices.prefix, check=check)


async def _checked_page(search: Search, page: EsQuery) -> ReadQuery:
    """Returns the query of a page as it may be run; raises as `checked`, and if the index has no identifier."""
    types = await _types_of(search, page.index)
    name = _identifiers(search)[page.index]
    if name not in types:
        raise GiveUp(
            f"Documents of {page.index!r} have no field {name!r}, and pages need one that tells documents apart: "
            "run the query by es_query_exec"
        )
    return _checked_by(types, search, page)


def _identifiers(search: Search) -> dict[str, str]:
    return {search.indices.shipments: "shipment_id", search.indices.helpdesk: "article_id"}


def _page(search: Search, es_query: EsQuery, offset: int | list[Any] | None, rows: int) -> EsQuery:
    """Returns the query of a page, of fewer rows where there are no more that can be counted off.

    Raises:
        QueryRefused: it is a query of groups, or of an index whose documents have no identifier.
    """
    body = {name: value for name, value in es_query.body.items() if name not in ("from", "search_after", "size")}
    if body.keys() & {"aggs", "aggregations"}:
        raise QueryRefused(["/aggs: groups have no pages; ask for more of them in the query, or leave aggs out"])
    identifiers = _identifiers(search)
    if es_query.index not in identifiers:
        raise QueryRefused([f"/index: pages are of {' or '.join(identifiers)}, not of {es_query.index!r:.100}"])
    body["sort"] = _with_identifier(body.get("sort", []), identifiers[es_query.index])
    if isinstance(offset, list):
        return EsQuery(index=es_query.index, body={**body, "search_after": offset, "size": rows})
    start = offset or 0
    left = max(search.limits.window - start, 1)
    return EsQuery(index=es_query.index, body={**body, "from": start, "size": min(rows, left)})


def _with_identifier(sort: Any, name: str) -> list[Any]:
    sorts = list(sort) if isinstance(sort, list) else [sort]
    named = [each if isinstance(each, str) else next(iter(each), "") for each in sorts if isinstance(each, str | dict)]
    return sorts if name in named else [*sorts, name]


def _matching(total: int) -> str:
    return f"{total:,} document{' matches' if total == 1 else 's match'}."


def _missing(gap: Gap) -> MissingValues:
    return MissingValues(
        group=gap.group,
        metric=gap.metric,
        groups=gap.groups,
        with_value=gap.with_value,
        without=list(gap.without[:_KEYS_KEPT]),
    )
