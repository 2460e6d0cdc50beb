"""Queries of worker tools: they are checked like queries of a model, and partial responses are rejected."""

from datetime import UTC, date, datetime
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright_maritime.connection import Search
from dagwright_maritime.fields import IndexField, read_aggregations, read_fields, read_values, run_internal_query
from dagwright_maritime.indices import SHIPMENT_FIELDS, Indices
from dagwright_maritime.name_finding import find_name
from dagwright_maritime.search.limits import QueryLimits, QueryRejected
from dagwright_maritime.search.requests import QueryTimeout

INDEX = "maritime-shipments"


class FakeSearchClient:
    """A search client that records the requests and has a fixed response."""

    mapping: dict[str, Any] = Indices("maritime").bodies()[INDEX]["mappings"]

    def __init__(self, **response_fields: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self._response = {"hits": {"hits": [], "total": {"value": 0}}, **response_fields}

    @property
    def indices(self) -> "FakeSearchClient":
        return self

    async def get_mapping(self, *, index: str, **_: Any) -> dict[str, Any]:
        self.requests.append({"mapping_of": index})
        return {index: {"mappings": self.mapping}}

    async def search(self, *, index: str, body: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        self.requests.append({"index": index, **params, **body})
        return self._response

    def as_search(self, limits: QueryLimits | None = None) -> Search:
        return Search(cast("AsyncOpenSearch", self), Indices("maritime"), limits or QueryLimits())


class CountingClient(FakeSearchClient):
    """A client whose server counts `len(name)` documents for each field name."""

    async def search(self, *, index: str, body: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        response = await super().search(index=index, body=body, params=params)
        fields = {name: agg["filter"]["exists"]["field"] for name, agg in body.get("aggs", {}).items()}
        aggregations = {name: {"doc_count": len(field)} for name, field in fields.items()}
        return {**response, "hits": {"hits": [], "total": {"value": 7}}, "aggregations": aggregations}


def exists_aggs(*fields: str) -> dict[str, Any]:
    return {name: {"filter": {"exists": {"field": name}}} for name in fields}


async def test_documents_are_counted_for_any_name_and_number_of_fields() -> None:
    names = ["@timestamp", "arrival-date", "größe", "with blank", "a.b-c", *(f"f{number}" for number in range(40))]
    client = CountingClient()
    expected = {name: {"doc_count": len(name)} for name in names}
    assert await read_aggregations(client.as_search(), INDEX, exists_aggs(*names)) == (7, expected)
    assert [len(request["aggs"]) for request in client.requests] == [15, 15, 15]


async def test_documents_of_an_index_without_fields_are_counted() -> None:
    client = CountingClient()
    assert await read_aggregations(client.as_search(), INDEX, {}) == (7, {})
    assert await read_values(client.as_search(), INDEX, []) == {}
    assert ["aggs" in request for request in client.requests] == [False]


@pytest.mark.parametrize("name", ["a*", "_script", "a,b", "a^2", "", ".a", "a..b", "-a", "a\n", "x" * 101])
async def test_patterns_and_reserved_names_are_not_field_names(name: str) -> None:
    with pytest.raises(QueryRejected, match="is not a field name"):
        await read_aggregations(FakeSearchClient().as_search(), INDEX, exists_aggs(name))


@pytest.mark.parametrize(
    "meta",
    [
        [],
        "text",
        {"fields": ["teu"], "loaded": "yes"},
        {"fields": "teu", "loaded": {"today": "not a day"}},
        {"fields": {"teu": ["volume"]}, "loaded": {"today": 3}},
        {"fields": {"teu": {"description": ["volume"], "synonyms": {"a": 1}}}},
    ],
)
async def test_invalid_metadata_of_a_mapping_is_ignored(meta: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = {"properties": {"teu": {"type": "long"}, "@at": {"type": "date"}}, "_meta": meta}
    monkeypatch.setattr(FakeSearchClient, "mapping", mapping)
    fields = await read_fields(FakeSearchClient().as_search(), INDEX)
    assert list(fields.by_name.values()) == [IndexField("teu", "long"), IndexField("@at", "date")]
    assert fields.today <= datetime.now(UTC).date()


async def test_short_forms_of_mapping_metadata_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {"fields": {"teu": {"synonyms": "volume"}, "status": "how far it is"}}
    properties = {"status": {"type": "keyword"}, "teu": {"type": "long"}}
    monkeypatch.setattr(FakeSearchClient, "mapping", {"properties": properties, "_meta": meta})
    assert list((await read_fields(FakeSearchClient().as_search(), INDEX)).by_name.values()) == [
        IndexField("teu", "long", "", ("volume",)),
        IndexField("status", "keyword", "how far it is"),
    ]


@pytest.mark.parametrize(
    ("response_fields", "message"),
    [
        ({"timed_out": True}, "timed out"),
        ({"_shards": {"failed": 1, "total": 2}}, "1 of 2 parts of the index could not be searched"),
    ],
)
async def test_partial_response_is_rejected(response_fields: dict[str, Any], message: str) -> None:
    search = FakeSearchClient(**response_fields, aggregations={"status": {"buckets": []}}).as_search()
    with pytest.raises(QueryTimeout, match=message):
        await find_name(search, "Kite Harbour")
    with pytest.raises(QueryTimeout, match=f"searched '{INDEX}' only in part"):
        await read_values(search, INDEX, ["status"])


async def test_queries_of_worker_tools_are_checked() -> None:
    client = FakeSearchClient()
    for index, body in (("other-index", {}), (INDEX, {"query": {"query_string": {"query": "a"}}})):
        with pytest.raises(QueryRejected):
            await run_internal_query(client.as_search(), index, body)
    assert client.requests == []
    await find_name(client.as_search(), "Kite Harbour")
    assert (client.requests[0]["timeout"], client.requests[0]["track_total_hits"]) == ("20000ms", True)


async def test_fields_with_types_and_the_day_of_the_data_are_read_from_the_mapping() -> None:
    client = FakeSearchClient()
    loaded_meta = {"loaded": {"today": "2026-02-10"}}
    client.mapping = {**client.mapping, "_meta": {**client.mapping["_meta"], **loaded_meta}}
    fields = await read_fields(client.as_search(), INDEX)
    assert client.requests == [{"mapping_of": INDEX}]
    assert [*fields.by_name] == [*SHIPMENT_FIELDS]
    # A query may name subfields, which are not listed as fields.
    assert fields.types["shipper_name.text"] == "text"
    types_of_fields = {name: field_type for name, field_type in fields.types.items() if "." not in name}
    assert types_of_fields == {name: field.type for name, field in fields.by_name.items()}
    assert fields.today == date(2026, 2, 10)


@pytest.mark.parametrize("index", ["secret", "maritime-*", "maritime-a,secret", "", "_all"])
async def test_mapping_of_a_disallowed_index_is_not_read(index: str) -> None:
    client = FakeSearchClient()
    with pytest.raises(QueryRejected, match="/index: "):
        await read_fields(client.as_search(), index)
    assert client.requests == []
