"""Pages of documents: each request is valid for the server, and every list of pages ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright.tools.errors import GiveUp
from dagwright_maritime.connection import Search
from dagwright_maritime.indices import Indices
from dagwright_maritime.query_execution import es_query_exec, page_query
from dagwright_maritime.search.limits import QueryLimits, QueryRejected
from dagwright_maritime.slots import EsQuery

INDEX = "maritime-shipments"


class FakeSearchClient:
    """A client whose server has `total` documents. Each document has a number (0, 1, 2 ...) and a filler text."""

    def __init__(self, total: int, *, has_identifier: bool = True, filler_bytes: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self._total = total
        self._has_identifier = has_identifier
        self._filler = "x" * filler_bytes

    @property
    def indices(self) -> "FakeSearchClient":
        return self

    async def get_mapping(self, *, index: str, **_: Any) -> dict[str, Any]:
        mappings: dict[str, Any] = Indices("maritime").bodies()[INDEX]["mappings"]
        if not self._has_identifier:
            mappings = {"properties": {"teu": {"type": "integer"}}}
        # The index name is an alias of two indices, and only one index has the fields.
        return {"first": {"mappings": {}}, index: {"mappings": mappings}}

    async def search(self, *, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.requests.append(body)
        first_number = body["search_after"][-1] + 1 if "search_after" in body else body.get("from", 0)
        assert first_number + body["size"] <= 10_000 or "search_after" in body, "the server would reject the request"
        numbers = range(first_number, min(first_number + body["size"], self._total))
        hits = [{"_source": {"id": number, "filler": self._filler}, "sort": [number]} for number in numbers]
        return {"hits": {"hits": hits, "total": {"value": self._total}}}


@pytest.fixture
def use_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    def replace_client(client: FakeSearchClient, limits: QueryLimits) -> FakeSearchClient:
        @asynccontextmanager
        async def connect_search() -> AsyncIterator[Search]:
            yield Search(cast("AsyncOpenSearch", client), Indices("maritime"), limits)

        monkeypatch.setattr("dagwright_maritime.query_execution.connect_search", connect_search)
        return client

    return replace_client


async def read_pages(offset: Any = None, page_size: int = 20) -> list[list[int]]:
    pages: list[list[int]] = []
    while len(pages) < 20:
        page = await page_query(EsQuery(index=INDEX, body={}), offset=offset, page_size=page_size)
        pages.append([hit["id"] for hit in page.outputs["page_results"]["hits"]])
        offset = page.outputs["next_offset"]
        assert page.outputs["has_more"] == (offset is not None)
        if offset is None:
            return pages
    raise AssertionError("the pages have no end")


async def test_pages_end_if_the_row_limit_is_one(use_client: Any) -> None:
    use_client(FakeSearchClient(3), QueryLimits(rows=1))
    assert await read_pages() == [[0], [1], [2]]


async def test_pages_continue_beyond_the_offset_limit(use_client: Any) -> None:
    use_client(FakeSearchClient(10_003), QueryLimits())
    assert await read_pages(9_980) == [[*range(9_980, 10_000)], [10_000, 10_001, 10_002]]
    assert await read_pages(9_990) == [[*range(9_990, 10_000)], [10_000, 10_001, 10_002]]
    with pytest.raises(QueryRejected, match="from and size together are limited to 10,000 documents; use search_after"):
        await read_pages(10_000)


async def test_page_that_ends_with_the_last_document_has_no_next_page(use_client: Any) -> None:
    use_client(FakeSearchClient(10_000), QueryLimits())
    assert await read_pages(9_980) == [[*range(9_980, 10_000)]]
    assert await read_pages(9_970) == [[*range(9_970, 9_990)], [*range(9_990, 10_000)]]


async def test_query_with_the_maximum_number_of_sorts_has_pages(use_client: Any) -> None:
    client = use_client(FakeSearchClient(1), QueryLimits())
    sorts = ["teu", "status", "eta_date", "commodity", "carrier_name"]
    await page_query(EsQuery(index=INDEX, body={"sort": sorts}))
    assert [next(iter(sort)) for sort in client.requests[0]["sort"]] == [*sorts, "shipment_id"]
    with pytest.raises(QueryRejected, match="at most 6 sort fields are allowed"):
        await page_query(EsQuery(index=INDEX, body={"sort": [*sorts, "arrival_date"]}))


@pytest.mark.parametrize("offset", [None, [-1]])
async def test_documents_over_the_size_limit_are_on_the_next_page(
    use_client: Any, monkeypatch: pytest.MonkeyPatch, offset: Any
) -> None:
    # Only five documents fit into the size limit, although the page size of 20 would allow all 13.
    monkeypatch.setattr("dagwright_maritime.search.results.RESULT_LIMIT_BYTES", 1_200)
    use_client(FakeSearchClient(13, filler_bytes=200), QueryLimits())
    assert await read_pages(offset) == [[*range(5)], [*range(5, 10)], [10, 11, 12]]


async def test_too_large_document_ends_the_pages(use_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright_maritime.search.results.RESULT_LIMIT_BYTES", 100)
    use_client(FakeSearchClient(3, filler_bytes=200), QueryLimits())
    assert await read_pages() == [[]]


async def test_index_without_the_identifier_has_no_pages(use_client: Any) -> None:
    use_client(FakeSearchClient(3, has_identifier=False), QueryLimits())
    message = r"have no field 'shipment_id', which pages need .*: run the query with es_query_exec"
    with pytest.raises(GiveUp, match=message):
        await read_pages()


async def test_unknown_field_is_reported_with_the_nearest_name_before_any_request(use_client: Any) -> None:
    client = use_client(FakeSearchClient(3), QueryLimits())
    volume_query = EsQuery(index=INDEX, body={"size": 0, "aggs": {"volume": {"sum": {"field": "tue"}}}})
    with pytest.raises(QueryRejected, match=r"/aggs/volume/sum/field: there is no field 'tue'; .*'teu'"):
        await es_query_exec(volume_query)
    carrier_query = EsQuery(index=INDEX, body={"query": {"term": {"carier_name": "MAERSK"}}})
    for tool in (es_query_exec, page_query):
        with pytest.raises(QueryRejected, match=r"/query/term/carier_name: there is no field .*'carrier_name'"):
            await tool(carrier_query)
    assert client.requests == []


async def test_page_reports_the_number_of_matches_and_whether_more_follow(use_client: Any) -> None:
    use_client(FakeSearchClient(7), QueryLimits())
    offset = None
    for has_more, end in ((True, "5 on this page; more follow."), (False, "2 on this page; no more follow.")):
        page = await page_query(EsQuery(index=INDEX, body={}), offset=offset, page_size=5)
        results, offset = page.outputs["page_results"], page.outputs["next_offset"]
        assert (results["total"], results["has_more"], page.message) == (7, has_more, f"7 documents match. {end}")
