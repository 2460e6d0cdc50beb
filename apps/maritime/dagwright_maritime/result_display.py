"""The worker tool that shows results as Markdown tables, without a model."""

from typing import Annotated

from pydantic import Field

from dagwright.tools.worker_tools import worker_tool
from dagwright_maritime.search.tables import document_table, group_tables
from dagwright_maritime.slots import EsResults

DEFAULT_ROWS = 20
_FIRST_FIELDS = (
    "shipment_id", "shipper_name", "carrier_name", "origin_port", "destination_port", "status", "teu", "departure_date",
    "eta_date", "arrival_date", "transit_days", "commodity",
)  # fmt: skip
"""The most important fields of a shipment, in order of importance."""


@worker_tool(
    preconditions=["has `es_results` to display", "the user wants to see the documents, groups or numbers themselves"],
    requires=["es_results"],
    outputs=["formatted_results"],
    goal_type="deliverable",
)
def show_results(
    es_results: EsResults | list[EsResults], rows: Annotated[int, Field(ge=1, le=100)] = DEFAULT_ROWS
) -> dict[str, str]:
    """Show results of a query in Markdown tables: documents, groups and numbers, and how many more there are.

    Args:
        es_results: result of es_query_exec, or the `page_results` of page_query; several results are shown one after
            the other
        rows: maximum number of rows of each table
    """
    all_results = es_results if isinstance(es_results, list) else [es_results]
    return {
        "formatted_results": "\n\n".join(_result_text(result, rows) for result in all_results) or "Nothing matches."
    }


def _result_text(result: EsResults, rows: int) -> str:
    if result.total == 0:
        return "Nothing matches."
    if result.is_page:
        return _page_text(result, rows)
    parts = []
    if result.aggregations:
        parts.append(group_tables(result.aggregations, rows=rows))
        # `gap.group` is the name of a grouping, empty for a number over all documents. `gap.groups` is the number of
        # groups of this grouping.
        parts += [
            f"{gap.metric} is available for {gap.with_value} of {gap.groups} groups."
            if gap.group
            else f"{gap.metric} is not available."
            for gap in result.missing_values
        ]
    if result.hits or not result.aggregations:
        parts.append(document_table(result.hits, total=result.total, rows=rows, first_fields=_FIRST_FIELDS))
    return "\n\n".join(parts)


def _page_text(result: EsResults, rows: int) -> str:
    """Return the documents of a page as a table, and a summary.

    The summary has no range such as "21 to 40 of 90", because the number of documents on earlier pages is unknown.
    """
    first_hits = result.hits[:rows]
    # If the query requests no fields, the documents are empty and are not shown.
    count, shown_count = len(result.hits), len(first_hits) if any(first_hits) else 0
    match_note = "" if result.total is None else f" {result.total:,} match in all."
    more_note = "More follow on the next page." if result.has_more else "No more follow."
    page_note = (
        f"{shown_count:,} of the {count:,} documents of this page are shown." if count else "This page is empty."
    )
    summary = f"{page_note}{match_note} {more_note}"
    return "\n\n".join(
        [document_table(first_hits, total=None, rows=rows, first_fields=_FIRST_FIELDS), summary]
        if shown_count
        else [summary]
    )
