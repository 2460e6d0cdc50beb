"""Five questions about shipments, end to end: real workers, a real search server; only the models follow the scripts of
`examples/maritime`, which anybody can try.

The results are checked against the shipments, which their generator makes again, figure by figure; so are the
figures of the answer, which is assembled from slots of workers. Queries are made from the looked-up names.
"""

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.planning.conversation import TurnSummary
from dagwright_maritime.shipments import Shipment
from tests.support.maritime_runs import answer_question, scenario_runs, slot
from tests.support.rounds import prompt_of, results_of
from tests.support.runs import Document
from tests.support.search import TODAY, Maritime

pytestmark = [pytest.mark.server, pytest.mark.search]

YESTERDAY = (TODAY - timedelta(days=1)).isoformat()
LAST_QUARTER = {"gte": "2025-10-01", "lte": "2025-12-31"}
ONE = "What is a shipment, and which shipments arrived yesterday?"
TWO = "Show the shipments of Maersk to Los Angeles"
THREE = "How do the volumes of Maersk and Evergreen to LA compare in the last quarter?"
FOUR = "Show the shipments of Acme Corp to Houston"
FIVE = "Who are the top 5 shippers to LA, and how long do their shipments take?"


def ids(shipments: Any) -> set[str]:
    return {shipment["shipment_id"] for shipment in shipments}


def matching(maritime: Maritime, holds: Callable[[Shipment], bool]) -> list[Shipment]:
    return [shipment for shipment in maritime.shipments() if holds(shipment)]


