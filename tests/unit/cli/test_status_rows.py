"""Which nodes `status` lists, and what it says while a worker starts."""

from typing import Any

from dagwright.interfaces.cli.looking import without_early_alarm
from dagwright.interfaces.cli.status_rows import status_rows


def _nodes(count: int) -> dict[str, Any]:
    states = {3: "failed", 7: "running", 8: "blocked"}
    items = {f"order[{number}]": {"status": states.get(number, "completed")} for number in range(count)}
    return {"order": {"status": "running"}, **items, "sum": {"status": "pending"}}


def _node_of(name: str) -> str:
    return name.partition("[")[0]


def test_large_map_shows_counts_and_what_failed_or_is_open() -> None:
    rows = status_rows(_nodes(300), _node_of, is_all=False)
    assert rows.counts == ["order: 300 items: 1 blocked, 1 failed, 1 running, 297 completed"]
    assert rows.names == ["order", "order[3]", "order[7]", "order[8]", "sum"]
    assert rows.left_out == 297


def test_small_map_and_all_show_every_item() -> None:
    for nodes, is_all in ((_nodes(20), False), (_nodes(300), True)):
        rows = status_rows(nodes, _node_of, is_all=is_all)
        assert (rows.counts, rows.names, rows.left_out) == ([], [*nodes], 0)


def test_worker_that_starts_is_no_alarm() -> None:
    document = {
        "nodes": {
            "a": {"status": "waiting", "reason": "no worker for mail"},
            "b": {"status": "pending", "reason": None},
        },
        "notes": [
            {"code": "no_worker", "node": None, "message": "no worker serves the queue"},
            {"code": "other", "node": None, "message": "kept"},
        ],
    }
    told = without_early_alarm(document)
    words = "the worker in the background is starting"
    assert [node["reason"] for node in told["nodes"].values()] == [words, None]
    assert [(note["code"], note["message"]) for note in told["notes"]] == [
        ("other", "kept"),
        ("worker_starting", words),
    ]
