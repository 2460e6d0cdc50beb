"""Roles and slots of a worker, as options of the SDK's worker."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.worker import Worker, WorkerTuner

from dagwright.settings import Settings, SettingsError, load_settings
from dagwright.worker.capacity import DEFAULT_CAPACITY, WorkerCapacity, capacity_of


def test_settings_determine_role_and_slots_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert capacity_of(Settings(state_dir=tmp_path)) == DEFAULT_CAPACITY
    for name, value in (("SERVE", "Tools"), ("ACTIVITY_SLOTS", "3"), ("CACHED_RUNS", "0"), ("TARGET_CPU", "0.8")):
        monkeypatch.setenv(f"DAGWRIGHT_{name}", value)
    assert capacity_of(load_settings()) == WorkerCapacity("tools", activity_slots=3, cached_runs=0, target_cpu=0.8)
    monkeypatch.setenv("DAGWRIGHT_SERVE", "both")
    with pytest.raises(SettingsError, match=r"^DAGWRIGHT_SERVE cannot be used: .*'workflows' or 'tools', got 'both'$"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "accepted_values", "rejected_values"),
    [
        ("WORKFLOW_SLOTS", ["2", "1000"], ["-1", "0", "1", "1001", "8.5"]),
        ("ACTIVITY_SLOTS", ["1", "10000"], ["-1", "0", "10001", "1e9", "many"]),
        ("CACHED_RUNS", ["0", "100000"], ["-1", "100001"]),
        ("ACTIVITY_POLLERS", ["1", "1000"], ["-1", "0", "1001"]),
        ("TARGET_CPU", ["0.0001", "1"], ["-1", "0", "1.5", "nan", "inf"]),
        ("TARGET_MEMORY", ["0.0001", "1"], ["-1", "0", "1.5", "nan", "80"]),
    ],
)
def test_invalid_capacity_is_reported_with_its_variable_and_value(
    name: str, accepted_values: list[str], rejected_values: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in accepted_values:
        monkeypatch.setenv(f"DAGWRIGHT_{name}", value)
        # The SDK checks the targets for CPU and memory when the tuner is built.
        assert capacity_of(load_settings()).worker_options()
    for value in rejected_values:
        monkeypatch.setenv(f"DAGWRIGHT_{name}", value)
        with pytest.raises(SettingsError, match=rf"^DAGWRIGHT_{name} cannot be used: [^\n]+, got '{value}'$"):
            load_settings()


@pytest.mark.parametrize("role", ["all", "workflows", "tools"])
def test_worker_has_fixed_slots_without_a_target_and_a_tuner_with_a_target(role: Any) -> None:
    fixed_slot_options = WorkerCapacity(role, workflow_slots=5, activity_slots=7, pollers=3).worker_options()
    activity_polls = {} if role == "workflows" else {"max_concurrent_activity_task_polls": 3}
    slots = {"max_concurrent_workflow_tasks": 5, "max_concurrent_activities": 7}
    # One of the 20 polls for workflow tasks is for runs that are not in the cache of the worker.
    workflow_polls = {"max_concurrent_workflow_task_polls": 20, "nonsticky_to_sticky_poll_ratio": 0.05}
    assert fixed_slot_options == {"max_cached_workflows": 1000, **workflow_polls, **activity_polls, **slots}
    tuner_options = WorkerCapacity(role, activity_slots=2, target_memory=0.5).worker_options()
    assert isinstance(tuner_options["tuner"], WorkerTuner)
    # The SDK rejects fixed slots together with a tuner.
    assert not {*slots} & {*tuner_options}
    assert {*fixed_slot_options, *tuner_options} <= {*Worker.__init__.__annotations__}
