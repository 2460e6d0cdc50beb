"""Five questions about shipments, end to end: real worker tools and a real search server.

The models follow the scripts of `examples/maritime`. The tests compare the results, and the numbers in the answers,
with the generated shipments.
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
from tests.support.maritime_runs import answer_question, scenario_runs, slot_value
from tests.support.rounds import prompt_of, sub_goal_statuses_of
from tests.support.runs import Document
from tests.support.search import TODAY, Maritime

pytestmark = [pytest.mark.server, pytest.mark.search]

YESTERDAY = (TODAY - timedelta(days=1)).isoformat()
LAST_QUARTER = {"gte": "2025-10-01", "lte": "2025-12-31"}
DATE_QUESTION = "What is a shipment, and which shipments arrived yesterday?"
CARRIER_QUESTION = "Show the shipments of Maersk to Los Angeles"
COMPARISON_QUESTION = "How do the volumes of Maersk and Evergreen to LA compare in the last quarter?"
COMPANY_QUESTION = "Show the shipments of Acme Corp to Houston"
TOP_SHIPPERS_QUESTION = "Who are the top 5 shippers to LA, and how long do their shipments take?"


def collect_ids(shipments: Any) -> set[str]:
    return {shipment["shipment_id"] for shipment in shipments}


def matching_shipments(maritime: Maritime, predicate: Callable[[Shipment], bool]) -> list[Shipment]:
    return [shipment for shipment in maritime.shipments() if predicate(shipment)]


def table_rows(text: str) -> list[list[str]]:
    """Return the rows of all Markdown tables in a text as lists of cells, including the header rows."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in map(str.strip, text.splitlines())
        if line.startswith("| ") and not line.startswith("| ---")
    ]


def assert_shipments(text: str, shipments: list[Shipment]) -> None:
    """Check that the tables of an answer have the first 20 of these shipments, in this order."""
    shipment_ids = [row[0] for row in table_rows(text) if row[0].startswith("SH-")]
    assert shipment_ids == [shipment["shipment_id"] for shipment in shipments[:20]]
    if len(shipments) > 20:
        assert f"of {len(shipments):,} are shown" in text


def lookup_results(document: Document, node_id: str, *keys: str) -> tuple[Any, ...]:
    """Return the conditions in the analysis of `metadata_lookup`, then the values of `keys` in this analysis."""
    analysis = slot_value(document, node_id, "analysis_result")
    conditions = [(condition["field"], condition["op"], condition["value"]) for condition in analysis["filters"]]
    return (conditions, *(analysis[key] for key in keys))


# 1: two goals, one of which is ambiguous

DATE_FIELDS = ["arrival_date", "eta_date"]
DATE_AMBIGUITY = {"question": "Which of the dates is meant?", "options": DATE_FIELDS}


def assert_date_field_of_yesterday_is_ambiguous(document: Document) -> None:
    """Check that the lookup found the day, and that the date field is ambiguous."""
    day = {"field": None, "start": YESTERDAY, "end": YESTERDAY}
    assert lookup_results(document, "sg2", "date_range", "fields") == ([], day, DATE_FIELDS)
    assert slot_value(document, "sg3", "ambiguity") == DATE_AMBIGUITY


