"""What the workers ask for themselves: by the same way as a query of a model, and nothing is made of a part."""

from datetime import date
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright.maritime.connection import Search
from dagwright.maritime.fields import documents, find, read_fields, values_of
from dagwright.maritime.indices import SHIPMENT_FIELDS, Indices
from dagwright.maritime.name_finding import find_name
from dagwright.search.asking import NoAnswer
from dagwright.search.limits import QueryLimits, QueryRefused

INDEX = "maritime-shipments"


class Server:
    """A client whose server searches, and answers what it is given."""

    mapping: dict[str, Any] = Indices("maritime").bodies()[INDEX]["mappings"]

    def __init__(self, **told: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self._told = {"hits": {"hits": [], "total": {"value": 0}}, **told}

    @property
    def indices(self) -> "Server":
        return self

    async def get_mapping(self, *, index: str) -> dict[str, Any]:
        self.asked.append({"mapping_of": index})
        return {index: {"mappings": self.mapping}}

    async def search(self, *, index: str, body: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append({"index": index, **params, **body})
        return self._told

    def reached(self, limits: QueryLimits | None = None) -> Search:
        return Search(cast("AsyncOpenSearch", self), Indices("maritime"), limits or QueryLimits())


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"timed_out": True}, "ran out of time"),
        ({"_shards": {"failed": 1, "total": 2}}, "1 of 2 parts of the index could not be searched"),
    ],
)
async def test_a_part_is_not_taken_for_all(told: dict[str, Any], words: str) -> None:
    search = Server(**told, aggregations={"status": {"buckets": []}}).reached()
    with pytest.raises(NoAnswer, match=words):
        await find_name(search, "Kite Harbour")
    with pytest.raises(NoAnswer, match=f"did not search the whole of '{INDEX}'"):
        await values_of(search, INDEX, ["status"])


async def test_what_a_worker_asks_for_itself_is_checked_too() -> None:
    server = Server()
    for index, body in (("other-index", {}), (INDEX, {"query": {"query_string": {"query": "a"}}})):
        with pytest.raises(QueryRefused):
            await find(server.reached(), index, body)
    assert server.asked == []
    await find_name(server.reached(), "Kite Harbour")
    assert (server.asked[0]["timeout"], server.asked[0]["track_total_hits"]) == ("20000ms", True)


async def test_one_look_at_the_mapping_tells_fields_their_types_and_the_day_of_the_data() -> None:
    server = Server()
    loaded = {"loaded": {"today": "2026-02-10"}}
    server.mapping = {**server.mapping, "_meta": {**server.mapping["_meta"], **loaded}}
    fields = await read_fields(server.reached(), INDEX)
    assert server.asked == [{"mapping_of": INDEX}]
    assert [*fields.by_name] == [*SHIPMENT_FIELDS]
    # A query may name what stands inside of a field, which is no field of its own to people.
    assert fields.types["shipper_name.text"] == "text"
    assert {name: kind for name, kind in fields.types.items() if "." not in name} == {
        name: field.type for name, field in fields.by_name.items()
    }
    assert fields.today == date(2026, 2, 10)


@pytest.mark.parametrize("index", ["secret", "maritime-*", "maritime-a,secret", "", "_all"])
async def test_mapping_of_an_index_that_is_not_ours_is_not_read(index: str) -> None:
    server = Server()
    with pytest.raises(QueryRefused, match="/index: "):
        await read_fields(server.reached(), index)
    assert server.asked == []


async def test_few_rows_of_the_settings_are_no_reason_to_refuse_a_query_of_ours() -> None:
    server = Server()
    assert await documents(server.reached(QueryLimits(rows=3)), INDEX, {"size": 5}) == []
    assert server.asked[0]["size"] == 3
