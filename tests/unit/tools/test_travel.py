"""`flight_search`, `hotel_search` and `activity_search` against the example's server."""

from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from dagwright.tools import GiveUp, RetryLater, spec_of
from dagwright.tools.builtin.travel import travel_tools
from dagwright.tools.environment import ToolEnvironment
from tests.support.travel import served, travel_service


@pytest.fixture
def travel() -> Iterator[str]:
    """The address of the example's server."""
    with travel_service() as address:
        yield address


async def ask(address: str | None, name: str, **arguments: Any) -> Any:
    """Calls a tool as a plan would."""
    specs = [spec_of(function) for function in travel_tools(ToolEnvironment(Path(), search_url=address))]
    [spec] = [spec for spec in specs if spec is not None and spec.name == name]
    assert spec.function is not None
    return await spec.function(**spec.bind(arguments))


FLIGHT = {"origin": "San Francisco", "destination": "Paris", "depart": "2026-06-12"}
HOTEL = {"city": "Paris", "check_in": "2026-06-12", "check_out": "2026-06-15"}


async def test_flights_come_cheapest_first_and_the_same_each_time(travel: str) -> None:
    one_way = await ask(travel, "flight_search", **FLIGHT)
    assert one_way == await ask(travel, "flight_search", **FLIGHT)
    both = await ask(travel, "flight_search", **FLIGHT, return_on="2026-06-15")
    assert [each["price"] for each in both] == [2 * each["price"] for each in one_way]
    assert [each["price"] for each in one_way] == sorted(each["price"] for each in one_way)
    assert {each["returns_on"] for each in both} == {"2026-06-15"}
    cheapest = one_way[0]["price"]
    assert await ask(travel, "flight_search", **FLIGHT, max_price=cheapest) == one_way[:1]


async def test_hotels_tell_the_price_of_a_night_and_of_all(travel: str) -> None:
    offers = await ask(travel, "hotel_search", **HOTEL, max_price=200, guests=2)
    assert offers
    assert all(offer["total"] == 3 * offer["price"] <= 600 for offer in offers)


async def test_activities_are_chosen_by_interest(travel: str) -> None:
    everything = await ask(travel, "activity_search", city="Paris")
    food = await ask(travel, "activity_search", city="Paris", interest="food")
    assert (len(everything), food) == (6, [each for each in everything if each["interest"] == "food"])
    assert len(await ask(travel, "activity_search", city="Paris", day="2026-06-13")) < 6


async def test_what_cannot_be_asked_is_told_before_or_by_the_service(travel: str) -> None:
    with pytest.raises(ValueError, match="return_on is 2026-06-01, before 2026-06-12"):
        await ask(travel, "flight_search", **FLIGHT, return_on="2026-06-01")
    with pytest.raises(ValueError, match="/depart"):
        await ask(travel, "flight_search", **{**FLIGHT, "depart": "in June"})
    with pytest.raises(ValueError, match="city is empty"):
        await ask(travel, "activity_search", city=" ")
    with pytest.raises(GiveUp, match="400: origin and destination are the same"):
        await ask(travel, "flight_search", **{**FLIGHT, "destination": "San Francisco"})
    with pytest.raises(
        GiveUp, match=r"404: there is no /v1/hotels.*check DAGWRIGHT_SEARCH_URL, which must have /hotels"
    ):
        await ask(f"{travel}/v1", "hotel_search", **HOTEL)


async def test_without_a_service_the_error_says_what_to_set() -> None:
    with pytest.raises(GiveUp, match="set DAGWRIGHT_SEARCH_URL for the worker; examples/travel has a server"):
        await ask(None, "flight_search", **FLIGHT)
    with pytest.raises(GiveUp, match="DAGWRIGHT_SEARCH_URL of the worker is no address"):
        await ask("nowhere", "hotel_search", **HOTEL)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"results": {}}', b'{"results": [1]}'])
async def test_an_answer_in_another_format_is_asked_for_again(body: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    with served(Other) as address, pytest.raises(RetryLater, match="The travel service answered in another format"):
        await ask(address, "activity_search", city="Paris")


async def test_a_busy_service_is_asked_again_when_it_said() -> None:
    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(429)
            self.send_header("Retry-After", "11")
            self.end_headers()
            self.wfile.write(b'{"message": "too many"}')

        def log_message(self, format: str, *values: Any) -> None:
            pass

    with served(Busy) as address:
        with pytest.raises(RetryLater, match="429: too many") as caught:
            await ask(address, "activity_search", city="Paris")
        assert caught.value.after == timedelta(seconds=11)
