"""The outcome of a child run that ended without a report is read from the result document of the child run."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from dagwright.activities.ended_runs import outcome_of_document
from dagwright.core.boundary.limits import RESULT_LIMIT_BYTES
from dagwright.core.model.compiled import CompiledNode
from dagwright.protocol.outcomes import sub_plan_failure
from dagwright.workflows.sub_plans import end_of

_CHILD_SNAPSHOT = {"state": "what it did"}


def _document(**fields: Any) -> dict[str, Any]:
    usage = {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3}
    results = {"status": "completed", "output": 1, "error": None, "usage": usage}
    return {**results, "lineage": {"files": ["a.txt"], "urls": []}, "notes": [], **fields}


def test_outcome_in_the_result_document_equals_the_report_of_the_run() -> None:
    report = {**end_of(_document()), "child_snapshot": _CHILD_SNAPSHOT, "map_batch": {"counts": {"completed": 1}}}
    assert outcome_of_document({**_document(), **report}) == report


# The limit is for the whole outcome, which has other fields besides the output.
@pytest.mark.parametrize("size", [RESULT_LIMIT_BYTES - 10, RESULT_LIMIT_BYTES])
def test_outcome_of_a_too_large_output_is_a_failure_with_the_child_snapshot(size: int) -> None:
    actual = outcome_of_document(_document(output="x" * size, child_snapshot=_CHILD_SNAPSHOT))
    assert (actual["status"], actual["child_snapshot"]) == ("failed", _CHILD_SNAPSHOT)


def test_failure_of_a_child_run_has_its_snapshot_for_compensation() -> None:
    failure = ApplicationError(
        "no", _document(status="failed", child_snapshot=_CHILD_SNAPSHOT), type="PlanFailed", non_retryable=True
    )
    assert sub_plan_failure("sub", failure, CompiledNode("sub", kind="plan")).child_snapshot == _CHILD_SNAPSHOT
