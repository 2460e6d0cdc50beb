"""What queries answer about runs that hold more than an answer can."""

from typing import Any

from dagwright.contracts.answers import graph_answer, node_answer, status_answer
from dagwright.contracts.documents import RunFacts, encoded_size, graph_document, result_document
from tests.unit.plan.building import node, scheduler_of, started

_MOST = 1_500_000


def test_small_graph_is_told_whole() -> None:
    scheduler = scheduler_of(node("a"), node("b", "a"))
    assert graph_answer(scheduler) == graph_document(scheduler)


def test_graph_of_many_parts_is_told_by_its_counts() -> None:
    scheduler = scheduler_of(*(node(f"n{number}", *(["n0"] if number else [])) for number in range(5_001)))
    started(scheduler)
    message = (
        "5,001 nodes and 5,000 edges are too large for a query; `dagwright graph RUN` draws them, and "
        "`dagwright graph RUN --format json` lists all"
    )
    assert graph_answer(scheduler) == {
        "nodes": [],
        "edges": [],
        "counts": {"pending": 5_000, "running": 1},
        "note": message,
    }


def test_graph_of_long_titles_is_told_by_its_counts() -> None:
    scheduler = scheduler_of(*(node(f"n{number}", title="x" * 3_000) for number in range(500)))
    assert graph_answer(scheduler)["counts"] == {"ready": 500}


def test_node_that_needs_very_many_is_told_with_the_first_of_them() -> None:
    names = [f"{number}{'x' * 150}" for number in range(8_000)]
    scheduler = scheduler_of(*(node(name) for name in names), node("end", *names))
    answer = node_answer(scheduler, "end")
    assert answer is not None
    kept = answer["lineage"]["inputs"]
    assert (kept, 2_000 < len(kept) < 3_000) == (names[: len(kept)], True)
    assert answer["note"] == "too large for a query: lists are cut; `dagwright node RUN 'end' --full` tells all of it"
    assert encoded_size(answer) < _MOST


def test_node_with_a_large_result_is_told_with_a_reference() -> None:
    scheduler = scheduler_of(node("a", for_each=list(range(300))))
    for task in started(scheduler):
        scheduler.complete(task.id, "x" * 8_000, at=1.0)
    answer = node_answer(scheduler, "a")
    assert answer is not None
    assert (answer["result"]["ref"], answer["result"]["bytes"]) == ("node:a", 300 * 8_003 + 1)
    small = node_answer(scheduler, "a[7]")
    assert small is not None
    assert (small["result"], "note" in small) == ("x" * 8_000, False)
    assert node_answer(scheduler, "b") is None


def test_status_with_very_many_requests_is_told_with_the_first_of_them() -> None:
    scheduler = scheduler_of(node("a"))
    document = result_document(scheduler, RunFacts("run", "id"))
    assert status_answer(document) == document
    requests: list[dict[str, Any]] = [{"id": f"r{number}", "prompt": "x" * 4_000} for number in range(1_000)]
    answer = status_answer({**document, "waiting_for": requests})
    assert answer["waiting_for"] == requests[:99]
    told = "901 of 1,000 requests are left out, which are too large for a query; `dagwright inbox` lists all"
    assert answer["notes"] == [{"code": "too_large", "node": None, "message": told}]
