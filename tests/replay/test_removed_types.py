"""A run in flight whose workflow type was removed fails its workflow task with a clear error, and is not ended."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from dagwright.protocol.conversion import data_converter
from dagwright.workflows.activity_calls import CallInterceptor
from dagwright.workflows.unknown_type import UnknownTypeWorkflow
from tests.replay.test_saved_histories import load_history

_GOOD = Path(__file__).parent / "histories" / "good"


async def _failure_of(history: WorkflowHistory) -> str:
    replayer = Replayer(
        workflows=[UnknownTypeWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        interceptors=[CallInterceptor()],
        data_converter=data_converter,
    )
    outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return str(outcome.replay_failure)


@pytest.mark.parametrize(("name", "removed"), [("chain", "RunPlan"), ("session", "Session")])
async def test_run_of_a_removed_type_is_kept_for_the_version_that_has_it(name: str, removed: str) -> None:
    failure = await _failure_of(load_history(_GOOD / f"{name}.json"))
    assert f"unknown workflow type '{removed}'" in failure
    assert "this run started on a version that had it: deploy that version" in failure
