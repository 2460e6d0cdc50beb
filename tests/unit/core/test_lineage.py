"""Lineage (files, URLs and calls that led to a result): its limits, and its state after continue-as-new."""

import json
from typing import Any

import pytest

from dagwright.core.model.lineage import (
    LOCATION_CHARACTERS,
    MAX_ENTRIES,
    MAX_RUN_ENTRIES,
    LineageEntries,
    RunLineage,
    lineage_from_json,
    run_lineage_from_json,
)
from dagwright.core.model.states import Attempt
from dagwright.protocol.lineage import lineage_of_locations
from tests.support.plan_building import lineage_of, node, restored_scheduler, started_run


def restore_lineage(run_lineage: RunLineage) -> RunLineage:
    return run_lineage_from_json(json.loads(json.dumps(run_lineage.to_json())))


def test_locations_are_distinct_in_order_of_first_mention_and_limited() -> None:
    lineage = lineage_of_locations(["b.txt", "https://x.example/a", "a.txt", "b.txt", "https://x.example/a"])
    assert lineage.to_document() == {"files": ["b.txt", "a.txt"], "urls": ["https://x.example/a"]}
    assert lineage_from_json(json.loads(json.dumps(lineage.to_document()))).to_document() == lineage.to_document()
    lineage = lineage_of_locations([f"f{number}" for number in range(MAX_ENTRIES + 7)])
    assert (len(lineage.files), lineage.omitted) == (MAX_ENTRIES, 7)
    assert lineage.merged_with(lineage_of_locations(["more"])).omitted == 8
    [long_name] = lineage_of_locations(["x" * 1_000]).files
    assert (len(long_name), long_name[-1]) == (LOCATION_CHARACTERS, "…")


@pytest.mark.parametrize("encoded", [None, 5, [], {"files": 5}, {"files": [5], "tool_calls": [5]}, {"omitted": True}])
def test_invalid_lineage_is_decoded_as_empty(encoded: Any) -> None:
    assert not lineage_from_json(encoded)


def test_run_lineage_is_limited_and_counts_omitted_entries() -> None:
    run_lineage = RunLineage()
    for number in range(MAX_RUN_ENTRIES + 5):
        run_lineage.add(f"n{number}", LineageEntries(files=[f"f{number}"]))
    assert (run_lineage.count, len(run_lineage.tasks), run_lineage.omitted) == (MAX_RUN_ENTRIES, MAX_RUN_ENTRIES, 5)
    assert restore_lineage(run_lineage).files_and_urls() == run_lineage.files_and_urls()
    calls = [{"node_id": f"turn1.{number}", "tool": "t", "status": "completed"} for number in range(MAX_ENTRIES)]
    turns = [f"turn{number}" for number in range(MAX_ENTRIES)]
    agent_entries = LineageEntries(model_calls=turns, tool_calls=calls)
    fitting_agent_count = MAX_RUN_ENTRIES // (2 * MAX_ENTRIES)
    run_lineage = RunLineage()
    for number in range(fitting_agent_count + 3):
        run_lineage.add(f"n{number}", agent_entries)
    assert (len(run_lineage.tasks), run_lineage.omitted) == (fitting_agent_count, 3 * 2 * MAX_ENTRIES)
    assert restore_lineage(run_lineage) == run_lineage


def test_lineage_of_all_attempts_survives_continue_as_new() -> None:
    scheduler = started_run(node("a", on_error="ask"), node("b", "a"))
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(lineage=lineage_of_locations(["a.txt"])))
    lineage_of(scheduler).add("a", lineage_of_locations(["b.txt", "a.txt"]))
    restored_lineage = lineage_of(restored_scheduler(scheduler))
    documents = {task_id: lineage.to_document() for task_id, lineage in restored_lineage.tasks.items()}
    assert documents == {"a": {"files": ["a.txt", "b.txt"]}}
