"""Saved histories replay with no server: the good ones to the same document, the bad ones not."""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from tests.replay.record import HISTORIES
from tests.replay.scenarios import SCENARIOS
from tests.support.runs import assert_replays, replay, result_of

_GOOD = sorted((HISTORIES / "good").glob("*.json"))
_BAD = sorted((HISTORIES / "bad").glob("*.json"))


def _load(path: Path) -> WorkflowHistory:
    saved = json.loads(path.read_text(encoding="utf-8"))
    return WorkflowHistory.from_json(saved["workflow_id"], saved["history"])


def test_every_scenario_has_a_history() -> None:
    assert sorted({path.stem.partition("-")[0] for path in _GOOD}) == sorted(SCENARIOS)


@pytest.mark.parametrize("path", _GOOD, ids=lambda path: path.stem)
async def test_good_history_replays_to_the_same_end(path: Path) -> None:
    await assert_replays(_load(path))


@pytest.mark.parametrize(
    "name",
    ["step_renamed", "tool_changed", "steps_swapped", "step_added", "step_dropped", "order_changed", "timer_dropped"],
)
async def test_history_of_another_order_of_commands_does_not_replay(name: str) -> None:
    failure, _ = await replay(_load(HISTORIES / "bad" / f"{name}.json"))
    assert isinstance(failure, NondeterminismError)


async def test_other_result_replays_and_is_seen_by_comparing() -> None:
    history = _load(HISTORIES / "bad" / "result_changed.json")
    failure, ends = await replay(history)
    assert failure is None
    assert ends != [result_of(history)]


def test_every_bad_history_is_used() -> None:
    used = {"step_renamed", "tool_changed", "steps_swapped", "step_added", "step_dropped", "order_changed"}
    assert {path.stem for path in _BAD} == used | {"timer_dropped", "result_changed"}
