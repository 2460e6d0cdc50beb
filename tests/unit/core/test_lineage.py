"""Lineage of the reads of nodes: bounded, without duplicates, and the same after continue-as-new."""

import json
from typing import Any

import pytest

from dagwright.core.model.lineage import (
    LOCATION_CHARACTERS,
    MAX_ENTRIES,
    MAX_RUN_ENTRIES,
    Lineage,
    RunLineage,
    lineage_from_json,
    lineage_of_locations,
    run_lineage_from_json,
)
from dagwright.core.model.states import Attempt
from tests.support.plan_building import lineage_of, node, resumed, started_run


def test_places_are_kept_in_order_once_and_within_limits() -> None:
    seen = lineage_of_locations(["b.txt", "https://x.example/a", "a.txt", "b.txt", "https://x.example/a"])
    assert seen.to_document() == {"files": ["b.txt", "a.txt"], "urls": ["https://x.example/a"]}
    assert lineage_from_json(json.loads(json.dumps(seen.to_document()))).to_document() == seen.to_document()
    seen = lineage_of_locations([f"f{number}" for number in range(MAX_ENTRIES + 7)])
    assert (len(seen.files), seen.omitted) == (MAX_ENTRIES, 7)
    assert seen.with_more(lineage_of_locations(["more"])).omitted == 8
    [long] = lineage_of_locations(["x" * 1_000]).files
    assert (len(long), long[-1]) == (LOCATION_CHARACTERS, "…")


@pytest.mark.parametrize("odd", [None, 5, [], {"files": 5}, {"files": [5], "tool_calls": [5]}, {"omitted": True}])
def test_invalid_lineage_reports_nothing(odd: Any) -> None:
    assert not lineage_from_json(odd)


def test_run_keeps_so_many_places_and_calls_and_counts_the_others() -> None:
    book = RunLineage()
    for number in range(MAX_RUN_ENTRIES + 5):
        book.add(f"n{number}", Lineage(files=[f"f{number}"]))
    assert (book.count, len(book.tasks), book.omitted) == (MAX_RUN_ENTRIES, MAX_RUN_ENTRIES, 5)
    assert run_lineage_from_json(json.loads(json.dumps(book.to_json()))).total() == book.total()
    agent = Lineage(
        model_calls=[f"turn{number}" for number in range(MAX_ENTRIES)],
        tool_calls=[
            {"node_id": f"turn1.{number}", "tool": "t", "status": "completed"} for number in range(MAX_ENTRIES)
        ],
    )
    fitting = MAX_RUN_ENTRIES // (2 * MAX_ENTRIES)
    book = RunLineage()
    for number in range(fitting + 3):
        book.add(f"n{number}", agent)
    assert (len(book.tasks), book.omitted) == (fitting, 3 * 2 * MAX_ENTRIES)
    assert run_lineage_from_json(json.loads(json.dumps(book.to_json()))) == book


def test_all_tries_of_a_node_count_and_are_carried_on() -> None:
    scheduler = started_run(node("a", on_error="ask"), node("b", "a"))
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(lineage=lineage_of_locations(["a.txt"])))
    lineage_of(scheduler).add("a", lineage_of_locations(["b.txt", "a.txt"]))
    following = lineage_of(resumed(scheduler))
    assert {name: seen.to_document() for name, seen in following.tasks.items()} == {"a": {"files": ["a.txt", "b.txt"]}}
