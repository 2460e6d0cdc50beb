"""Saved histories replay with no server: the good ones to the same document, the bad ones not."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.closing_event import recorded_document
from dagwright.history.replay import HistoryReplay
from dagwright.protocol.compact_documents import compact_value, counted_document
from dagwright.protocol.conversion import data_converter
from dagwright.protocol.documents import RunFacts, result_document
from dagwright.protocol.run_snapshot import state_from_text
from dagwright.protocol.scheduler_snapshot import state_to_json
from tests.replay.record import HISTORIES
from tests.replay.scenarios import SCENARIOS
from tests.support.runs import assert_replays, end_of, replay, replayed_document, result_of

_GOOD = sorted((HISTORIES / "good").glob("*.json"))
_RUNS = [path for path in _GOOD if path.stem not in ("session", "session-1", "limit")]
"""Those of runs; the others are of a session and a limit, which the reader does not read."""
_BAD = sorted((HISTORIES / "bad").glob("*.json"))


def load_history(path: Path) -> WorkflowHistory:
    saved = json.loads(path.read_text(encoding="utf-8"))
    return WorkflowHistory.from_json(saved["workflow_id"], saved["history"])


def test_every_scenario_has_a_history() -> None:
    assert sorted({path.stem.partition("-")[0] for path in _GOOD}) == sorted(SCENARIOS)


@pytest.mark.parametrize("path", _GOOD, ids=lambda path: path.stem)
async def test_good_history_replays_to_the_same_end(path: Path) -> None:
    await assert_replays(load_history(path))


@pytest.mark.parametrize("path", _RUNS, ids=lambda path: path.stem)
async def test_feed_knows_every_end_before_the_run_reports_it(path: Path) -> None:
    history = load_history(path)
    projection = HistoryReplay(history.workflow_id, data_converter)
    for event in history.events[:-1]:
        await projection.apply(event)
    await projection.complete_state()
    if path.stem in ("refused", "session-4"):
        assert projection.scheduler is None
        return
    assert projection.scheduler is not None
    known, result = await _states_to_compare(projection.scheduler, history)
    assert result, "nothing is compared"
    assert known == result


async def _states_to_compare(scheduler: RunScheduler, history: WorkflowHistory) -> tuple[Any, Any]:
    """Return the known states of the nodes, and the states that the run had at its end, in one of several forms."""
    recorded = [found for event in history.events if (found := recorded_document(event)) is not None]
    if end_of(history) == "canceled" and not recorded:
        states = {node.id: record.status.value for node, record in scheduler.state.visible_nodes()}
        return states, {"done": "completed", "held": "cancelled", "after": "cancelled"}
    if end_of(history) == "continued":
        (next_input,) = result_of(history)
        return _timeless(state_to_json(scheduler)), _timeless(state_from_text(next_input["snapshot"]["state"]))
    result = await replayed_document(history)
    if result.get("nodes_ref", {}).get("ref") == "history":
        # The items of a map count as nodes, so the states of the records are not enough.
        known = counted_document(result_document(scheduler, RunFacts("run", "1")))
        return known["nodes_ref"]["counts"], result["nodes_ref"]["counts"]
    ends = {name: (node["status"], node["result"], node["error"]) for name, node in result["nodes"].items()}
    return _ends(scheduler, ends), ends


def _timeless(snapshot: Any) -> Any:
    """Return a snapshot as JSON without times, which a run and its readers round differently."""
    if isinstance(snapshot, Mapping):
        return {name: _timeless(part) for name, part in snapshot.items() if name not in ("started_at", "ended_at")}
    return [_timeless(part) for part in snapshot] if isinstance(snapshot, list | tuple) else snapshot


def _ends(scheduler: RunScheduler, names: Iterable[str]) -> dict[str, tuple[str, Any, Any]]:
    ends = {}
    for name in names:
        record = scheduler.record_of(name)
        assert record is not None, name
        error = record.error.to_json() if record.error else None
        ends[name] = (record.status.value, compact_value(record.result, ref=f"node:{name}"), error)
    return ends


def _messages(name: str, signal: str) -> list[Any]:
    """Return the payloads of a signal in a saved history, in order."""
    signals = [event.workflow_execution_signaled_event_attributes for event in load_history(_good(name)).events]
    return [json.loads(each.input.payloads[0].data) for each in signals if each.signal_name == signal]


def _good(name: str) -> Path:
    return HISTORIES / "good" / f"{name}.json"


async def test_streamed_history_has_early_nodes_of_two_attempts_and_a_repaired_plan() -> None:
    entries = [
        (message["attempt"], [node["id"] for node in message["nodes"]]) for message in _messages("streamed", "planned")
    ]
    assert entries == [(1, ["look"]), (2, []), (2, ["sum"])]
    document = await replayed_document(load_history(_good("streamed")))
    assert [*document["nodes"]] == ["plan", "read", "look", "sum", "plan#2", "read#2", "last", "answer"]
    assert document["nodes"]["plan"]["attempts"] == 2
    assert [problem["node_id"] for problem in document["nodes"]["read"]["result"]["problems"]] == ["last"]


async def test_replanned_history_was_planned_again_for_a_failure_and_for_what_an_answer_missed() -> None:
    document = await replayed_document(load_history(_good("replanned")))
    assert [document["nodes"][name]["title"] for name in ("plan#2", "plan#3")] == [
        "planning again (1 of 3): 'a' failed: tool_failed: no",
        "planning again (2 of 3): missing in the answer: the fourth",
    ]
    assert {name: node["status"] for name, node in document["nodes"].items() if node["status"] != "completed"} == {
        "a": "superseded",
        "c": "superseded",
        "answer": "superseded",
    }
    assert document["output"] == "It is 4."


def test_session_history_continues_in_a_new_execution_and_learns_of_a_run_that_does_not_report() -> None:
    histories = [load_history(_good(name)) for name in ("session", "session-1")]
    assert [end_of(history) for history in histories] == ["continued", "completed"]
    (result,) = result_of(histories[1])
    assert [(turn["request"], turn["status"]) for turn in result["turns"]] == [
        ("Turn 1.", "completed"),
        ("Turn 2.", "completed"),
        ("Turn 3.", "failed"),
    ]


def test_budget_history_has_requests_and_two_grants_of_grandchild_runs() -> None:
    claimed = {key for message in _messages("budget", "budget_report") for key in message["reservations"]}
    assert claimed == {"turn1", "4:deep/turn1", "6:deeper/turn1"}
    updates = [
        event.workflow_execution_update_accepted_event_attributes for event in load_history(_good("budget")).events
    ]
    answers = [
        json.loads(update.accepted_request.input.args.payloads[0].data)
        for update in updates
        if update.protocol_instance_id
    ]
    assert [answer["answer"] for answer in answers] == [{"data": {"calls": 1}}, {"data": {"calls": None}}]
    (document,) = result_of(load_history(_good("budget")))
    assert (document["status"], document["usage"]["calls"]) == ("completed", 3)


@pytest.mark.parametrize(
    "name",
    [
        "step_renamed",
        "tool_changed",
        "steps_swapped",
        "step_added",
        "step_dropped",
        "order_changed",
        "timer_dropped",
        "early_nodes_forgotten",
    ],
)
async def test_history_of_another_order_of_commands_does_not_replay(name: str) -> None:
    failure, _ = await replay(load_history(HISTORIES / "bad" / f"{name}.json"))
    assert isinstance(failure, NondeterminismError)


async def test_other_result_replays_and_is_seen_by_comparing() -> None:
    history = load_history(HISTORIES / "bad" / "result_changed.json")
    failure, ends = await replay(history)
    assert failure is None
    assert ends != [result_of(history)]


def test_every_bad_history_is_used() -> None:
    used = {"step_renamed", "tool_changed", "steps_swapped", "step_added", "step_dropped", "order_changed"}
    assert {path.stem for path in _BAD} == used | {"timer_dropped", "result_changed", "early_nodes_forgotten"}
