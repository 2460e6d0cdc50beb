"""The three indices for questions about shipments: names, fields and mappings.

Descriptions and synonyms of the fields are in the `_meta` of the mapping: tools read them from the server and need only
the index names of this module. This module must not import a client of the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagwright_maritime.settings import INDEX_PREFIX

DEFAULT_PREFIX = "maritime"

NAME_KINDS = ("shipper", "carrier", "port")
"""Kinds of the documents in the index of names."""

DATE_FORMAT = "strict_date"
"""All dates are days, such as 2026-03-31."""


@dataclass(frozen=True, slots=True)
class Indices:
    """The index names with a prefix. Data sets with different prefixes can share a server.

    Raises:
        ValueError: the prefix does not match `INDEX_PREFIX`.
    """

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if INDEX_PREFIX.fullmatch(self.prefix) is None:
            raise ValueError(f"invalid index prefix {self.prefix!r}: use lower-case letters, digits, - and _")

    @property
    def shipments(self) -> str:
        """Name of the index with one document for each shipment."""
        return f"{self.prefix}-shipments"

    @property
    def names(self) -> str:
        """Name of the index with one document for each shipper, carrier and port, with aliases."""
        return f"{self.prefix}-names"

    @property
    def helpdesk(self) -> str:
        """Name of the index with articles that answer general questions."""
        return f"{self.prefix}-helpdesk"

    def bodies(self) -> dict[str, dict[str, Any]]:
        """Return the definition of each index: name -> settings and mappings."""
        return {
            self.shipments: _body(_SHIPMENT_PROPERTIES, fields=SHIPMENT_FIELDS),
            self.names: _body(_NAME_PROPERTIES),
            self.helpdesk: _body(_ARTICLE_PROPERTIES),
        }


SHIPMENT_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "shipment_id": {"description": "Identifier of the shipment, such as SH-00000042.", "synonyms": ["number", "id"]},
    "shipper_name": {
        "description": "Company that sends the goods.",
        "synonyms": ["shipper", "sender", "exporter", "customer", "company"],
    },
    "shipper_id": {"description": "Identifier of the shipper, such as SHP-001.", "synonyms": ["shipper number"]},
    "carrier_name": {
        "description": "Shipping line that carries the containers.",
        "synonyms": ["carrier", "line", "shipping line", "ocean carrier"],
    },
    "carrier_code": {
        "description": "Standard Carrier Alpha Code of the carrier, such as MAEU.",
        "synonyms": ["SCAC", "carrier code"],
    },
    "origin_port": {
        "description": "Port at which the containers are loaded.",
        "synonyms": ["from", "origin", "port of loading", "POL"],
    },
    "origin_port_code": {"description": "UN/LOCODE of the origin port, such as CNSHA.", "synonyms": ["origin code"]},
    "destination_port": {
        "description": "Port at which the containers are unloaded.",
        "synonyms": ["to", "destination", "port of discharge", "POD"],
    },
    "destination_port_code": {
        "description": "UN/LOCODE of the destination port, such as USLAX.",
        "synonyms": ["destination code"],
    },
    "commodity": {"description": "Content of the containers.", "synonyms": ["goods", "cargo", "product"]},
    "status": {
        "description": "Progress of the shipment: booked, in_transit or arrived.",
        "synonyms": ["state", "on the way", "under way"],
    },
    "teu": {
        "description": "Volume in twenty-foot equivalent units; a forty-foot container counts 2.",
        "synonyms": ["volume", "volumes", "containers", "size", "quantity"],
    },
    "departure_date": {
        "description": "Day on which the ship leaves the origin port.",
        "synonyms": ["departed", "shipped", "sailed", "left", "ETD"],
    },
    "arrival_date": {
        "description": "Day on which the shipment actually arrived; missing until then.",
        "synonyms": ["arrived", "actual arrival", "delivered", "ATA"],
    },
    "eta_date": {
        "description": "Day on which the shipment is expected to arrive, as estimated at departure; never missing.",
        "synonyms": ["arrives", "arrived", "estimated arrival", "expected", "due", "ETA"],
    },
    "transit_days": {
        "description": "Days from departure to arrival, with one decimal, as the carrier reported them. Missing for "
        "shipments that have not arrived, for some shippers and carriers altogether, and for single shipments.",
        "synonyms": ["transit time", "duration", "voyage time", "how long"],
    },
}
"""Each field of the shipments with its description and synonyms."""

_NAME_FIELD: Mapping[str, Any] = {"type": "keyword", "fields": {"text": {"type": "text"}}}
_KEYWORD: Mapping[str, Any] = {"type": "keyword"}
_DATE: Mapping[str, Any] = {"type": "date", "format": DATE_FORMAT}
_FOLDED_KEYWORD: Mapping[str, Any] = {"type": "keyword", "normalizer": "folded"}
_ENGLISH_TEXT: Mapping[str, Any] = {"type": "text", "analyzer": "english"}

_SHIPMENT_PROPERTIES: Mapping[str, Mapping[str, Any]] = {
    "shipment_id": _KEYWORD,
    "shipper_name": _NAME_FIELD,
    "shipper_id": _KEYWORD,
    "carrier_name": _NAME_FIELD,
    "carrier_code": _KEYWORD,
    "origin_port": _NAME_FIELD,
    "origin_port_code": _KEYWORD,
    "destination_port": _NAME_FIELD,
    "destination_port_code": _KEYWORD,
    "commodity": _KEYWORD,
    "status": _KEYWORD,
    "teu": {"type": "integer"},
    "departure_date": _DATE,
    "arrival_date": _DATE,
    "eta_date": _DATE,
    "transit_days": {"type": "float"},
}

_NAME_PROPERTIES: Mapping[str, Mapping[str, Any]] = {
    "kind": _KEYWORD,
    # `folded` converts to lower case and removes accents, so that a term query finds a name that is
    # written without accents.
    "name": {"type": "keyword", "fields": {"text": {"type": "text"}, "folded": _FOLDED_KEYWORD}},
    "aliases": {"type": "keyword", "fields": {"text": {"type": "text"}, "folded": _FOLDED_KEYWORD}},
    "code": _KEYWORD,
}

_ARTICLE_PROPERTIES: Mapping[str, Mapping[str, Any]] = {
    "article_id": _KEYWORD,
    "title": _ENGLISH_TEXT,
    "body": _ENGLISH_TEXT,
    "tags": _KEYWORD,
}

_SETTINGS: Mapping[str, Any] = {
    "number_of_shards": 1,
    # A replica cannot be allocated on a single-node server.
    "number_of_replicas": 0,
    "analysis": {"normalizer": {"folded": {"type": "custom", "filter": ["lowercase", "asciifolding"]}}},
}


def _body(properties: Mapping[str, Any], *, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    mappings: dict[str, Any] = {"dynamic": "strict", "properties": dict(properties)}
    if fields is not None:
        mappings["_meta"] = {"fields": dict(fields)}
    return {"settings": dict(_SETTINGS), "mappings": mappings}
