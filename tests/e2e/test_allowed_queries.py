"""A real search server answers queries that the checks allow, or reports an error, and changes no document."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from opensearchpy import AsyncOpenSearch

from dagwright_maritime.figures import MAX_TABLES, Table, tables_of
from dagwright_maritime.search.client import open_client
from dagwright_maritime.search.requests import QueryInvalid, execute_query, rejection_reason
from dagwright_maritime.search.results import bucket_list
from dagwright_maritime.search.tables import document_table, group_tables
from dagwright_maritime.slots import EsResults
from tests.property.test_read_only_properties import FIELDS, LIMITS, PREFIX, VALID_BODIES, parse_or_none
from tests.support.search import LiveSearch

pytestmark = pytest.mark.search

INDEX = f"{PREFIX}-allowed"
DOCUMENTS: list[dict[str, Any]] = [
    {"name": "Maersk", "teu": 4, "days": 12.5, "eta": "2026-01-31"},
    *({"name": "abc", "teu": 40, "eta": "2026-02-09"}, {"name": "Maersk", "teu": 1, "days": 3.0}),
    # Each range of a generated query contains this document. If a range were empty, the server would ignore the other
    # conditions of the query.
    {"name": "zz", "teu": 1000, "days": 1000.0, "eta": "2060-01-01"},
]


@pytest.fixture(scope="module")
async def opensearch(search: LiveSearch) -> AsyncIterator[AsyncOpenSearch]:
    """Client of a server with documents that have the fields of the property tests' queries."""
    fields = {name: {"type": kind} for name, kind in FIELDS.items() if "." not in name}
    fields["name"]["fields"] = {"text": {"type": "text"}}  # type: ignore[assignment] # a field in a field
    async with open_client(search.address) as client:
        await client.indices.create(index=INDEX, body={"mappings": {"dynamic": "strict", "properties": fields}})
        for number, document in enumerate(DOCUMENTS):
            await client.index(index=INDEX, id=str(number), body=document)
        await client.indices.refresh(index=INDEX)
        yield client


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=VALID_BODIES)
@example(body={"query": {"bool": {"must": [{"term": {"teu": False}}, {"range": {"eta": {"gte": "now-1d/d"}}}]}}})
async def test_valid_query_is_rejected_by_the_server_or_its_results_are_shown(
    opensearch: AsyncOpenSearch, body: Any
) -> None:
    query = parse_or_none(INDEX, body)
    if query is None:
        return
    error = await rejection_reason(opensearch, query, LIMITS)
    if error is not None:
        with pytest.raises(QueryInvalid):
            await execute_query(opensearch, query, LIMITS)
        return
    answer = await execute_query(opensearch, query, LIMITS)
    assert len(answer.hits) <= query.rows
    assert answer.problems == []
    assert answer.total <= len(DOCUMENTS)
    assert document_table(answer.hits, total=answer.total, rows=20)
    assert group_tables(answer.groups, rows=20) or not query.aggregations
    results = EsResults(hits=answer.hits, aggregations=answer.groups, total=answer.total, query=query.body)
    check_figures(results)


def check_figures(results: EsResults) -> None:
    """Assert that shares are percentages of the grouped documents, and that no sum counts a document twice.

    No figure may be a timestamp.
    """
    tables = tables_of([results], [""])
    assert all(table.markdown() for table in tables)
    numbers = [number for table in tables for number in table.numbers()]
    assert all(abs(number) < 1e11 for number in numbers), "a figure is a timestamp in milliseconds"
    tables_with_shares = [table for table in tables if "share of documents" in column_names(table)]
    expected_counts = list(counts_of(results.aggregations, results.total or 0))
    assert len(tables_with_shares) == len(expected_counts) or len(tables) == MAX_TABLES
    for table, (document_count, counts) in zip(tables_with_shares, expected_counts, strict=False):
        share_column = column_names(table).index("share of documents")
        shares = [values[share_column] for _, values in table.rows]
        assert shares == pytest.approx([100 * count / document_count for count in counts], abs=1e-5)
        for _, values in table.summary_rows:
            assert 0 < values[share_column] <= 100  # type: ignore[operator] # a number, as in each row of sums
        has_sums = any(name.startswith("share of ") for name in column_names(table)[share_column + 1 :])
        assert not has_sums or sum(counts) == document_count


def column_names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def counts_of(groups: Mapping[str, Any], document_count: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of documents and the number per group, for each grouping, in the order of the tables.

    Groupings without documents or without groups have no shares and are omitted.
    """
    for grouping in groups.values():
        buckets = bucket_list(grouping) or []
        if buckets and document_count:
            yield document_count, [bucket["doc_count"] for _, bucket in buckets]
        for _, bucket in buckets:
            yield from counts_of(bucket, bucket["doc_count"])


async def test_queries_changed_no_document(opensearch: AsyncOpenSearch) -> None:
    actual = await opensearch.search(index=INDEX, body={"version": True})
    assert sorted(hit["_version"] for hit in actual["hits"]["hits"]) == [1] * len(DOCUMENTS)
