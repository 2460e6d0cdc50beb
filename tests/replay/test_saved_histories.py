"""Saved histories replay with no server: the good ones to the same document, the bad ones not."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from dagwright.contracts.conversion import data_converter
from dagwright.contracts.documents import compact_value
from dagwright.plan.scheduler import Scheduler
from dagwright.projection import Projection
from tests.replay.record import HISTORIES
from tests.replay.scenarios import SCENARIOS
from tests.support.runs import assert_replays, end_of, replay, result_of

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


@pytest.mark.parametrize("path", _GOOD, ids=lambda path: path.stem)
async def test_feed_knows_every_end_before_the_run_tells_it(path: Path) -> None:
    history = _load(path)
    projection = Projection(history.workflow_id, data_converter)
    for event in history.events[:-1]:
        await projection.take(event)
    projection.settle()
    told = result_of(history)[0]["nodes"] if end_of(history) in ("completed", "failed") else {}
    assert _ends(projection.scheduler, told) == {
        name: (node["status"], node["result"], node["error"]) for name, node in told.items()
    }


def _ends(scheduler: Scheduler | None, names: Iterable[str]) -> dict[str, tuple[str, Any, Any]]:
    ends = {}
    for name in names:
        record = scheduler.record_of(name) if scheduler is not None else None
        assert record is not None, name
        error = record.error.to_json() if record.error else None
        ends[name] = (record.status.value, compact_value(record.result, ref=f"node:{name}"), error)
    return ends


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
