"""An additional worker tool for `dagwright_maritime`: it explains why a query found nothing.

Serve the worker tool with `--tools dagwright_maritime --tools examples/maritime/why_nothing.py`.
"""

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
        raise ValueError(f"The query found {es_results.total:,} shipments, so there is nothing to explain")
    conditions = list(_conditions(es_results.query.get("query", {})))
    lines = []
    async with connect_search() as search:
        for index, omitted_condition in enumerate(conditions):
            remaining_conditions = [*conditions[:index], *conditions[index + 1 :]]
            body = {"query": {"bool": {"filter": remaining_conditions}}, "size": 0}
            # Only a checked query is sent to the server.
            results = await run_query(search, await check_query(search, EsQuery(index=es_results.index, body=body)))
            lines.append(f"- without `{json.dumps(omitted_condition)}`: {results.total:,}")
    return {"why_nothing": "\n".join(lines) or "The query has no condition: the index is empty."}


def _conditions(query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the conditions of a query that are combined by AND; any other query is one condition."""
    if query.keys() == {"bool"} and query["bool"].keys() <= {"filter", "must"}:
        for parts in query["bool"].values():
            yield from parts if isinstance(parts, list) else [parts]
    elif query:
        yield query
