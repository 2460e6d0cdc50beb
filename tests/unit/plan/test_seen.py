"""What nodes have looked at: bounded, each thing once, the same after it was carried on."""

import json
from typing import Any

import pytest

from dagwright.core.model.lineage import (
    MOST_OF_RUN,
    MOST_READ,
    PLACE_CHARACTERS,
    Seen,
    SeenBook,
    seen_book_from_json,
    seen_from_json,
    seen_of_places,
)
from dagwright.core.model.states import Attempt
from tests.unit.plan.building import lineage_of, node, resumed, started_run


def test_places_are_kept_in_order_once_and_within_limits() -> None:
    seen = seen_of_places(["b.txt", "https://x.example/a", "a.txt", "b.txt", "https://x.example/a"])
    assert seen.told() == {"files": ["b.txt", "a.txt"], "urls": ["https://x.example/a"]}
    assert seen_from_json(json.loads(json.dumps(seen.told()))).told() == seen.told()
    seen = seen_of_places([f"f{number}" for number in range(MOST_READ + 7)])
    assert (len(seen.files), seen.left_out) == (MOST_READ, 7)
    assert seen.with_more(seen_of_places(["more"])).left_out == 8
    [long] = seen_of_places(["x" * 1_000]).files
    assert (len(long), long[-1]) == (PLACE_CHARACTERS, "…")


@pytest.mark.parametrize("odd", [None, 5, [], {"files": 5}, {"files": [5], "tool_calls": [5]}, {"left_out": True}])
def test_what_is_no_lineage_reports_nothing(odd: Any) -> None:
    assert not seen_from_json(odd)


def test_run_keeps_so_many_places_and_calls_and_counts_the_others() -> None:
    book = SeenBook()
    for number in range(MOST_OF_RUN + 5):
        book.add(f"n{number}", Seen(files=[f"f{number}"]))
    assert (book.count, len(book.tasks), book.left_out) == (MOST_OF_RUN, MOST_OF_RUN, 5)
    assert seen_book_from_json(json.loads(json.dumps(book.to_json()))).total() == book.total()
    agent = Seen(
        model_calls=[f"turn{number}" for number in range(MOST_READ)],
        tool_calls=[{"node": f"turn1.{number}", "tool": "t", "status": "completed"} for number in range(MOST_READ)],
    )
    fitting = MOST_OF_RUN // (2 * MOST_READ)
    book = SeenBook()
    for number in range(fitting + 3):
        book.add(f"n{number}", agent)
    assert (len(book.tasks), book.left_out) == (fitting, 3 * 2 * MOST_READ)
    assert seen_book_from_json(json.loads(json.dumps(book.to_json()))) == book


def test_all_tries_of_a_node_count_and_are_carried_on() -> None:
    scheduler = started_run(node("a", on_error="ask"), node("b", "a"))
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(seen=seen_of_places(["a.txt"])))
    lineage_of(scheduler).add("a", seen_of_places(["b.txt", "a.txt"]))
    following = lineage_of(resumed(scheduler))
    assert {name: seen.told() for name, seen in following.tasks.items()} == {"a": {"files": ["a.txt", "b.txt"]}}
