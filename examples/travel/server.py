"""A travel service for demos: generated offers, deterministic for the same request, no API key, no network.

`python examples/travel/server.py --port 8090` serves until it is stopped; its first line on stdout is the address, for
`DAGWRIGHT_SEARCH_URL`. It needs only Python. The API is described in README.md.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

AIRLINES = ("Blue Heron", "Nordwind", "Mistral Air", "Pelican")
HOTELS = ("Hotel Aurora", "The Old Mill", "Casa Verde", "Station House", "Villa Marina")
ACTIVITIES = (
    ("Walk through the old town", "history", 0),
    ("Museum of modern art", "art", 18),
    ("Market and cooking class", "food", 65),
    ("Boat trip at sunset", "nature", 35),
    ("Concert in the park", "music", 12),
    ("Tasting of local cheese", "food", 29),
)
CURRENCY = "USD"

Offer = dict[str, Any]
Query = Mapping[str, str]


class InvalidRequest(Exception):
    """An invalid request; the message has the reason."""


def search_flights(query: Query) -> list[Offer]:
    """Return flights, the cheapest first."""
    origin, destination = required_text(query, "origin"), required_text(query, "destination")
    departure, return_day = (
        required_date(query, "depart"),
        required_date(query, "return_on") if "return_on" in query else None,
    )
    if origin.casefold() == destination.casefold():
        raise InvalidRequest("origin and destination are the same")
    offers = []
    for number, airline in enumerate(AIRLINES):
        random_number = pseudo_random_number("flight", airline, origin, destination, str(departure))
        price = (180 + random_number % 700) * (2 if return_day else 1)
        hour = 6 + (random_number >> 8) % 14
        offers.append(
            {
                "id": f"F{random_number % 10_000:04}",
                "airline": airline,
                "origin": origin,
                "destination": destination,
                "departs_at": f"{departure}T{hour:02}:{number * 15:02}",
                "returns_on": str(return_day) if return_day else None,
                "stops": (random_number >> 16) % 3,
                "price": price,
                "currency": CURRENCY,
            }
        )
    return affordable_offers(offers, query)


def search_hotels(query: Query) -> list[Offer]:
    """Return hotels, the cheapest first; the price is per night."""
    city, check_in, check_out = (
        required_text(query, "city"),
        required_date(query, "check_in"),
        required_date(query, "check_out"),
    )
    nights = (check_out - check_in) // timedelta(days=1)
    if nights < 1:
        raise InvalidRequest("check_out must be after check_in")
    offers = []
    for name in HOTELS:
        random_number = pseudo_random_number("hotel", name, city)
        price = 70 + random_number % 220
        offers.append(
            {
                "id": f"H{random_number % 10_000:04}",
                "name": f"{name}, {city}",
                "city": city,
                "stars": 2 + random_number % 4,
                "nights": nights,
                "price": price,
                "total": price * nights,
                "currency": CURRENCY,
            }
        )
    return affordable_offers(offers, query)


def search_activities(query: Query) -> list[Offer]:
    """Return activities in a city; each is open on five days of the week."""
    city, visit_day = required_text(query, "city"), required_date(query, "day") if "day" in query else None
    interest = query.get("interest", "").casefold()
    offers = []
    for name, kind, price in ACTIVITIES:
        random_number = pseudo_random_number("activity", name, city)
        is_open = visit_day is None or visit_day.weekday() not in (random_number % 7, (random_number + 3) % 7)
        if is_open and interest in ("", kind):
            offer_id = f"A{random_number % 10_000:04}"
            offers.append({"id": offer_id, "name": f"{name}, {city}", "interest": kind, "price": price})
    return [{**offer, "currency": CURRENCY} for offer in offers]


SEARCHES_BY_PATH = {"/flights": search_flights, "/hotels": search_hotels, "/activities": search_activities}


def pseudo_random_number(*words: str) -> int:
    """Return a pseudo-random number that is derived from the words."""
    return int.from_bytes(hashlib.sha256("|".join(words).casefold().encode()).digest()[:4])


def required_text(query: Query, name: str) -> str:
    """Return a required text."""
    value = query.get(name, "").strip()
    if not value:
        raise InvalidRequest(f"{name} is missing")
    return value


def required_date(query: Query, name: str) -> date:
    """Return a date, such as 2026-06-12."""
    try:
        return date.fromisoformat(required_text(query, name))
    except ValueError:
        raise InvalidRequest(f"{name} is not a date such as 2026-06-12") from None


def affordable_offers(offers: list[Offer], query: Query) -> list[Offer]:
    """Return the offers up to the maximum price, the cheapest first."""
    try:
        max_price = float(query.get("max_price", "inf"))
    except ValueError:
        raise InvalidRequest("max_price is not a number") from None
    return sorted((offer for offer in offers if offer["price"] <= max_price), key=lambda offer: offer["price"])


def response_to(target: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of the response to a request."""
    parts = urlsplit(target)
    search = SEARCHES_BY_PATH.get(parts.path)
    if search is None:
        return 404, {"message": f"there is no {parts.path}; there are {', '.join(SEARCHES_BY_PATH)}"}
    try:
        return 200, {"results": search(dict(parse_qsl(parts.query)))}
    except InvalidRequest as error:
        return 400, {"message": str(error)}


class Handler(BaseHTTPRequestHandler):
    """Answers GET requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a JSON response."""
        status, body = response_to(self.path)
        content = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *values: Any) -> None:
        """Suppress the log: stdout has the address only."""


def main(arguments: Sequence[str]) -> int:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser(description="Serve generated flights, hotels and activities.")
    parser.add_argument("--port", type=int, default=8090, help="port to serve on; 0 for a free port")
    options = parser.parse_args(arguments)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
