"""`flight_search`, `hotel_search` and `activity_search`: search the offers of a travel service over HTTP.

The API is documented in examples/travel/README.md; `examples/travel/server.py` implements it. `DAGWRIGHT_SEARCH_URL` is
the URL of the service.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any

import httpx
from pydantic import Field

from dagwright.core.text import one_line
from dagwright.tools.context import record_reads
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.retry_after import requested_delay
from dagwright.tools.spec import tool

TIMEOUT_S = 30.0
MAX_RESULTS = 50

Offers = list[dict[str, Any]]
Count = Annotated[int, Field(ge=1, le=20)]
Price = Annotated[float, Field(gt=0)]


def travel_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Return the travel tools for the environment's travel service."""

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
        """Find flights, the cheapest first.

        Args:
            origin: city or airport
            destination: city or airport
            depart: date of the flight, such as 2026-06-12
            return_on: date of the return flight; without it, one way only
            passengers: number of passengers
            max_price: maximum price per passenger, for both ways
        """
        _check_order(depart, return_on, "return_on")
        parameters = {"origin": origin, "destination": destination, "depart": depart, "return_on": return_on}
        return await _fetch_offers(
            environment, "flights", {**parameters, "passengers": passengers, "max_price": max_price}
        )

    @tool(effects="read", secrets=[])
    async def hotel_search(
        city: str, *, check_in: date, check_out: date, guests: Count = 1, max_price: Price | None = None
    ) -> Offers:
        """Find hotels with free rooms, the cheapest first.

        Args:
            city: city of the hotel
            check_in: first day, such as 2026-06-12
            check_out: day of departure
            guests: number of guests
            max_price: maximum price per night
        """
        _check_order(check_in, check_out, "check_out")
        parameters = {"city": city, "check_in": check_in, "check_out": check_out}
        return await _fetch_offers(environment, "hotels", {**parameters, "guests": guests, "max_price": max_price})

    @tool(effects="read", secrets=[])
    async def activity_search(city: str, *, day: date | None = None, interest: str | None = None) -> Offers:
        """Find activities in a city.

        Args:
            city: city of the activities
            day: only activities on this day
            interest: only activities of this kind, such as `art` or `food`
        """
        return await _fetch_offers(environment, "activities", {"city": city, "day": day, "interest": interest})

    return [flight_search, hotel_search, activity_search]


def _check_order(first: date, last: date | None, last_name: str) -> None:
    if last is not None and last < first:
        raise ValueError(f"{last_name} is {last}, before {first}")


async def _fetch_offers(environment: ToolEnvironment, kind: str, parameters: Mapping[str, Any]) -> Offers:
    if not environment.travel_url:
        raise GiveUp(
            "There is no travel service: set DAGWRIGHT_SEARCH_URL for the worker; examples/travel has a server to try"
        )
    request_url = f"{environment.travel_url.rstrip('/')}/{kind}"
    query = {name: str(value) for name, value in parameters.items() if value is not None}
    empty_names = [name for name, value in query.items() if not value.strip()]
    if empty_names:
        raise ValueError(f"{empty_names[0]} is empty")
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.get(request_url, params=query)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise GiveUp(f"DAGWRIGHT_SEARCH_URL of the worker is not a valid URL: {error}") from None
    except httpx.TransportError as error:
        message = f"The travel service at {environment.travel_url} does not respond: {type(error).__name__} {error}"
        raise RetryLater(message.rstrip()) from None
    _raise_for_status(response, kind)
    offers = _parse_results(response)
    record_reads(str(response.request.url))
    return offers


def _raise_for_status(response: httpx.Response, kind: str) -> None:
    if response.is_success:
        return
    message = f"The travel service returned {response.status_code}: {_message(response)}"
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
        raise RetryLater(message, after=requested_delay(response.headers))
    if response.status_code == httpx.codes.NOT_FOUND:
        raise GiveUp(f"{message}; check DAGWRIGHT_SEARCH_URL, which must serve /{kind}")
    raise GiveUp(message)


def _message(response: httpx.Response) -> str:
    try:
        message = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text
    return one_line(str(message)[:300])


def _parse_results(response: httpx.Response) -> Offers:
    try:
        results = response.json()["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise RetryLater(f"Invalid response of the travel service: {type(error).__name__} {error}") from None
    if not isinstance(results, list) or not all(isinstance(offer, dict) for offer in results):
        raise RetryLater("Invalid response of the travel service: results is not a list of objects")
    return results[:MAX_RESULTS]
