"""Generated shipments: equal for equal seeds, with the irregularities that the example questions need."""

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from functools import partial
from itertools import islice
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright_maritime import index_loading
from dagwright_maritime.index_loading import load
from dagwright_maritime.indices import SHIPMENT_FIELDS, Indices
from dagwright_maritime.names import CARRIERS, PORTS, SHIPPERS, name_documents
from dagwright_maritime.shipments import DataSet, Shipment

TODAY = date(2026, 2, 10)


@pytest.fixture(scope="module")
def shipments() -> list[Shipment]:
    return list(DataSet(TODAY).shipments())


def shipments_to_los_angeles(shipments: list[Shipment]) -> list[Shipment]:
    return [shipment for shipment in shipments if shipment["destination_port_code"] == "USLAX"]


def test_seed_and_day_determine_the_first_shipments_of_a_data_set_of_any_size(shipments: list[Shipment]) -> None:
    assert len(shipments) == 10_000
    assert list(DataSet(TODAY, 10_000).shipments()) == shipments
    assert list(islice(DataSet(TODAY, 1_000_000).shipments(), 10_000)) == shipments


def test_another_seed_or_day_gives_other_shipments(shipments: list[Shipment]) -> None:
    assert list(DataSet(TODAY, seed=1).shipments()) != shipments
    shipments_of_next_day = DataSet(TODAY + timedelta(days=1)).shipments()
    first_shipment, first_shipment_of_next_day = shipments[0], next(shipments_of_next_day)
    first_eta = date.fromisoformat(first_shipment["eta_date"])
    assert date.fromisoformat(first_shipment_of_next_day["eta_date"]) == first_eta + timedelta(days=1)


def test_shipments_have_the_fields_of_the_mapping_and_no_others(shipments: list[Shipment]) -> None:
    mapped_fields = set(Indices("x").bodies()["x-shipments"]["mappings"]["properties"])
    assert mapped_fields == set(SHIPMENT_FIELDS)
    assert {name for shipment in shipments for name in shipment} == mapped_fields
    required_fields = mapped_fields - {"arrival_date", "transit_days"}
    assert [shipment for shipment in shipments if not required_fields <= set(shipment)] == []


def test_dates_and_status_fit_together(shipments: list[Shipment]) -> None:
    today = TODAY.isoformat()
    for shipment in shipments:
        status_after_departure = "arrived" if "arrival_date" in shipment else "in_transit"
        assert shipment["status"] == ("booked" if shipment["departure_date"] > today else status_after_departure)
        assert shipment.get("arrival_date", today) <= today
        assert shipment["eta_date"] > shipment["departure_date"]
        assert shipment["origin_port"] != shipment["destination_port"]
        assert 1 <= shipment["teu"] <= 60
        assert "transit_days" not in shipment or shipment["status"] == "arrived"
    assert {shipment["status"] for shipment in shipments} == {"booked", "in_transit", "arrived"}


def test_transit_time_is_missing_for_some_parties_and_shipments(shipments: list[Shipment]) -> None:
    arrived_shipments = [shipment for shipment in shipments if shipment["status"] == "arrived"]
    shipments_with_times = [shipment for shipment in arrived_shipments if "transit_days" in shipment]
    reporting_shippers = {shipper.name for shipper in SHIPPERS if shipper.reports_transit_days}
    reporting_carriers = {carrier.name for carrier in CARRIERS if carrier.reports_transit_days}
    assert len(reporting_shippers) + len(reporting_carriers) < len(SHIPPERS) + len(CARRIERS)
    assert {shipment["shipper_name"] for shipment in shipments_with_times} == reporting_shippers
    assert {shipment["carrier_name"] for shipment in shipments_with_times} == reporting_carriers
    shipments_of_reporting_parties = [
        shipment
        for shipment in arrived_shipments
        if shipment["shipper_name"] in reporting_shippers and shipment["carrier_name"] in reporting_carriers
    ]
    assert 0.9 < len(shipments_with_times) / len(shipments_of_reporting_parties) < 0.98
    for shipment in shipments_with_times:
        days = (date.fromisoformat(shipment["arrival_date"]) - date.fromisoformat(shipment["departure_date"])).days
        assert abs(shipment["transit_days"] - days) <= 0.5


