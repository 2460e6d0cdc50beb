"""Replay of saved histories without a server.

A good history gives the same document. The replay of a bad history fails or gives another document.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.closing_event import recorded_document
from dagwright.history.replay import HistoryReplay
from dagwright.protocol.compact_documents import compact_value, replace_nodes_by_counts
from dagwright.protocol.conversion import data_converter
from dagwright.protocol.documents import RunFacts, result_document
from dagwright.protocol.run_snapshot import state_from_text
from dagwright.protocol.scheduler_snapshot import state_to_json
from tests.property.plans import without_times
from tests.replay.record import HISTORIES
from tests.replay.scenarios import SCENARIOS
from tests.support.runs import assert_replays, end_of, replay, replayed_document, result_of

_GOOD_PATHS = sorted((HISTORIES / "good").glob("*.json"))
_RUN_PATHS = [path for path in _GOOD_PATHS if path.stem not in ("session", "session-1", "call_limit")]
"""Histories of runs. `HistoryReplay` does not support the histories of a session and of a call limit."""
_BAD_PATHS = sorted((HISTORIES / "bad").glob("*.json"))


def load_history(path: Path) -> WorkflowHistory:
    saved_history = json.loads(path.read_text(encoding="utf-8"))
    return WorkflowHistory.from_json(saved_history["workflow_id"], saved_history["history"])


def test_every_scenario_has_a_history() -> None:
    assert sorted({path.stem.partition("-")[0] for path in _GOOD_PATHS}) == sorted(SCENARIOS)


@pytest.mark.parametrize("path", _GOOD_PATHS, ids=lambda path: path.stem)
async def test_good_history_replays_to_the_same_document(path: Path) -> None:
    await assert_replays(load_history(path))


@pytest.mark.parametrize("path", _RUN_PATHS, ids=lambda path: path.stem)
async def test_reader_has_every_node_status_before_the_closing_event(path: Path) -> None:
    history = load_history(path)
    reader = HistoryReplay(history.workflow_id, data_converter)
    for event in history.events[:-1]:
        await reader.apply(event)
    await reader.complete_state()
    # The input of these runs is invalid, so they have no scheduler.
    if path.stem in ("rejected", "session-4"):
        assert reader.scheduler is None
        return
    assert reader.scheduler is not None
    actual, expected = await _states_to_compare(reader.scheduler, history)
    assert expected, "nothing is compared"
    assert actual == expected


async def _states_to_compare(scheduler: RunScheduler, history: WorkflowHistory) -> tuple[Any, Any]:
    """Return the node states of the scheduler, and the expected states from the end of the history."""
    recorded_documents = [document for event in history.events if (document := recorded_document(event)) is not None]
    if end_of(history) == "canceled" and not recorded_documents:
        states = {node.id: record.status.value for node, record in scheduler.state.visible_nodes()}
        return states, {"done": "completed", "held": "cancelled", "after": "cancelled"}
    if end_of(history) == "continued":
        (next_input,) = result_of(history)
        # The reader rounds times differently from the run.
        return without_times(state_to_json(scheduler)), without_times(state_from_text(next_input["snapshot"]["state"]))
    result = await replayed_document(history)
    if result.get("nodes_ref", {}).get("ref") == "history":
        # This document has no nodes, only the number of nodes and items by status.
        reader_document = replace_nodes_by_counts(result_document(scheduler, RunFacts("run", "1")))
        return reader_document["nodes_ref"]["counts"], result["nodes_ref"]["counts"]
    expected_states = {name: (node["status"], node["result"], node["error"]) for name, node in result["nodes"].items()}
    return _states_of(scheduler, expected_states), expected_states


def _states_of(scheduler: RunScheduler, names: Iterable[str]) -> dict[str, tuple[str, Any, Any]]:
    states = {}
    for name in names:
        record = scheduler.record_of(name)
        assert record is not None, name
        error = record.error.to_json() if record.error else None
        states[name] = (record.status.value, compact_value(record.result, ref=f"node:{name}"), error)
    return states


def _signal_payloads(name: str, signal: str) -> list[Any]:
    """Return the payloads of a signal in a saved history, in order."""
    signals = [event.workflow_execution_signaled_event_attributes for event in load_history(_good_path(name)).events]
    return [json.loads(attributes.input.payloads[0].data) for attributes in signals if attributes.signal_name == signal]


def _good_path(name: str) -> Path:
    return HISTORIES / "good" / f"{name}.json"


async def test_streamed_history_has_nodes_of_two_attempts_and_a_repair() -> None:
    messages = _signal_payloads("streamed", "planned")
    entries = [(message["attempt"], [node["id"] for node in message["nodes"]]) for message in messages]
    assert entries == [(1, ["look"]), (2, []), (2, ["sum"])]
    document = await replayed_document(load_history(_good_path("streamed")))
    assert [*document["nodes"]] == ["plan", "read", "look", "sum", "plan#2", "read#2", "last", "answer"]
    assert document["nodes"]["plan"]["attempts"] == 2
    assert [problem["node_id"] for problem in document["nodes"]["read"]["result"]["problems"]] == ["last"]


async def test_replanned_history_has_replans_for_a_failure_and_for_missing_information() -> None:
    document = await replayed_document(load_history(_good_path("replanned")))
    assert [document["nodes"][name]["title"] for name in ("plan#2", "plan#3")] == [
        "planning again (1 of 3): 'a' failed: tool_failed: no",
        "planning again (2 of 3): missing in the answer: the fourth",
    ]
    statuses = {name: node["status"] for name, node in document["nodes"].items() if node["status"] != "completed"}
    assert statuses == dict.fromkeys(("a", "c", "answer"), "superseded")
    assert document["output"] == "It is 4."


def test_session_history_continues_as_new_and_has_a_failed_turn() -> None:
    histories = [load_history(_good_path(name)) for name in ("session", "session-1")]
    assert [end_of(history) for history in histories] == ["continued", "completed"]
    (result,) = result_of(histories[1])
    statuses = [(turn["request"], turn["status"]) for turn in result["turns"]]
    assert statuses == [("Turn 1.", "completed"), ("Turn 2.", "completed"), ("Turn 3.", "failed")]


def test_budget_history_has_reservations_of_grandchild_runs_and_two_raised_limits() -> None:
    reports, history = _signal_payloads("budget", "budget_report"), load_history(_good_path("budget"))
    reservation_keys = {key for message in reports for key in message["reservations"]}
    # `4:deep/turn1` is the call `turn1` in the child run of the node `deep`, whose ID has 4 characters.
    assert reservation_keys == {"turn1", "4:deep/turn1", "6:deeper/turn1"}
    updates = [event.workflow_execution_update_accepted_event_attributes for event in history.events]
    requests = [update.accepted_request for update in updates if update.protocol_instance_id]
    answers = [json.loads(request.input.args.payloads[0].data)["answer"] for request in requests]
    assert answers == [{"data": {"calls": 1}}, {"data": {"calls": None}}]
    (document,) = result_of(history)
    assert (document["status"], document["usage"]["calls"]) == ("completed", 3)


_HISTORIES_WITH_CHANGED_COMMANDS = (
    *("step_renamed", "tool_changed", "steps_swapped", "step_added", "step_dropped", "order_changed"),
    *("timer_dropped", "early_nodes_forgotten"),
)


@pytest.mark.parametrize("name", _HISTORIES_WITH_CHANGED_COMMANDS)
async def test_history_with_changed_commands_does_not_replay(name: str) -> None:
    failure, _ = await replay(load_history(HISTORIES / "bad" / f"{name}.json"))
    assert isinstance(failure, NondeterminismError)


async def test_history_with_a_changed_result_replays_to_another_result() -> None:
    history = load_history(HISTORIES / "bad" / "result_changed.json")
    failure, results = await replay(history)
    assert failure is None
    assert results != [result_of(history)]


def test_every_bad_history_is_tested() -> None:
    assert {path.stem for path in _BAD_PATHS} == {*_HISTORIES_WITH_CHANGED_COMMANDS, "result_changed"}
