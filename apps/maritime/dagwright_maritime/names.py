"""Shippers, carriers and ports of the generated shipments, with their aliases.

Ports and carriers are real, with their UN/LOCODE and SCAC; shippers are fictional. Some names are deliberately similar,
and some shippers and carriers never report transit times.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Port:
    """A port.

    Args:
        code: UN/LOCODE.
        region: part of the world, which determines the duration of a voyage.
        weights: relative frequency as an origin, and as a destination.
    """

    code: str
    name: str
    region: str
    weights: tuple[int, int]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carrier:
    """A shipping line.

    Args:
        code: SCAC.
        weight: relative frequency.
        slowness: factor for the usual duration of a voyage.
        reports_transit_days: whether the carrier reports transit times.
    """

    code: str
    name: str
    weight: int
    slowness: float
    aliases: tuple[str, ...] = ()
    reports_transit_days: bool = True


@dataclass(frozen=True, slots=True)
class Shipper:
    """A company that sends goods.

    Args:
        weight: relative frequency.
        origin: UN/LOCODE of the port that most of its goods leave from.
        destination: UN/LOCODE of the port that many of its goods go to.
        reports_transit_days: whether transit times of its shipments are reported.
    """

    name: str
    weight: int
    origin: str
    destination: str
    aliases: tuple[str, ...] = ()
    reports_transit_days: bool = True


PORTS = (
    Port("USLAX", "Los Angeles", "west", (3, 22), ("LA", "L.A.", "Port of LA", "Port of Los Angeles", "San Pedro")),
    Port("USLGB", "Long Beach", "west", (2, 14), ("LB", "Port of Long Beach")),
    Port("USOAK", "Oakland", "west", (2, 6), ("Port of Oakland",)),
    Port("USSEA", "Seattle", "west", (2, 5), ("Port of Seattle",)),
    Port("CAVAN", "Vancouver", "west", (2, 6), ("Port of Vancouver",)),
    Port("USHOU", "Houston", "gulf", (4, 12), ("HOU", "Port of Houston", "Bayport", "Barbours Cut")),
    Port("USMSY", "New Orleans", "gulf", (2, 4), ("NOLA", "Port of New Orleans")),
    Port("USNYC", "New York", "east", (3, 14), ("NY", "NYC", "New York City", "Port of New York and New Jersey")),
    Port("USSAV", "Savannah", "east", (3, 9), ("Port of Savannah", "Garden City Terminal")),
    Port("USCHS", "Charleston", "east", (2, 6), ("Port of Charleston",)),
    Port("USMIA", "Miami", "east", (1, 5), ("PortMiami",)),
    Port("BRSSZ", "Santos", "south", (4, 4), ("Porto de Santos",)),
    Port("CNSHA", "Shanghai", "china", (24, 3), ("SHA", "Yangshan", "Port of Shanghai")),
    Port("CNNGB", "Ningbo", "china", (16, 2), ("Ningbo-Zhoushan", "Beilun")),
    Port("CNYTN", "Yantian", "china", (14, 1), ("Shenzhen Yantian",)),
    Port("CNTAO", "Qingdao", "china", (9, 1), ("Tsingtao",)),
    Port("HKHKG", "Hong Kong", "china", (7, 2), ("HK", "HKG", "Kwai Chung")),
    Port("TWKHH", "Kaohsiung", "china", (6, 1), ("Takao",)),
    Port("KRPUS", "Busan", "japan", (9, 3), ("Pusan",)),
    Port("JPYOK", "Yokohama", "japan", (4, 3), ()),
    Port("SGSIN", "Singapore", "straits", (8, 5), ("SG", "PSA Singapore")),
    Port("VNSGN", "Ho Chi Minh City", "straits", (8, 1), ("HCMC", "Saigon", "Cat Lai")),
    Port("THLCH", "Laem Chabang", "straits", (6, 1), ("LCB", "Bangkok deep sea port")),
    Port("INNSA", "Nhava Sheva", "india", (8, 3), ("JNPT", "Mumbai", "Bombay", "Jawaharlal Nehru Port")),
    Port("LKCMB", "Colombo", "india", (3, 2), ()),
    Port("AEJEA", "Jebel Ali", "gulf_states", (3, 5), ("Dubai",)),
    Port("NLRTM", "Rotterdam", "europe", (7, 14), ("RTM", "Europoort", "Maasvlakte")),
    Port("DEHAM", "Hamburg", "europe", (6, 9), ("HH", "Hamburger Hafen")),
    Port("BEANR", "Antwerp", "europe", (5, 8), ("Antwerpen", "Anvers")),
    Port("GBFXT", "Felixstowe", "europe", (2, 7), ("Port of Felixstowe",)),
    Port("ESVLC", "Valencia", "europe", (3, 4), ("Valenciaport",)),
    Port("GRPIR", "Piraeus", "europe", (2, 4), ("Pireas", "Athens")),
)

CARRIERS = (
    Carrier("MAEU", "MAERSK", 17, 1.0, ("Maersk Line", "A.P. Moller - Maersk", "APM")),
    Carrier("MSCU", "MSC", 18, 1.05, ("Mediterranean Shipping Company", "Mediterranean Shipping")),
    Carrier("CMDU", "CMA CGM", 12, 1.0, ("CMA", "Compagnie Maritime")),
    Carrier("COSU", "COSCO SHIPPING", 11, 1.1, ("COSCO", "China Ocean Shipping")),
    Carrier("EGLV", "EVERGREEN", 11, 0.95, ("Evergreen Line", "Evergreen Marine", "EMC")),
    Carrier("HLCU", "HAPAG-LLOYD", 8, 0.95, ("Hapag", "Hapag Lloyd", "HLAG")),
    Carrier("ONEY", "OCEAN NETWORK EXPRESS", 7, 1.0, ("ONE", "Ocean Network")),
    Carrier("HDMU", "HMM", 5, 1.05, ("Hyundai Merchant Marine", "Hyundai")),
    Carrier("YMLU", "YANG MING", 4, 1.1, ("Yang Ming Line",)),
    Carrier("ZIMU", "ZIM", 3, 0.9, ("ZIM Integrated Shipping",), reports_transit_days=False),
    Carrier("WHLC", "WAN HAI", 2, 1.15, ("Wan Hai Lines",), reports_transit_days=False),
)

SHIPPERS = (
    # The five shippers with most shipments to Los Angeles; transit times are known for three of them.
    Shipper("Golden Bridge Electronics Co", 60, "CNYTN", "USLAX", ("Golden Bridge",)),
    Shipper("Sunrise Apparel Group", 46, "VNSGN", "USLAX", ("Sunrise Apparel", "SAG"), reports_transit_days=False),
    Shipper("Pacific Rim Trading Co", 35, "CNSHA", "USLAX", ("Pacific Rim", "PRT")),
    Shipper("Redwood Home Furnishings Inc", 26, "CNNGB", "USLAX", ("Redwood Home",), reports_transit_days=False),
    Shipper("Canyon Outdoor Gear LLC", 19, "THLCH", "USLAX", ("Canyon Outdoor", "Canyon Gear")),
    # Three companies with the same short name.
    Shipper("Acme Corp LLC", 14, "CNSHA", "USHOU", ("ACME LLC",)),
    Shipper("Acme Corporation", 12, "CNNGB", "USHOU", ("Acme Corp. of America",)),
    Shipper("Acme Co", 9, "KRPUS", "USHOU", ("Acme Company",)),
    # Pairs of similar names.
    Shipper("Pacific Rim Traders Pte Ltd", 7, "SGSIN", "USOAK", ("PRT Singapore",)),
    Shipper("Blue Harbor Foods Inc", 9, "BRSSZ", "USNYC", ("Blue Harbor",)),
    Shipper("Blue Harbour Foods Ltd", 7, "INNSA", "GBFXT", ("Blue Harbour",)),
    Shipper("Nordlicht Textil GmbH", 8, "INNSA", "DEHAM", ("Nordlicht",)),
    Shipper("Nordlicht Textilien AG", 5, "VNSGN", "DEHAM", ()),
    Shipper("Müller Maschinenbau GmbH", 8, "DEHAM", "USSAV", ("Mueller Maschinenbau", "Müller")),
    Shipper("Miller Machine Works Inc", 5, "USSAV", "DEHAM", ("Miller Machines",)),
    Shipper("Lotus Garden Tea Co", 5, "LKCMB", "NLRTM", ("Lotus Tea",)),
    Shipper("Lotus Pharma Pvt Ltd", 7, "INNSA", "BEANR", ("Lotus Pharmaceuticals",), reports_transit_days=False),
    Shipper("Orient Star Toys Ltd", 9, "HKHKG", "USLGB", ("Orient Star",)),
    Shipper("Orient Steel Works", 6, "KRPUS", "USMSY", ()),
    Shipper("Great Lakes Auto Parts Inc", 8, "CNTAO", "USNYC", ("Great Lakes Auto",)),
    Shipper("Evergreen Garden Supply LLC", 5, "CNTAO", "USSEA", ("Garden Supply",)),
    Shipper("Baltic Timber OU", 5, "DEHAM", "USCHS", ("Baltic Timber",)),
    Shipper("Cedar Paper Mills", 6, "CAVAN", "KRPUS", ("Cedar Paper",)),
    Shipper("Lone Star Petrochemicals LP", 9, "USHOU", "BRSSZ", ("Lone Star", "LSP")),
    Shipper("Gulf Coast Polymers Inc", 7, "USHOU", "NLRTM", ("GCP", "Gulf Coast"), reports_transit_days=False),
    Shipper("Andes Coffee Exporters SA", 6, "BRSSZ", "USMSY", ("Andes Coffee",)),
    Shipper("Verde Fruit Cooperative", 6, "BRSSZ", "NLRTM", ("Verde Fruit",)),
    Shipper("Kobe Precision Tools KK", 7, "JPYOK", "USLGB", ("Kobe Tools", "KPT")),
    Shipper("Hanil Home Appliances Co", 9, "KRPUS", "USSAV", ("Hanil",)),
    Shipper("Dragon Gate Ceramics Ltd", 7, "CNYTN", "ESVLC", ("Dragon Gate",)),
    Shipper("Silk Road Carpets LLC", 4, "AEJEA", "DEHAM", ("Silk Road",)),
    Shipper("Oasis Aluminium FZE", 5, "AEJEA", "USHOU", ("Oasis Aluminum", "Oasis")),
    Shipper("Tulip Dairy BV", 6, "NLRTM", "SGSIN", ("Tulip",)),
    Shipper("Flandria Chocolates NV", 4, "BEANR", "USNYC", ("Flandria",)),
    Shipper("Iberia Tiles SL", 5, "ESVLC", "USMIA", ("Iberia Tiles",)),
    Shipper("Aegean Olive Oil SA", 4, "GRPIR", "USNYC", ("Aegean Oil",)),
    Shipper("Formosa Bicycle Works", 6, "TWKHH", "NLRTM", ("Formosa Bikes",)),
    Shipper("Mekong Seafood JSC", 6, "VNSGN", "USLGB", ("Mekong",)),
    Shipper("Coral Furniture Co", 6, "CNNGB", "USMIA", ("Coral",)),
    Shipper("Harbor Lights Lighting Ltd", 5, "CNNGB", "USOAK", ("Harbor Lights",)),
    Shipper("Prairie Grain Company", 6, "CAVAN", "JPYOK", ("Prairie Grain",)),
    Shipper("Silver Fern Wool Ltd", 3, "SGSIN", "GBFXT", ("Silver Fern",)),
    Shipper("Summit Tire and Rubber Co", 7, "THLCH", "USNYC", ("Summit Tire",)),
    Shipper("Quick Cart Retail Inc", 9, "CNSHA", "USLGB", ("QuickCart", "Quick Cart")),
)


def shipper_id(position: int) -> str:
    """Return the identifier of the shipper at a position in `SHIPPERS`, from 0."""
    return f"SHP-{position + 1:03d}"


def name_documents() -> Iterator[Mapping[str, Any]]:
    """Yield the documents of the names (kind, name, aliases and code) in a fixed order."""
    for position, shipper in enumerate(SHIPPERS):
        yield _document("shipper", shipper.name, shipper.aliases, shipper_id(position))
    for carrier in CARRIERS:
        yield _document("carrier", carrier.name, carrier.aliases, carrier.code)
    for port in PORTS:
        yield _document("port", port.name, port.aliases, port.code)


def _document(kind: str, name: str, aliases: tuple[str, ...], code: str) -> Mapping[str, Any]:
    return {"kind": kind, "name": name, "aliases": list(aliases), "code": code}
