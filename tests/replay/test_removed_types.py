"""If the workflow type of an open run was removed, the workflow task of the run fails with the reason."""

from pathlib import Path

import pytest
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from dagwright.protocol.conversion import data_converter
from dagwright.workflows.activity_calls import CallInterceptor
from dagwright.workflows.unknown_type import UnknownTypeWorkflow
from tests.replay.test_saved_histories import load_history

_GOOD_HISTORIES = Path(__file__).parent / "histories" / "good"


@pytest.mark.parametrize(("name", "removed_type"), [("chain", "RunPlan"), ("session", "Session")])
async def test_workflow_task_of_a_removed_type_fails_with_advice_to_deploy_a_version_with_the_type(
    name: str, removed_type: str
) -> None:
    replayer = Replayer(
        workflows=[UnknownTypeWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        interceptors=[CallInterceptor()],
        data_converter=data_converter,
    )
    history = load_history(_GOOD_HISTORIES / f"{name}.json")
    failure = str((await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure)
    assert f"unknown workflow type '{removed_type}'" in failure
    assert "this run started on a version that had this type: deploy that version" in failure
