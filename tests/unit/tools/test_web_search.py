"""`web_search` and the travel tools against scripted servers."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.testing import HttpError, ScriptNotFollowed, SearchAnswer, SearchHit, SearchServer, search_answer
from dagwright.tools import GiveUp, RetryLater, spec_of
from dagwright.tools.builtin.travel import travel_tools
from dagwright.tools.builtin.web_search import web_search_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context
from tests.support.http_servers import serve_response
from tests.support.travel import travel_service


def tools(base_url: str, key: str | None = "key") -> list[Callable[..., Any]]:
    """Return `serper_web_search` and `web_search`."""
    return web_search_tools(ToolEnvironment(Path(), serper_api_key=key, serper_base_url=base_url))


async def test_direct_answer_is_the_first_result() -> None:
    answer = SearchAnswer((SearchHit("was 55", "Caesar", "https://a.example"),), SearchHit("55 years", "Age"))
    async with SearchServer({"age of Caesar": [answer, answer]}) as server:
        for search in tools(server.base_url):
            with tool_context() as call:
                assert await search("age of Caesar") == [
                    {"title": "Age", "link": "", "snippet": "55 years"},
                    {"title": "Caesar", "link": "https://a.example", "snippet": "was 55"},
                ]
            assert call.read_locations == ["https://a.example"]
    assert server.queries == ["age of Caesar", "age of Caesar"]


async def test_results_are_limited_to_the_requested_number() -> None:
    async with SearchServer({"many": [search_answer("a", "b", "c")]}) as server:
        _, search = tools(server.base_url)
        assert [result["snippet"] for result in await search("many", limit=2)] == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "message", "error_type", "delay"),
    [
        (HttpError(403, "Unauthorized."), "403.*check SERPER_API_KEY", GiveUp, None),
        (HttpError(400, "Not enough credits"), "Not enough credits.*add credit to the account", GiveUp, None),
        (HttpError(404, "Not found"), "404.*check SERPER_BASE_URL, which was called as http://.*/search", GiveUp, None),
        (HttpError(400, "Bad query"), "400.*Bad query", GiveUp, None),
        (HttpError(503, "Down"), "503.*Down", RetryLater, None),
        (HttpError(429, "Too many", retry_after=9), "429.*Too many", RetryLater, timedelta(seconds=9)),
    ],
)
async def test_errors_of_the_service_have_advice_and_the_requested_delay(
    error: HttpError, message: str, error_type: type[Exception], delay: timedelta | None
) -> None:
    async with SearchServer({"q": [error]}) as server:
        with pytest.raises(error_type, match=message) as caught:
            await tools(server.base_url)[1]("q")
    assert getattr(caught.value, "after", None) == delay


async def test_error_names_an_unreachable_service() -> None:
    async with SearchServer({}) as server:
        closed_url = server.base_url
    with pytest.raises(RetryLater, match=f"The search service at {closed_url} does not respond: ConnectError"):
        await tools(closed_url)[1]("q")
    with pytest.raises(GiveUp, match="SERPER_BASE_URL of the worker is not a valid URL"):
        await tools("nowhere")[1]("q")


async def test_no_request_is_sent_without_a_key_or_a_query() -> None:
    async with SearchServer({}) as server:
        for index, name in enumerate(("serper_web_search", "web_search")):
            with pytest.raises(GiveUp, match=f"{name} needs a key: set SERPER_API_KEY"):
                await tools(server.base_url, None)[index]("q")
        with pytest.raises(ValueError, match="The query is empty"):
            await tools(server.base_url)[1](" ")


async def test_scripted_server_reports_all_unexpected_calls() -> None:
    server = SearchServer({"known": [search_answer("a")], "unused": [search_answer("b"), search_answer("c")]})
    await server.__aenter__()
    async with httpx.AsyncClient(base_url=server.base_url, headers={"X-API-KEY": "k"}) as client:
        response = await client.post("/search", json={"q": "known", "num": 3})
        statuses = [(await client.post("/search", json={"q": query})).status_code for query in ("known", "unknown")]
        statuses.append((await client.get("/search")).status_code)
    with pytest.raises(ScriptNotFollowed) as caught:
        await server.__aexit__(None, None, None)
    assert response.json() == {
        "searchParameters": {"type": "search", "engine": "google", "q": "known", "num": 3},
        "organic": [{"title": "", "link": "", "snippet": "a", "position": 1}],
        "credits": 1,
    }
    assert statuses == [400, 400, 400]
    assert str(caught.value).splitlines() == [
        "the script of the search server was not followed",
        "the script has no response to 'known'",
        "the script has no response to 'unknown'",
        "invalid search request: GET /search b''",
        "2 unused responses to 'unused'",
    ]


async def test_scripted_server_rejects_unknown_api_keys() -> None:
    async with SearchServer({}, api_keys=["right"]) as server:
        with pytest.raises(GiveUp, match="check SERPER_API_KEY"):
            await tools(server.base_url, "wrong")[1]("q")


# Travel.


@pytest.fixture
def travel_address() -> Iterator[str]:
    """Address of the server of the travel example."""
    with travel_service() as address:
        yield address


async def call_travel_tool(address: str | None, name: str, **arguments: Any) -> Any:
    """Call a tool as a plan does."""
    specs = [spec_of(function) for function in travel_tools(ToolEnvironment(Path(), travel_url=address))]
    [spec] = [spec for spec in specs if spec is not None and spec.name == name]
    assert spec.function is not None
    return await spec.function(**spec.bind(arguments))


FLIGHT = {"origin": "San Francisco", "destination": "Paris", "depart": "2026-06-12"}
HOTEL = {"city": "Paris", "check_in": "2026-06-12", "check_out": "2026-06-15"}


async def test_flight_search_is_sorted_by_price_and_deterministic(travel_address: str) -> None:
    async def flight_search(**arguments: Any) -> Any:
        return await call_travel_tool(travel_address, "flight_search", **FLIGHT, **arguments)

    one_way_flights = await flight_search()
    assert one_way_flights == await flight_search()
    return_flights = await flight_search(return_on="2026-06-15")
    assert [flight["price"] for flight in return_flights] == [2 * flight["price"] for flight in one_way_flights]
    assert [flight["price"] for flight in one_way_flights] == sorted(flight["price"] for flight in one_way_flights)
    assert {flight["returns_on"] for flight in return_flights} == {"2026-06-15"}
    assert await flight_search(max_price=one_way_flights[0]["price"]) == one_way_flights[:1]


async def test_hotel_offer_has_the_price_per_night_and_in_total(travel_address: str) -> None:
    offers = await call_travel_tool(travel_address, "hotel_search", **HOTEL, max_price=200, guests=2)
    assert offers
    assert all(offer["total"] == 3 * offer["price"] <= 600 for offer in offers)


async def test_activities_are_filtered_by_interest_and_day(travel_address: str) -> None:
    activities = await call_travel_tool(travel_address, "activity_search", city="Paris")
    food_activities = await call_travel_tool(travel_address, "activity_search", city="Paris", interest="food")
    assert len(activities) == 6
    assert food_activities == [activity for activity in activities if activity["interest"] == "food"]
    assert len(await call_travel_tool(travel_address, "activity_search", city="Paris", day="2026-06-13")) < 6


async def test_invalid_request_is_rejected_by_the_tool_or_by_the_service(travel_address: str) -> None:
    with pytest.raises(ValueError, match="return_on is 2026-06-01, before 2026-06-12"):
        await call_travel_tool(travel_address, "flight_search", **FLIGHT, return_on="2026-06-01")
    with pytest.raises(ValueError, match="/depart"):
        await call_travel_tool(travel_address, "flight_search", **{**FLIGHT, "depart": "in June"})
    with pytest.raises(ValueError, match="city is empty"):
        await call_travel_tool(travel_address, "activity_search", city=" ")
    with pytest.raises(GiveUp, match="400: origin and destination are the same"):
        await call_travel_tool(travel_address, "flight_search", **{**FLIGHT, "destination": "San Francisco"})
    message = "404: there is no /v1/hotels.*check DAGWRIGHT_SEARCH_URL, which must serve /hotels"
    with pytest.raises(GiveUp, match=message):
        await call_travel_tool(f"{travel_address}/v1", "hotel_search", **HOTEL)


async def test_error_without_a_travel_service_names_the_setting() -> None:
    with pytest.raises(GiveUp, match="set DAGWRIGHT_SEARCH_URL for the worker; examples/travel has a server"):
        await call_travel_tool(None, "flight_search", **FLIGHT)
    with pytest.raises(GiveUp, match="DAGWRIGHT_SEARCH_URL of the worker is not a valid URL"):
        await call_travel_tool("nowhere", "hotel_search", **HOTEL)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"results": {}}', b'{"results": [1]}'])
async def test_invalid_response_is_retried(body: bytes) -> None:
    with serve_response(body) as address, pytest.raises(RetryLater, match="Invalid response of the travel service"):
        await call_travel_tool(address, "activity_search", city="Paris")


async def test_busy_travel_service_is_retried_after_the_requested_delay() -> None:
    response = serve_response(b'{"message": "too many"}', status=429, headers={"Retry-After": "11"})
    with response as address, pytest.raises(RetryLater, match="429: too many") as caught:
        await call_travel_tool(address, "activity_search", city="Paris")
    assert caught.value.after == timedelta(seconds=11)
