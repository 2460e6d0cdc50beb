"""A tenth worker tool with its own queries: add `--tools examples/maritime/why_nothing.py` to the nine."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.tools import worker_tool
from dagwright_maritime import SERVER_ATTEMPTS, EsQuery, EsResults, check_query, connect_search, run_query


@worker_tool(
    preconditions=[
        "has `es_results` of a query that found nothing",
        "the user wants to know why, or would otherwise get no answer",
    ],
    requires=["es_results"],
    outputs=["why_nothing"],
    goal_type="deliverable",
    timeout="2m",
    max_attempts=SERVER_ATTEMPTS,
)
async def explain_nothing_found(es_results: EsResults) -> dict[str, str]:
    """Explain why a query found nothing: remove each condition in turn and count the matches.

    Args:
        es_results: result of es_query_exec
    """
    if es_results.total:
        raise ValueError(f"The query found {es_results.total:,}, so there is nothing to explain")
    conditions = list(_conditions(es_results.query.get("query", {})))
    lines = []
    async with connect_search() as search:
        for place, omitted in enumerate(conditions):
            rest = [*conditions[:place], *conditions[place + 1 :]]
            body = {"query": {"bool": {"filter": rest}}, "size": 0}
            # Only a checked query is sent to the server.
            found = await run_query(search, await check_query(search, EsQuery(index=es_results.index, body=body)))
            lines.append(f"- without `{json.dumps(omitted)}`: {found.total:,}")
    return {"why_nothing": "\n".join(lines) or "The query has no condition: the index is empty."}


def _conditions(query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the conditions of a query that all must hold; any other query is itself a condition."""
    if query.keys() == {"bool"} and query["bool"].keys() <= {"filter", "must"}:
        for parts in query["bool"].values():
            yield from parts if isinstance(parts, list) else [parts]
    elif query:
        yield query