async def test_output_answers_the_clear_goal_and_clarifies_the_ambiguous_date(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    async with scenario_runs(client, tmp_path, maritime, "unclear-date-asked") as (server, runs):
        document = await answer_question(runs, DATE_QUESTION)
        planner_prompt = prompt_of(server, "plan#3")
    assert (document["status"], document["rounds"]["phase"]) == ("completed", "done")
    assert sub_goal_statuses_of(document) == [[(1, "success"), (2, "success")], [(3, "success")], [(4, "success")], []]
    assert_date_field_of_yesterday_is_ambiguous(document)
    # The prompt of the planner has the ambiguity that the query generator reported.
    assert "eta_date" in planner_prompt
    clarification = "Do you mean the day on which they arrived?\n\n1. arrival_date\n2. eta_date"
    assert slot_value(document, "sg4", "clarification_message") == clarification
    # The answer consists of unchanged slots.
    assert document["output"] == f"{slot_value(document, 'sg1', 'answer')}\n\n{clarification}"
    assert document["output"].startswith("Goods that go from port to port on one booking.\n\nSources: ")


async def test_ambiguous_date_is_assumed_and_the_assumption_is_stated(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    arrived_shipments = matching_shipments(maritime, lambda shipment: shipment.get("arrival_date") == YESTERDAY)
    async with scenario_runs(client, tmp_path, maritime, "unclear-date-taken") as (server, runs):
        document = await answer_question(runs, DATE_QUESTION)
        purposes = [call.metadata["purpose"] for call in server.calls]
    assert document["status"] == "completed"
    assert_date_field_of_yesterday_is_ambiguous(document)
    assert slot_value(document, "sg4", "hit_count") == len(arrived_shipments) > 0
    assert collect_ids(slot_value(document, "sg4", "es_results")["hits"]) == collect_ids(arrived_shipments)
    assert "answer" not in purposes
    clarification = "These arrived on that day. Did you mean another date?\n\n1. arrival_date\n2. eta_date"
    table = slot_value(document, "sg5", "formatted_results")
    assert document["output"] == f"{slot_value(document, 'sg1', 'answer')}\n\n{table}\n\n{clarification}"
    assert_shipments(table, arrived_shipments)


# 2: one goal


async def test_shipments_of_a_carrier_to_a_port_are_shown(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    expected = matching_shipments(
        maritime, lambda shipment: shipment["carrier_name"] == "MAERSK" and shipment["destination_port_code"] == "USLAX"
    )
    async with scenario_runs(client, tmp_path, maritime, "one-carrier") as (server, runs):
        document = await answer_question(runs, CARRIER_QUESTION)
        generator_prompt = prompt_of(server, "sg2")
    assert document["status"] == "completed"
    assert_shipments(document["output"], expected)
    # The names were found in the data, and the query generator receives their spelling in the data.
    found_values = {(value["field"], value["value"]) for value in slot_value(document, "sg1", "value_results")}
    assert {("carrier_name", "MAERSK"), ("destination_port", "Los Angeles")} <= found_values
    assert '"MAERSK"' in generator_prompt
    assert slot_value(document, "sg3", "hit_count") == len(expected) > 50
    assert [hit["shipment_id"] for hit in slot_value(document, "sg3", "es_results")["hits"]] == [
        shipment["shipment_id"] for shipment in expected[:50]
    ]


# 3: a comparison of two carriers, in parallel


async def test_volumes_of_two_carriers_are_compared_by_parallel_sub_goals(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    carriers = ("MAERSK", "EVERGREEN")
    teu: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for shipment in maritime.shipments():
        departed_in_quarter = LAST_QUARTER["gte"] <= shipment["departure_date"] <= LAST_QUARTER["lte"]
        if shipment["destination_port_code"] == "USLAX" and departed_in_quarter:
            teu[shipment["carrier_name"]] += shipment["teu"]
            counts[shipment["carrier_name"]] += 1
    async with scenario_runs(client, tmp_path, maritime, "two-carriers") as (_, runs):
        document = await answer_question(runs, COMPARISON_QUESTION)
    assert document["status"] == "completed"
    assert document["output"].startswith("The table has the volumes of both carriers side by side.\n\n")
    for carrier in carriers:
        figures = {f"{teu[carrier]:,}", f"{counts[carrier]:,}"}
        assert [row for row in table_rows(document["output"]) if carrier in row and figures <= set(row)], document[
            "output"
        ]
    assert [sorted(result) for result in sub_goal_statuses_of(document)] == [
        [(1, "success"), (2, "success")],
        [(3, "success"), (4, "success")],
        [(5, "success"), (6, "success")],
        [(7, "success")],
        [],
    ]
    departure_range = {"field": "departure_date", "start": LAST_QUARTER["gte"], "end": LAST_QUARTER["lte"]}
    for node_id, carrier in zip(("sg1", "sg2"), carriers, strict=True):
        conditions = [("carrier_name", "is", carrier), ("destination_port", "is", "Los Angeles")]
        expected = (conditions, departure_range, [{"op": "sum", "field": "teu"}])
        assert lookup_results(document, node_id, "date_range", "metrics") == expected
    for node_id, carrier in zip(("sg5", "sg6"), carriers, strict=True):
        (bucket,) = slot_value(document, node_id, "es_results")["aggregations"]["by_carrier"]["buckets"]
        figures_of_carrier = (carrier, counts[carrier], teu[carrier])
        assert (bucket["key"], bucket["doc_count"], bucket["total_teu"]["value"]) == figures_of_carrier
        assert slot_value(document, node_id, "hit_count") == counts[carrier] > 10


# 4: several companies match, and the next turn selects one


ACME_COMPANIES = ("Acme Corp LLC", "Acme Corporation", "Acme Co")


async def test_next_turn_selects_a_matching_company(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    expected = matching_shipments(
        maritime,
        lambda shipment: shipment["shipper_name"] == "Acme Corp LLC" and shipment["destination_port_code"] == "USHOU",
    )
    async with scenario_runs(client, tmp_path, maritime, "which-company") as (server, runs):
        document = await answer_question(runs, COMPANY_QUESTION)
        planner_prompt = prompt_of(server, "plan#2")
        clarification = document["output"]
        second_document = await answer_question(
            runs, "Acme Corp LLC", turns=[TurnSummary(1, COMPANY_QUESTION, clarification)]
        )
        intention_prompt = prompt_of(server, "intention")
    assert document["status"] == "completed"
    heading, _, *options = clarification.splitlines()
    assert (heading, sorted(option[3:] for option in options)) == ("Which Acme do you mean?", sorted(ACME_COMPANIES))
    assert sub_goal_statuses_of(document)[0] == [(1, "partial")]
    (result,) = document["rounds"]["rounds"][0]["results"]
    assert [name for name in ACME_COMPANIES if name not in result["message"]] == []
    assert [name for name in ACME_COMPANIES if name not in planner_prompt] == []
    assert second_document["status"] == "completed"
    assert_shipments(second_document["output"], expected)
    assert COMPANY_QUESTION in intention_prompt
    assert json.dumps(clarification) in intention_prompt
    assert sub_goal_statuses_of(second_document)[0] == [(1, "success"), (2, "success"), (3, "success"), (4, "success")]
    assert slot_value(second_document, "sg3", "hit_count") == len(expected) > 100


# 5: there is no data for a part of the question


async def test_top_shippers_are_reported_with_transit_times(client: Client, tmp_path: Path, maritime: Maritime) -> None:
    shipments_to_la = matching_shipments(maritime, lambda shipment: shipment["destination_port_code"] == "USLAX")
    top_shippers = [
        name for name, _ in Counter(shipment["shipper_name"] for shipment in shipments_to_la).most_common(5)
    ]
    transit_days_by_shipper = {
        name: [
            shipment["transit_days"]
            for shipment in shipments_to_la
            if shipment["shipper_name"] == name and "transit_days" in shipment
        ]
        for name in top_shippers
    }
    names_without_times = [name for name in top_shippers if not transit_days_by_shipper[name]]
    assert len(names_without_times) == 2
    async with scenario_runs(client, tmp_path, maritime, "missing-times") as (server, runs):
        document = await answer_question(runs, TOP_SHIPPERS_QUESTION)
        planner_prompt = prompt_of(server, "plan#4")
    assert document["status"] == "completed"
    conditions = [("destination_port", "is", "Los Angeles")]
    expected_lookup = (conditions, [{"op": "avg", "field": "transit_days"}], ["shipper_name"], 5)
    assert lookup_results(document, "sg1", "metrics", "group_by", "top") == expected_lookup
    assert sub_goal_statuses_of(document)[2] == [(3, "partial")]
    message = document["rounds"]["rounds"][2]["results"][0]["message"]
    assert "3 of 5" in message
    # The answer names the missing part.
    table_text, incomplete_text = document["output"].split("\n\nIncomplete:\n")
    assert [
        name
        for name in names_without_times
        if name not in message or name not in planner_prompt or name not in incomplete_text
    ] == []
    buckets = slot_value(document, "sg3", "es_results")["aggregations"]["by_shipper"]["buckets"]
    assert [bucket["key"] for bucket in buckets] == top_shippers
    for bucket in buckets:
        transit_days, average = transit_days_by_shipper[bucket["key"]], bucket["average_transit_days"]["value"]
        assert average == (pytest.approx(sum(transit_days) / len(transit_days), abs=1e-3) if transit_days else None)
    rows = {row[0]: row for row in table_rows(table_text) if row[0] in top_shippers}
    assert [*rows] == top_shippers
    for name, row in rows.items():
        shipment_count = sum(shipment["shipper_name"] == name for shipment in shipments_to_la)
        assert f"{shipment_count:,}" in row
        if transit_days := transit_days_by_shipper[name]:
            averages = [float(cell) for cell in row[1:] if "." in cell and "%" not in cell]
            assert pytest.approx(sum(transit_days) / len(transit_days), abs=0.01) in averages
        else:
            assert "" in row
