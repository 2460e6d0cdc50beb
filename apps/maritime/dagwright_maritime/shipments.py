"""Generator of shipments: the same sequence for the same seed and day, of any length.

The first thousand shipments of a data set of a million equal a data set of a thousand. Only `Random.random` is used:
its values for a seed are the same in every version of Python.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, count, islice
from math import log
from random import Random
from typing import Any

from dagwright_maritime.names import CARRIERS, PORTS, SHIPPERS, shipper_id

DEFAULT_DOCUMENTS = 10_000
DEFAULT_SEED = 20260101
MAX_DOCUMENTS = 10_000_000

Shipment = dict[str, Any]

_PAST_DAYS = 540
"""The earliest departure is this many days before today, about six quarters."""

_FUTURE_DAYS = 30
_MAX_VOYAGE_DAYS = 90
"""Longer than any voyage with its delay."""

_REGION_POSITIONS = {
    "china": 0,
    "japan": 1,
    "straits": 2,
    "india": 3,
    "gulf_states": 4,
    "europe": 5,
    "east": 6,
    "gulf": 7,
    "south": 8,
    "west": 9,
}
_BASE_DAYS = (
    (4, 5, 7, 15, 18, 31, 32, 29, 36, 16),
    (5, 4, 9, 17, 20, 33, 30, 28, 37, 13),
    (7, 9, 4, 9, 12, 25, 31, 33, 30, 21),
    (15, 17, 9, 4, 6, 19, 25, 29, 26, 29),
    (18, 20, 12, 6, 4, 18, 24, 28, 25, 33),
    (31, 33, 25, 19, 18, 5, 12, 16, 17, 27),
    (32, 30, 31, 25, 24, 12, 4, 6, 16, 19),
    (29, 28, 33, 29, 28, 16, 6, 4, 17, 17),
    (36, 37, 30, 26, 25, 17, 16, 17, 5, 24),
    (16, 13, 21, 29, 33, 27, 19, 17, 24, 4),
)
"""Usual days of a voyage: row and column are regions; the table is symmetric."""

_COMMODITIES = (
    ("consumer electronics", 14),
    ("furniture", 12),
    ("apparel", 12),
    ("machinery", 9),
    ("auto parts", 8),
    ("toys", 6),
    ("chemicals", 7),
    ("plastics", 7),
    ("food", 9),
    ("beverages", 4),
    ("paper", 4),
    ("steel", 4),
    ("pharmaceuticals", 3),
    ("ceramics", 3),
)

_HOME_ORIGIN_SHARE = 0.7
"""Share of a shipper's goods that leave from the shipper's own port; the other goods leave from any port."""

_HOME_DESTINATION_SHARE = 0.45
_UNREPORTED_SHARE = 0.06
"""Share of arrived shipments without a transit time although their shipper and carrier report transit times."""

_DELAYS = ((-1, 14), (0, 38), (1, 18), (2, 11), (3, 7), (4, 5), (6, 4), (9, 3))
"""Days of delay after the estimated arrival, and their relative frequency."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Parameters of a data set.

    Args:
        document_count: number of shipments, 1 to 10,000,000.
        seed: seed of the random numbers.
        today: the day that decides which shipments have left and arrived.
    """

    today: date
    document_count: int = DEFAULT_DOCUMENTS
    seed: int = DEFAULT_SEED

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as they are stored with loaded data."""
        return {"documents": self.document_count, "seed": self.seed, "today": self.today.isoformat()}

    def shipments(self) -> Iterator[Shipment]:
        """Yield the shipments in the order of their ids, without fields that have no value."""
        return islice(_Generator(self.seed, self.today).shipments(), self.document_count)


class _WeightedChoice:
    """Weighted random choice of a position in a sequence."""

    def __init__(self, weights: Sequence[int]) -> None:
        self._sums = list(accumulate(weights))

    def draw(self, random_value: float) -> int:
        """Return the position for a random number, 0 <= `random_value` < 1."""
        return bisect(self._sums, random_value * self._sums[-1])


