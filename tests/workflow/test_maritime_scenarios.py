"""Five questions about shipments, end to end: real workers, a real search server; only the models follow a script.

What is found is checked against the shipments as their generator makes them once more, figure by figure; so are the
figures of the answer, which its model takes from what it is told. Queries are made of what was looked up.
"""

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.contracts.conversation import TurnSummary
from dagwright.maritime.shipments import Shipment
from tests.support.goals import ended
from tests.support.maritime_runs import (
    answered,
    answers,
    generates,
    looks_up,
    maritime_runs,
    runs_generated,
    shows,
    slot,
    start,
    understood,
    worker_says,
    writes_query,
)
from tests.support.rounds import done, goes_on, ref, results_of, said_to, sub_goal
from tests.support.runs import Document
from tests.support.search import TODAY, Maritime

pytestmark = [pytest.mark.server, pytest.mark.search]

YESTERDAY = (TODAY - timedelta(days=1)).isoformat()
LAST_QUARTER = {"gte": "2025-10-01", "lte": "2025-12-31"}
ONE = "what's shipment and find me a shipment arrived yesterday"
TWO = "Show me Maersk shipments to Los Angeles"
THREE = "Compare Maersk vs Evergreen shipping volumes to LA last quarter"
FOUR = "Show shipments from Acme Corp to Houston"
CARRIER, SHIPPER, DESTINATION = ("carrier", "carrier_name"), ("shipper", "shipper_name"), ("port", "destination_port")
VOLUME = {
    "metrics": [{"op": "sum", "field": "teu"}],
    "group_by": ["carrier_name"],
    "period": {"words": "last quarter", "fields": ["departure_date"]},
}
TRANSIT = {"metrics": [{"op": "avg", "field": "transit_days"}], "group_by": ["shipper_name"]}
FIVE = "Top 5 shippers to LA and their average transit times"


def ids(shipments: Any) -> set[str]:
    return {each["shipment_id"] for each in shipments}


def matching(maritime: Maritime, holds: Callable[[Shipment], bool]) -> list[Shipment]:
    return [each for each in maritime.shipments() if holds(each)]


def shown_shipments(text: str, rows: list[list[str]]) -> str:
    """Answers with the shipments of a table, and with how many there are."""
    found = [row[0] for row in rows if row[0].startswith("SH-")]
    count = re.search(r"of ([\d,]+) are shown", text)
    return answer_of(count[1] if count else f"{len(found)}", found)


def answer_of(count: str, found: list[str]) -> str:
    return f"{count} found: {', '.join(found)}."


def answer_of_data(shipments: list[Shipment]) -> str:
    """Returns what the answer has to be if these are found, in their order, by the data alone."""
    return answer_of(f"{len(shipments):,}", [each["shipment_id"] for each in shipments[:20]])


def looked_up(found: Document, node: str, *names: str) -> tuple[Any, ...]:
    """Returns what metadata_lookup found out: its conditions, then other parts of the analysis by name."""
    analysis = slot(found, node, "analysis_result")
    conditions = [(each["field"], each["op"], each["value"]) for each in analysis["filters"]]
    return (conditions, *(analysis[name] for name in names))


# 1: two goals, one of them uncertain

WHICH_DATE = {"question": "Is the arrival meant, or the expected arrival?", "options": ["arrival_date", "eta_date"]}
SHIPMENT = "Goods that go from port to port."
FIRST_HALF = (
    "1. Say what a shipment is. 2. Find shipments that arrived yesterday.",
    goes_on(
        sub_goal(1, "common_helpdesk", question="What is a shipment?"), looks_up(2, "shipments that arrived yesterday")
    ),
    goes_on(generates(3, 2)),
)


def workers_of_the_first() -> tuple[Any, ...]:
    return (
        worker_says("sg1", {"is_answered": True, "answer": SHIPMENT, "article_ids": ["what-is-a-shipment"]}),
        worker_says("sg2", understood("search", period={"words": "yesterday", "fields": WHICH_DATE["options"]})),
        writes_query("sg3", WHICH_DATE),
    )


def assert_arrived_yesterday(found: Document) -> None:
    """Asserts that the day is known, and that it is open which of the dates is meant."""
    day = {"field": None, "start": YESTERDAY, "end": YESTERDAY}
    assert looked_up(found, "sg2", "date_range", "fields") == ([], day, WHICH_DATE["options"])