def table_rows(text: str) -> list[list[str]]:
    """Return the rows of all Markdown tables of a text, cell by cell, with their heads."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in map(str.strip, text.splitlines())
        if line.startswith("| ") and not line.startswith("| ---")
    ]


def assert_shipments(text: str, shipments: list[Shipment]) -> None:
    """Assert that the tables of an answer show these shipments, in this order."""
    shown = [row[0] for row in table_rows(text) if row[0].startswith("SH-")]
    assert shown == [shipment["shipment_id"] for shipment in shipments[:20]]
    if len(shipments) > 20:
        assert f"of {len(shipments):,} are shown" in text


def looked_up(found: Document, node: str, *names: str) -> tuple[Any, ...]:
    """Return what metadata_lookup found out: its conditions, then other parts of the analysis by name."""
    analysis = slot(found, node, "analysis_result")
    conditions = [(each["field"], each["op"], each["value"]) for each in analysis["filters"]]
    return (conditions, *(analysis[name] for name in names))


# 1: two goals, one of them uncertain

BOTH_DATES = ["arrival_date", "eta_date"]
WHICH_DATE = {"question": "Which of the dates is meant?", "options": BOTH_DATES}


def assert_arrived_yesterday(found: Document) -> None:
    """Assert that the day is known, and that the meaning of the date is open."""
    day = {"field": None, "start": YESTERDAY, "end": YESTERDAY}
    assert looked_up(found, "sg2", "date_range", "fields") == ([], day, BOTH_DATES)
    assert slot(found, "sg3", "ambiguity") == WHICH_DATE


async def test_unclear_word_is_asked_next_to_the_clear_part(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    async with scenario_runs(client, tmp_path, maritime, "unclear-date-asked") as (server, runs):
        document = await answer_question(runs, ONE)
        planned = prompt_of(server, "plan#3")
    assert (document["status"], document["rounds"]["phase"]) == ("completed", "done")
    assert results_of(document) == [[(1, "success"), (2, "success")], [(3, "success")], [(4, "success")], []]
    assert_arrived_yesterday(document)
    # The planner decides by the uncertainties that the query generator reported.
    assert "eta_date" in planned
    which = "Do you mean the day on which they arrived?\n\n1. arrival_date\n2. eta_date"
    assert slot(document, "sg4", "clarification_message") == which
    # The answer is the slots as they are.
    assert document["output"] == f"{slot(document, 'sg1', 'answer')}\n\n{which}"
    assert document["output"].startswith("Goods that go from port to port on one booking.\n\nSources: ")


async def test_unclear_word_is_taken_as_the_likeliest_one(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    arrived = matching(maritime, lambda each: each.get("arrival_date") == YESTERDAY)
    async with scenario_runs(client, tmp_path, maritime, "unclear-date-taken") as (server, runs):
        document = await answer_question(runs, ONE)
        purposes = [call.metadata["purpose"] for call in server.calls]
    assert document["status"] == "completed"
    assert_arrived_yesterday(document)
    assert slot(document, "sg4", "hit_count") == len(arrived) > 0
    assert ids(slot(document, "sg4", "es_results")["hits"]) == ids(arrived)
    assert "answer" not in purposes
    which = "These arrived on that day. Did you mean another date?\n\n1. arrival_date\n2. eta_date"
    table = slot(document, "sg5", "formatted_results")
    assert document["output"] == f"{slot(document, 'sg1', 'answer')}\n\n{table}\n\n{which}"
    assert_shipments(table, arrived)


# 2: one goal


async def test_shipments_of_a_carrier_to_a_port_are_shown(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    expected = matching(
        maritime, lambda each: each["carrier_name"] == "MAERSK" and each["destination_port_code"] == "USLAX"
    )
    async with scenario_runs(client, tmp_path, maritime, "one-carrier") as (server, runs):
        document = await answer_question(runs, TWO)
        result = prompt_of(server, "sg2")
    assert document["status"] == "completed"
    assert_shipments(document["output"], expected)
    # The names were found in the data, and the query generator gets their spelling.
    named = {(each["field"], each["value"]) for each in slot(document, "sg1", "value_results")}
    assert {("carrier_name", "MAERSK"), ("destination_port", "Los Angeles")} <= named
    assert '"MAERSK"' in result
    assert slot(document, "sg3", "hit_count") == len(expected) > 50
    assert [hit["shipment_id"] for hit in slot(document, "sg3", "es_results")["hits"]] == [
        each["shipment_id"] for each in expected[:50]
    ]


# 3: a comparison, both sides at once


async def test_volumes_of_two_carriers_are_compared_at_once(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    carriers = ("MAERSK", "EVERGREEN")
    teu: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for shipment in maritime.shipments():
        departed = LAST_QUARTER["gte"] <= shipment["departure_date"] <= LAST_QUARTER["lte"]
        if shipment["destination_port_code"] == "USLAX" and departed:
            teu[shipment["carrier_name"]] += shipment["teu"]
            number[shipment["carrier_name"]] += 1
    async with scenario_runs(client, tmp_path, maritime, "two-carriers") as (_, runs):
        document = await answer_question(runs, THREE)
    assert document["status"] == "completed"
    assert document["output"].startswith("The table has the volumes of both carriers side by side.\n\n")
    for name in carriers:
        figures = {f"{teu[name]:,}", f"{number[name]:,}"}
        assert [row for row in table_rows(document["output"]) if name in row and figures <= set(row)], document[
            "output"
        ]
    assert [sorted(result) for result in results_of(document)] == [
        [(1, "success"), (2, "success")],
        [(3, "success"), (4, "success")],
        [(5, "success"), (6, "success")],
        [(7, "success")],
        [],
    ]
    departed = {"field": "departure_date", "start": LAST_QUARTER["gte"], "end": LAST_QUARTER["lte"]}
    for node, carrier in zip(("sg1", "sg2"), carriers, strict=True):
        names = [("carrier_name", "is", carrier), ("destination_port", "is", "Los Angeles")]
        assert looked_up(document, node, "date_range", "metrics") == (names, departed, [{"op": "sum", "field": "teu"}])
    for node, carrier in zip(("sg5", "sg6"), carriers, strict=True):
        (bucket,) = slot(document, node, "es_results")["aggregations"]["by_carrier"]["buckets"]
        assert (bucket["key"], bucket["doc_count"], bucket["total_teu"]["value"]) == (
            carrier,
            number[carrier],
            teu[carrier],
        )
        assert slot(document, node, "hit_count") == number[carrier] > 10


# 4: several that could be meant, and the next turn


ACMES = ("Acme Corp LLC", "Acme Corporation", "Acme Co")


async def test_next_turn_knows_which_company_was_meant(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    expected = matching(
        maritime, lambda each: each["shipper_name"] == "Acme Corp LLC" and each["destination_port_code"] == "USHOU"
    )
    async with scenario_runs(client, tmp_path, maritime, "which-company") as (server, runs):
        document = await answer_question(runs, FOUR)
        planned = prompt_of(server, "plan#2")
        which = document["output"]
        actual = await answer_question(runs, "Acme Corp LLC", turns=[TurnSummary(1, FOUR, which)])
        heard = prompt_of(server, "intention")
    assert document["status"] == "completed"
    heading, _, *options = which.splitlines()
    assert (heading, sorted(option[3:] for option in options)) == ("Which Acme do you mean?", sorted(ACMES))
    assert results_of(document)[0] == [(1, "partial")]
    (result,) = document["rounds"]["rounds"][0]["results"]
    assert [name for name in ACMES if name not in result["message"]] == []
    assert [name for name in ACMES if name not in planned] == []
    assert actual["status"] == "completed"
    assert_shipments(actual["output"], expected)
    assert FOUR in heard
    assert json.dumps(which) in heard
    assert results_of(actual)[0] == [(1, "success"), (2, "success"), (3, "success"), (4, "success")]
    assert slot(actual, "sg3", "hit_count") == len(expected) > 100


# 5: a part of the question has no data


async def test_top_shippers_are_reported_with_transit_times(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    bound = matching(maritime, lambda each: each["destination_port_code"] == "USLAX")
    top = [name for name, _ in Counter(each["shipper_name"] for each in bound).most_common(5)]
    days = {
        name: [each["transit_days"] for each in bound if each["shipper_name"] == name and "transit_days" in each]
        for name in top
    }
    silent = [name for name in top if not days[name]]
    assert len(silent) == 2
    async with scenario_runs(client, tmp_path, maritime, "missing-times") as (server, runs):
        document = await answer_question(runs, FIVE)
        planned = prompt_of(server, "plan#4")
    assert document["status"] == "completed"
    names = [("destination_port", "is", "Los Angeles")]
    asked = (names, [{"op": "avg", "field": "transit_days"}], ["shipper_name"], 5)
    assert looked_up(document, "sg1", "metrics", "group_by", "top") == asked
    assert results_of(document)[2] == [(3, "partial")]
    message = document["rounds"]["rounds"][2]["results"][0]["message"]
    assert "3 of 5" in message
    # The answer names the missing part.
    words, gaps = document["output"].split("\n\nIncomplete:\n")
    assert [name for name in silent if name not in message or name not in planned or name not in gaps] == []
    buckets = slot(document, "sg3", "es_results")["aggregations"]["by_shipper"]["buckets"]
    assert [bucket["key"] for bucket in buckets] == top
    for bucket in buckets:
        known, average = days[bucket["key"]], bucket["average_transit_days"]["value"]
        assert average == (pytest.approx(sum(known) / len(known), abs=1e-3) if known else None)
    rows = {row[0]: row for row in table_rows(words) if row[0] in top}
    assert [*rows] == top
    for name, row in rows.items():
        number = sum(each["shipper_name"] == name for each in bound)
        assert f"{number:,}" in row
        if known := days[name]:
            averages = [float(cell) for cell in row[1:] if "." in cell and "%" not in cell]
            assert pytest.approx(sum(known) / len(known), abs=0.01) in averages
        else:
            assert "" in row
