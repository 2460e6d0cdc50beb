"""What the checks let through, on a real search server: it answers, or says before what is wrong; nothing changes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from opensearchpy import AsyncOpenSearch

from dagwright.maritime.figures import MOST_ROWS, tables_of
from dagwright.maritime.slots import EsResults
from dagwright.search.asking import QueryInvalid, ask, why_invalid
from dagwright.search.client import client_of
from dagwright.search.tables import document_table, group_tables
from tests.property.test_read_only_properties import FIELDS, LIMITS, PREFIX, RIGHT, passed
from tests.support.search import LiveSearch

pytestmark = pytest.mark.search

INDEX = f"{PREFIX}-allowed"
DOCUMENTS: list[dict[str, Any]] = [
    {"name": "Maersk", "teu": 4, "days": 12.5, "eta": "2026-01-31"},
    {"name": "abc", "teu": 40, "eta": "2026-02-09"},
    {"name": "Maersk", "teu": 1, "days": 3.0},
]


@pytest.fixture(scope="module")
async def opensearch(search: LiveSearch) -> AsyncIterator[AsyncOpenSearch]:
    """A client of a server with some documents that have the fields of the properties."""
    plain = {name: {"type": kind} for name, kind in FIELDS.items() if "." not in name}
    plain["name"]["fields"] = {"text": {"type": "text"}}  # type: ignore[assignment] # a field in a field
    async with client_of(search.address) as client:
        await client.indices.create(index=INDEX, body={"mappings": {"dynamic": "strict", "properties": plain}})
        for place, document in enumerate(DOCUMENTS):
            await client.index(index=INDEX, id=str(place), body=document)
        await client.indices.refresh(index=INDEX)
        yield client


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=RIGHT)
async def test_query_that_nothing_is_said_against_runs_and_is_shown(opensearch: AsyncOpenSearch, body: Any) -> None:
    query = passed(INDEX, body)
    if query is None:
        return
    why = await why_invalid(opensearch, query, LIMITS)
    if why is not None:
        with pytest.raises(QueryInvalid):
            await ask(opensearch, query, LIMITS)
        return
    answer = await ask(opensearch, query, LIMITS)
    assert len(answer.hits) <= query.rows
    assert answer.problems == []
    assert answer.total <= len(DOCUMENTS)
    assert document_table(answer.hits, total=answer.total, rows=20)
    assert group_tables(answer.groups, rows=20) or not query.groups
    results = EsResults(hits=answer.hits, aggregations=answer.groups, total=answer.total, query=query.body)
    for figures in tables_of([results], [""]):
        assert figures.markdown()
        assert len(list(figures.told())) == len(figures.rows[:MOST_ROWS]) + len(figures.sums) + len(figures.notes)
        assert all(abs(number) < 1e11 for number in figures.numbers()), "these are milliseconds"


async def test_documents_are_those_that_were_put_there(opensearch: AsyncOpenSearch) -> None:
    found = await opensearch.search(index=INDEX, body={"version": True})
    assert sorted(hit["_version"] for hit in found["hits"]["hits"]) == [1, 1, 1]
