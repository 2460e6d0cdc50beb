"""What the workers ask for themselves: by the same way as a query of a model, and nothing is made of a part."""

from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright.maritime.connection import Search
from dagwright.maritime.fields import documents, find, values_of
from dagwright.maritime.indices import Indices
from dagwright.maritime.name_finding import find_name
from dagwright.search.asking import NoAnswer
from dagwright.search.limits import QueryLimits, QueryRefused

INDEX = "maritime-shipments"


class Server:
    """A client whose server searches, and answers what it is given."""

    def __init__(self, **told: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self._told = {"hits": {"hits": [], "total": {"value": 0}}, **told}

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


async def test_few_rows_of_the_settings_are_no_reason_to_refuse_a_query_of_ours() -> None:
    server = Server()
    assert await documents(server.reached(QueryLimits(rows=3)), INDEX, {"size": 5}) == []
    assert server.asked[0]["size"] == 3