class _Generator:
    def __init__(self, seed: int, today: date) -> None:
        self._random = Random(seed).random
        days = range(-_PAST_DAYS, _FUTURE_DAYS + _MAX_VOYAGE_DAYS)
        self._day_texts = {day: (today + timedelta(days=day)).isoformat() for day in days}
        self._shipper_choice = _WeightedChoice([shipper.weight for shipper in SHIPPERS])
        self._carrier_choice = _WeightedChoice([carrier.weight for carrier in CARRIERS])
        self._origin_choice = _WeightedChoice([port.weights[0] for port in PORTS])
        self._destination_choice = _WeightedChoice([port.weights[1] for port in PORTS])
        self._commodity_choice = _WeightedChoice([weight for _, weight in _COMMODITIES])
        self._delay_choice = _WeightedChoice([weight for _, weight in _DELAYS])
        self._port_positions = {port.code: position for position, port in enumerate(PORTS)}

    def shipments(self) -> Iterator[Shipment]:
        for number in count(1):
            yield self._shipment(number)

    def _shipment(self, number: int) -> Shipment:
        shipper_position = self._shipper_choice.draw(self._random())
        shipper, carrier = SHIPPERS[shipper_position], CARRIERS[self._carrier_choice.draw(self._random())]
        origin = self._draw_port(shipper.origin, self._origin_choice, home_share=_HOME_ORIGIN_SHARE)
        destination = self._draw_port(shipper.destination, self._destination_choice, home_share=_HOME_DESTINATION_SHARE)
        if destination == origin:
            destination = (destination + 1) % len(PORTS)
        return {
            "shipment_id": f"SH-{number:08d}",
            "shipper_name": shipper.name,
            "shipper_id": shipper_id(shipper_position),
            "carrier_name": carrier.name,
            "carrier_code": carrier.code,
            "origin_port": PORTS[origin].name,
            "origin_port_code": PORTS[origin].code,
            "destination_port": PORTS[destination].name,
            "destination_port_code": PORTS[destination].code,
            "commodity": _COMMODITIES[self._commodity_choice.draw(self._random())][0],
            "teu": min(60, 1 + int(-6 * log(1 - self._random()))),
            **self._draw_voyage(
                base_days=_BASE_DAYS[_REGION_POSITIONS[PORTS[origin].region]][
                    _REGION_POSITIONS[PORTS[destination].region]
                ]
                * carrier.slowness,
                reports_transit_days=shipper.reports_transit_days and carrier.reports_transit_days,
            ),
        }

    def _draw_port(self, home_port: str, port_choice: _WeightedChoice, *, home_share: float) -> int:
        """Return the position of a port in `PORTS`; always draws two numbers."""
        is_home_port, random_value = self._random() < home_share, self._random()
        return self._port_positions[home_port] if is_home_port else port_choice.draw(random_value)

    def _draw_voyage(self, *, base_days: float, reports_transit_days: bool) -> Shipment:
        """Return status, dates and transit time; day 0 is today. Always draws five numbers."""
        departure_offset = int(self._random() * (_PAST_DAYS + _FUTURE_DAYS + 1)) - _PAST_DAYS
        eta_offset = departure_offset + max(2, round(base_days * (0.9 + 0.2 * self._random())))
        arrival_offset = eta_offset + _DELAYS[self._delay_choice.draw(self._random())][0]
        day_fraction, report_chance = self._random(), self._random()
        shipment: Shipment = {
            "status": "booked" if departure_offset > 0 else "arrived" if arrival_offset <= 0 else "in_transit",
            "departure_date": self._day_texts[departure_offset],
            "eta_date": self._day_texts[eta_offset],
        }
        if arrival_offset <= 0:
            shipment["arrival_date"] = self._day_texts[arrival_offset]
            if reports_transit_days and report_chance >= _UNREPORTED_SHARE:
                shipment["transit_days"] = round(arrival_offset - departure_offset + day_fraction - 0.5, 1)
        return shipment
