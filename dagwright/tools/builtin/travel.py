"""`flight_search`, `hotel_search` and `activity_search`: what a travel service offers, over a small HTTP API.

The API is documented in docs/tools.md; `examples/travel/server.py` speaks it. `DAGWRIGHT_SEARCH_URL` says where it is.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any

import httpx
from pydantic import Field

from dagwright.core.boundary.text import one_line
from dagwright.tools.context import note_read
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.retry_after import requested_delay
from dagwright.tools.spec import tool

TIMEOUT_S = 30.0
RESULTS_AT_MOST = 50

Offers = list[dict[str, Any]]
Count = Annotated[int, Field(ge=1, le=20)]
Price = Annotated[float, Field(gt=0)]


def travel_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Returns the tools of the travel service of the environment."""

    @tool(effects="read", secrets=[])
    async def flight_search(
        origin: str,
        destination: str,
        *,
        depart: date,
        return_on: date | None = None,
        passengers: Count = 1,
        max_price: Price | None = None,
    ) -> Offers:
        """Finds flights, the cheapest first.

        Args:
            origin: city or airport
            destination: city or airport
            depart: day of the flight, such as 2026-06-12
            return_on: day of the flight back; without it one way only
            passengers: how many fly
            max_price: of one passenger, there and back
        """
        _check_order(depart, return_on, "return_on")
        asked = {"origin": origin, "destination": destination, "depart": depart, "return_on": return_on}
        return await _offers(environment, "flights", {**asked, "passengers": passengers, "max_price": max_price})

    @tool(effects="read", secrets=[])
    async def hotel_search(
        city: str, *, check_in: date, check_out: date, guests: Count = 1, max_price: Price | None = None
    ) -> Offers:
        """Finds hotels with free rooms, the cheapest first.

        Args:
            city: where
            check_in: first day, such as 2026-06-12
            check_out: day of leaving
            guests: how many stay
            max_price: of one night
        """
        _check_order(check_in, check_out, "check_out")
        asked = {"city": city, "check_in": check_in, "check_out": check_out}
        return await _offers(environment, "hotels", {**asked, "guests": guests, "max_price": max_price})

    @tool(effects="read", secrets=[])
    async def activity_search(city: str, *, day: date | None = None, interest: str | None = None) -> Offers:
        """Finds what can be done in a city.

        Args:
            city: where
            day: only what can be done that day
            interest: only this kind, such as `art` or `food`
        """
        return await _offers(environment, "activities", {"city": city, "day": day, "interest": interest})

    return [flight_search, hotel_search, activity_search]


def _check_order(first: date, last: date | None, name: str) -> None:
    if last is not None and last < first:
        raise ValueError(f"{name} is {last}, before {first}")


async def _offers(environment: ToolEnvironment, kind: str, asked: Mapping[str, Any]) -> Offers:
    if not environment.search_url:
        raise GiveUp(
            "There is no travel service: set DAGWRIGHT_SEARCH_URL for the worker; examples/travel has a server to try"
        )
    address = f"{environment.search_url.rstrip('/')}/{kind}"
    query = {name: str(value) for name, value in asked.items() if value is not None}
    empty = [name for name, value in query.items() if not value.strip()]
    if empty:
        raise ValueError(f"{empty[0]} is empty")
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.get(address, params=query)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise GiveUp(f"DAGWRIGHT_SEARCH_URL of the worker is no address: {error}") from None
    except httpx.TransportError as error:
        said = f"The travel service at {environment.search_url} does not answer: {type(error).__name__} {error}"
        raise RetryLater(said.rstrip()) from None
    _check(response, kind)
    offers = _results(response)
    note_read(str(response.request.url))
    return offers


def _check(response: httpx.Response, kind: str) -> None:
    if response.is_success:
        return
    said = f"The travel service answered {response.status_code}: {_message(response)}"
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
        raise RetryLater(said, after=requested_delay(response.headers))
    if response.status_code == httpx.codes.NOT_FOUND:
        raise GiveUp(f"{said}; check DAGWRIGHT_SEARCH_URL, which must have /{kind}")
    raise GiveUp(said)


def _message(response: httpx.Response) -> str:
    try:
        told = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        told = response.text
    return one_line(str(told)[:300])


def _results(response: httpx.Response) -> Offers:
    try:
        results = response.json()["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise RetryLater(f"The travel service answered in another format: {type(error).__name__} {error}") from None
    if not isinstance(results, list) or not all(isinstance(offer, dict) for offer in results):
        raise RetryLater("The travel service answered in another format: results is no list of objects")
    return results[:RESULTS_AT_MOST]