async def test_unclear_word_is_asked_back_beside_the_part_that_is_clear(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    script = (
        *FIRST_HALF,
        goes_on(sub_goal(4, "clarify_question", "Ask which date is meant.", ambiguity=ref(3, "ambiguity"))),
        done(shipment=ref(1, "answer"), question=ref(4, "clarification_message")),
        "A shipment is goods that go from port to port. Do you mean the arrival, or the expected arrival?",
        *workers_of_the_first(),
        worker_says("sg4", {"message": "Do you mean the day of arrival?"}),
    )
    async with maritime_runs(client, tmp_path, maritime, *script) as (server, runs):
        found = await answered(runs, ONE)
        planned, told = said_to(server, "plan#3"), said_to(server, "answer")
    assert (found["status"], found["rounds"]["phase"]) == ("completed", "done")
    assert results_of(found) == [
        [(1, "success"), (2, "success")],
        [(3, "success")],
        [(4, "success")],
        [],
    ]
    assert_arrived_yesterday(found)
    # The planner decides by what the query generator was not sure about.
    assert slot(found, "sg3", "ambiguity") == WHICH_DATE
    assert "eta_date" in planned
    assert slot(found, "sg4", "clarification_message") == (
        "Do you mean the day of arrival?\n\n1. arrival_date\n2. eta_date"
    )
    assert "Do you mean the day of arrival?" in told
    assert SHIPMENT in told


async def test_unclear_word_is_taken_as_likeliest_and_the_shipments_are_shown(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    arrived = matching(maritime, lambda each: each.get("arrival_date") == YESTERDAY)
    script = (
        *FIRST_HALF,
        goes_on(runs_generated(4, 3), shows(5, 4)),
        done(shipment=ref(1, "answer"), arrived=ref(5, "formatted_results"), unsure=ref(3, "ambiguity")),
        answers(shown_shipments),
        *workers_of_the_first(),
    )
    async with maritime_runs(client, tmp_path, maritime, *script) as (server, runs):
        found = await answered(runs, ONE)
        told = said_to(server, "answer")
    assert found["status"] == "completed"
    assert_arrived_yesterday(found)
    assert slot(found, "sg4", "hit_count") == len(arrived) > 0
    assert ids(slot(found, "sg4", "es_results")["hits"]) == ids(arrived)
    assert found["output"] == answer_of_data(arrived)
    assert "eta_date" in told


# 2: one goal


async def test_shipments_of_a_carrier_to_a_port_are_found_and_shown(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    expected = matching(
        maritime, lambda each: each["carrier_name"] == "MAERSK" and each["destination_port_code"] == "USLAX"
    )
    script = (
        "Show shipments of the carrier Maersk to Los Angeles.",
        goes_on(looks_up(1, TWO)),
        goes_on(generates(2, 1)),
        goes_on(runs_generated(3, 2)),
        goes_on(shows(4, 3)),
        done(results=ref(4, "formatted_results")),
        answers(shown_shipments),
        worker_says("sg1", understood("search", {"Maersk": CARRIER, "Los Angeles": DESTINATION})),
        writes_query("sg2"),
    )
    async with maritime_runs(client, tmp_path, maritime, *script) as (server, runs):
        found = await answered(runs, TWO)
        told = said_to(server, "sg2")
    assert (found["status"], found["output"]) == ("completed", answer_of_data(expected))
    # The names were found in the data, and the query generator is told how they are written there.
    named = {(each["field"], each["value"]) for each in slot(found, "sg1", "value_results")}
    assert {("carrier_name", "MAERSK"), ("destination_port", "Los Angeles")} <= named
    assert '"MAERSK"' in told
    assert slot(found, "sg3", "hit_count") == len(expected) > 50
    assert [each["shipment_id"] for each in slot(found, "sg3", "es_results")["hits"]] == [
        each["shipment_id"] for each in expected[:50]
    ]


# 3: a comparison, both sides at once


def volumes_told(_: str, rows: list[list[str]]) -> str:
    """Answers with the volume of each carrier, as the table of its query has it."""
    head = next(row for row in rows if row[0] == "by_carrier")
    places = head.index("total_teu"), head.index("documents")
    carriers = [row for row in rows if row[0] in ("MAERSK", "EVERGREEN")]
    return "\n".join(f"{row[0]}: {row[places[0]]} TEU, {row[places[1]]} shipments" for row in carriers)


async def test_volumes_of_two_carriers_are_compared_both_at_once_in_each_round(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    carriers = ("MAERSK", "EVERGREEN")
    teu: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for each in maritime.shipments():
        departed = LAST_QUARTER["gte"] <= each["departure_date"] <= LAST_QUARTER["lte"]
        if each["destination_port_code"] == "USLAX" and departed:
            teu[each["carrier_name"]] += each["teu"]
            number[each["carrier_name"]] += 1
    script = (
        "Compare the volumes of Maersk and Evergreen to Los Angeles from October to December 2025.",
        goes_on(looks_up(1, "Maersk volumes to LA last quarter"), looks_up(2, "Evergreen volumes to LA last quarter")),
        goes_on(generates(3, 1), generates(4, 2)),
        goes_on(runs_generated(5, 3), runs_generated(6, 4)),
        goes_on(
            sub_goal(7, "analyze_results", "Compare them.", es_results=[ref(5, "es_results"), ref(6, "es_results")])
        ),
        done(comparison=ref(7, "analysis")),
        answers(volumes_told),
        worker_says("sg1", understood("aggregation", {"Maersk": CARRIER, "LA": DESTINATION}, **VOLUME)),
        worker_says("sg2", understood("aggregation", {"Evergreen": CARRIER, "LA": DESTINATION}, **VOLUME)),
        writes_query("sg3"),
        writes_query("sg4"),
        worker_says("sg7", {"text": "MAERSK carried more than EVERGREEN."}),
    )
    async with maritime_runs(client, tmp_path, maritime, *script) as (_, runs):
        found = await answered(runs, THREE)
    assert found["status"] == "completed"
    assert found["output"].splitlines() == [
        f"{name}: {teu[name]:,} TEU, {number[name]:,} shipments" for name in carriers
    ]
    assert [sorted(each) for each in results_of(found)] == [
        [(1, "success"), (2, "success")],
        [(3, "success"), (4, "success")],
        [(5, "success"), (6, "success")],
        [(7, "success")],
        [],
    ]
    departed = {"field": "departure_date", "start": LAST_QUARTER["gte"], "end": LAST_QUARTER["lte"]}
    for node, carrier in zip(("sg1", "sg2"), carriers, strict=True):
        names = [("carrier_name", "is", carrier), ("destination_port", "is", "Los Angeles")]
        assert looked_up(found, node, "date_range", "metrics") == (names, departed, VOLUME["metrics"])
    for node, carrier in zip(("sg5", "sg6"), carriers, strict=True):
        (bucket,) = slot(found, node, "es_results")["aggregations"]["by_carrier"]["buckets"]
        assert (bucket["key"], bucket["doc_count"], bucket["total_teu"]["value"]) == (
            carrier,
            number[carrier],
            teu[carrier],
        )
        assert slot(found, node, "hit_count") == number[carrier] > 10


# 4: several that could be meant, and the next turn


ACMES = ("Acme Corp LLC", "Acme Corporation", "Acme Co")


async def test_name_of_several_companies_is_asked_back_and_the_next_turn_goes_on_with_the_answer(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    which = "Which Acme do you mean: Acme Corp LLC, Acme Corporation or Acme Co?"
    first = (
        "Show shipments of Acme Corp to Houston.",
        goes_on(looks_up(1, FOUR)),
        goes_on(sub_goal(2, "clarify_question", question="Which Acme is meant?", options=[*ACMES])),
        done(question=ref(2, "clarification_message")),
        which,
        worker_says("sg1", understood("search", {"Acme Corp": SHIPPER, "Houston": DESTINATION})),
        worker_says("sg2", {"message": "Which Acme do you mean?"}),
    )
    async with maritime_runs(client, tmp_path / "first", maritime, *first) as (server, runs):
        asked = await answered(runs, FOUR)
        planned = said_to(server, "plan#2")
    assert (asked["status"], asked["output"]) == ("completed", which)
    assert results_of(asked)[0] == [(1, "partial")]
    (result,) = asked["rounds"]["rounds"][0]["results"]
    assert [name for name in ACMES if name not in result["message"]] == []
    assert [name for name in ACMES if name not in planned] == []

    expected = matching(
        maritime, lambda each: each["shipper_name"] == "Acme Corp LLC" and each["destination_port_code"] == "USHOU"
    )
    second = (
        "Show shipments of Acme Corp LLC to Houston.",
        goes_on(
            looks_up(1, "shipments from Acme Corp LLC to Houston"), generates(2, 1), runs_generated(3, 2), shows(4, 3)
        ),
        done(results=ref(4, "formatted_results")),
        answers(shown_shipments),
        worker_says("sg1", understood("search", {"Acme Corp LLC": SHIPPER, "Houston": DESTINATION})),
        writes_query("sg2"),
    )
    turn = TurnSummary(1, FOUR, which)
    async with maritime_runs(client, tmp_path / "second", maritime, *second) as (server, runs):
        handle = await start(runs, "Acme Corp LLC", turns=[turn])
        await ended(runs, handle)
        found = await runs.restored(handle, full=True)
        heard = said_to(server, "intention")
    assert (found["status"], found["output"]) == ("completed", answer_of_data(expected))
    assert FOUR in heard
    assert which in heard
    assert results_of(found)[0] == [(1, "success"), (2, "success"), (3, "success"), (4, "success")]
    assert slot(found, "sg3", "hit_count") == len(expected) > 100


# 5: a part of what is asked is not there


def transit_told(_: str, rows: list[list[str]]) -> str:
    """Answers with the shippers of the table of figures, with their shipments and transit times."""
    head, *shippers = [row for row in rows if len(row) > 2 and row[0] not in ("all other groups", "all together")]
    number, days = head.index("documents"), head.index("average_transit_days")
    times = [f"{row[days]} days" if row[days] else "no value" for row in shippers]
    return "\n".join(f"{row[0]}: {row[number]} shipments, {time}" for row, time in zip(shippers, times, strict=True))


async def test_top_shippers_are_told_with_the_transit_times_that_there_are(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    bound = matching(maritime, lambda each: each["destination_port_code"] == "USLAX")
    top = [name for name, _ in Counter(each["shipper_name"] for each in bound).most_common(5)]
    days = {
        name: [each["transit_days"] for each in bound if each["shipper_name"] == name and "transit_days" in each]
        for name in top
    }
    silent = [name for name in top if not days[name]]
    assert len(silent) == 2
    script = (
        "Name the five shippers with most shipments to Los Angeles, with their average transit times.",
        goes_on(looks_up(1, FIVE)),
        goes_on(generates(2, 1)),
        goes_on(runs_generated(3, 2)),
        goes_on(sub_goal(4, "analyze_results", "Say who the five are.", es_results=ref(3, "es_results"))),
        done(analysis=ref(4, "analysis")),
        answers(transit_told),
        worker_says("sg1", understood("aggregation", {"LA": DESTINATION}, top=5, **TRANSIT)),
        writes_query("sg2"),
        worker_says("sg4", {"text": "Some of them do not tell how long it takes."}),
    )
    async with maritime_runs(client, tmp_path, maritime, *script) as (server, runs):
        found = await answered(runs, FIVE)
        planned, told = said_to(server, "plan#4"), said_to(server, "answer")
    assert found["status"] == "completed"
    names = [("destination_port", "is", "Los Angeles")]
    asked = (names, TRANSIT["metrics"], TRANSIT["group_by"], 5)
    assert looked_up(found, "sg1", "metrics", "group_by", "top") == asked
    assert results_of(found)[2] == [(3, "partial")]
    message = found["rounds"]["rounds"][2]["results"][0]["message"]
    assert "3 of 5" in message
    assert [name for name in silent if name not in message or name not in planned or name not in told] == []
    buckets = slot(found, "sg3", "es_results")["aggregations"]["by_shipper"]["buckets"]
    assert [bucket["key"] for bucket in buckets] == top
    for bucket in buckets:
        known, average = days[bucket["key"]], bucket["average_transit_days"]["value"]
        assert average == (pytest.approx(sum(known) / len(known), abs=1e-3) if known else None)
    lines = [line.split(": ") for line in found["output"].splitlines()]
    assert [name for name, _ in lines] == top
    for name, said in lines:
        known, number = days[name], sum(each["shipper_name"] == name for each in bound)
        shipments, average = said.split(", ")
        assert shipments == f"{number:,} shipments"
        if known:
            assert float(average.removesuffix(" days")) == pytest.approx(sum(known) / len(known), abs=0.01)
        else:
            assert average == "no value"