def test_three_of_the_five_top_shippers_to_los_angeles_have_transit_times(shipments: list[Shipment]) -> None:
    los_angeles_shipments = shipments_to_los_angeles(shipments)
    shipment_counts = Counter(shipment["shipper_name"] for shipment in los_angeles_shipments)
    teu_sums: Counter[str] = Counter()
    for shipment in los_angeles_shipments:
        teu_sums[shipment["shipper_name"]] += shipment["teu"]
    top_shippers = [name for name, _ in shipment_counts.most_common(5)]
    assert [name for name, _ in teu_sums.most_common(5)] == top_shippers
    reports_transit_days = {shipper.name: shipper.reports_transit_days for shipper in SHIPPERS}
    assert [reports_transit_days[name] for name in top_shippers] == [True, False, True, False, True]


def test_arrivals_of_yesterday_differ_from_expected_arrivals_of_yesterday(shipments: list[Shipment]) -> None:
    yesterday = (TODAY - timedelta(days=1)).isoformat()
    arrived_ids = {shipment["shipment_id"] for shipment in shipments if shipment.get("arrival_date") == yesterday}
    expected_ids = {shipment["shipment_id"] for shipment in shipments if shipment["eta_date"] == yesterday}
    assert arrived_ids - expected_ids
    assert expected_ids - arrived_ids


def test_the_three_companies_called_acme_ship_to_houston(shipments: list[Shipment]) -> None:
    shippers = {shipment["shipper_name"] for shipment in shipments if shipment["destination_port_code"] == "USHOU"}
    acme_names = {name for name in shippers if name.startswith("Acme")}
    assert acme_names == {"Acme Corp LLC", "Acme Corporation", "Acme Co"}


def test_maersk_and_evergreen_ship_to_los_angeles_from_october_to_december(shipments: list[Shipment]) -> None:
    shipment_counts = Counter(
        (shipment["carrier_name"], shipment["departure_date"][:7]) for shipment in shipments_to_los_angeles(shipments)
    )
    for carrier in ("MAERSK", "EVERGREEN"):
        assert min(shipment_counts[carrier, month] for month in ("2025-10", "2025-11", "2025-12")) > 5


def test_names_and_codes_are_unique_per_kind_of_party() -> None:
    names = list(name_documents())
    assert len(names) == len(SHIPPERS) + len(CARRIERS) + len(PORTS)
    for field in ("name", "code"):
        assert max(Counter((name["kind"], name[field]) for name in names).values()) == 1
    name_counts = Counter(word.lower() for name in names for word in {name["name"], *name["aliases"]})
    assert [word for word, times in name_counts.items() if times > 1] == []
    # No company has exactly this name, but the names of three companies start with it.
    assert "acme corp" not in name_counts


def test_ports_of_shippers_are_in_the_list_of_ports() -> None:
    codes = {port.code for port in PORTS}
    assert {shipper.origin for shipper in SHIPPERS} | {shipper.destination for shipper in SHIPPERS} <= codes


async def peak_bytes(function: Callable[[], Awaitable[None]]) -> int:
    """Return the peak memory of a function call."""
    gc.collect()
    tracemalloc.start()
    try:
        await function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class AcceptingClient:
    """A client whose server accepts every document and stores none."""

    def __init__(self) -> None:
        self.indices = self
        self.accepted_count = 0

    async def get_mapping(self, **_: Any) -> dict[str, Any]:
        return {"error": "there is no index"}

    async def bulk(self, *, body: str, **_: Any) -> dict[str, Any]:
        self.accepted_count += body.count("\n") // 2
        await asyncio.sleep(0)
        return {"errors": False}

    async def _accept(self, **_: Any) -> None:
        pass

    create = delete = put_settings = put_mapping = refresh = _accept


async def test_memory_does_not_grow_with_the_number_of_shipments(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AcceptingClient()

    async def make_shipments(count: int) -> None:
        for _ in DataSet(TODAY, count).shipments():
            pass

    async def load_shipments(count: int) -> None:
        await load(cast("AsyncOpenSearch", client), Indices("x"), DataSet(TODAY, count))

    monkeypatch.setattr(index_loading, "_BATCH_SIZE", 75)
    small_count, large_count = 225, 450
    # The first call creates objects that remain in memory.
    await load_shipments(small_count)
    for function, limit_bytes in ((make_shipments, 1_000_000), (load_shipments, 20_000_000)):
        small_peak_bytes, large_peak_bytes = [
            await peak_bytes(partial(function, count)) for count in (small_count, large_count)
        ]
        assert large_peak_bytes < min(1.2 * small_peak_bytes, limit_bytes)
    assert client.accepted_count > 2 * small_count + large_count


@pytest.mark.parametrize("prefix", ["", "*", "Trade", "_x", "a,b", "a" * 101])
def test_invalid_index_prefix_is_rejected(prefix: str) -> None:
    with pytest.raises(ValueError, match="invalid index prefix"):
        Indices(prefix)
