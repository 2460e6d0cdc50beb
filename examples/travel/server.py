"""A travel service to try things with: made-up offers, the same for the same question, no key, no network.

`python examples/travel/server.py --port 8090` serves until it is stopped; its first line on stdout is the address, for
`DAGWRIGHT_SEARCH_URL`. It needs nothing but Python. The API is described in docs/tools.md.
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
Question = Mapping[str, str]


class Refused(Exception):
    """A question that cannot be answered; the text says why."""


def flights(asked: Question) -> list[Offer]:
    """Returns flights, the cheapest first."""
    origin, destination = text(asked, "origin"), text(asked, "destination")
    depart, back = day(asked, "depart"), day(asked, "return_on") if "return_on" in asked else None
    if origin.casefold() == destination.casefold():
        raise Refused("origin and destination are the same")
    offers = []
    for number, airline in enumerate(AIRLINES):
        chance = dice("flight", airline, origin, destination, str(depart))
        price = (180 + chance % 700) * (2 if back else 1)
        hour = 6 + (chance >> 8) % 14
        offers.append(
            {
                "id": f"F{chance % 10_000:04}",
                "airline": airline,
                "origin": origin,
                "destination": destination,
                "departs_at": f"{depart}T{hour:02}:{number * 15:02}",
                "returns_on": str(back) if back else None,
                "stops": (chance >> 16) % 3,
                "price": price,
                "currency": CURRENCY,
            }
        )
    return affordable(offers, asked)


def hotels(asked: Question) -> list[Offer]:
    """Returns hotels, the cheapest first; the price is that of a night."""
    city, first, last = text(asked, "city"), day(asked, "check_in"), day(asked, "check_out")
    nights = (last - first) // timedelta(days=1)
    if nights < 1:
        raise Refused("check_out must be after check_in")
    offers = []
    for name in HOTELS:
        chance = dice("hotel", name, city)
        price = 70 + chance % 220
        offers.append(
            {
                "id": f"H{chance % 10_000:04}",
                "name": f"{name}, {city}",
                "city": city,
                "stars": 2 + chance % 4,
                "nights": nights,
                "price": price,
                "total": price * nights,
                "currency": CURRENCY,
            }
        )
    return affordable(offers, asked)


def activities(asked: Question) -> list[Offer]:
    """Returns what can be done in a city; each is offered on five days of the week."""
    city, when = text(asked, "city"), day(asked, "day") if "day" in asked else None
    interest = asked.get("interest", "").casefold()
    offers = []
    for name, kind, price in ACTIVITIES:
        chance = dice("activity", name, city)
        is_open = when is None or when.weekday() not in (chance % 7, (chance + 3) % 7)
        if is_open and interest in ("", kind):
            identity = f"A{chance % 10_000:04}"
            offers.append({"id": identity, "name": f"{name}, {city}", "interest": kind, "price": price})
    return [{**offer, "currency": CURRENCY} for offer in offers]


KINDS = {"/flights": flights, "/hotels": hotels, "/activities": activities}


def dice(*words: str) -> int:
    """Returns a number that hangs on the words alone."""
    return int.from_bytes(hashlib.sha256("|".join(words).casefold().encode()).digest()[:4])


def text(asked: Question, name: str) -> str:
    """Returns a text that must be there."""
    found = asked.get(name, "").strip()
    if not found:
        raise Refused(f"{name} is missing")
    return found


def day(asked: Question, name: str) -> date:
    """Returns a day, such as 2026-06-12."""
    try:
        return date.fromisoformat(text(asked, name))
    except ValueError:
        raise Refused(f"{name} is no day such as 2026-06-12") from None


def affordable(offers: list[Offer], asked: Question) -> list[Offer]:
    """Returns the offers that are not too dear, the cheapest first."""
    try:
        most = float(asked.get("max_price", "inf"))
    except ValueError:
        raise Refused("max_price is no number") from None
    return sorted((offer for offer in offers if offer["price"] <= most), key=lambda offer: offer["price"])


def answer(target: str) -> tuple[int, dict[str, Any]]:
    """Returns the status and the body of the answer to a request."""
    parts = urlsplit(target)
    kind = KINDS.get(parts.path)
    if kind is None:
        return 404, {"message": f"there is no {parts.path}; there are {', '.join(KINDS)}"}
    try:
        return 200, {"results": kind(dict(parse_qsl(parts.query)))}
    except Refused as refused:
        return 400, {"message": str(refused)}


class Handler(BaseHTTPRequestHandler):
    """Answers GET requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers with JSON."""
        status, body = answer(self.path)
        content = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *values: Any) -> None:
        """Writes nothing: stdout has the address alone."""


def main(arguments: Sequence[str]) -> int:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description="Serve made-up flights, hotels and activities.")
    parser.add_argument("--port", type=int, default=8090, help="port to serve on; 0 for a free one")
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
