"""Report about a child run that ended without reporting: it equals the report that the child would have sent."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from dagwright.activities.ended_runs import outcome_of_document
from dagwright.core.boundary.limits import RESULT_LIMIT_BYTES
from dagwright.core.model.compiled import CompiledNode
from dagwright.protocol.outcomes import sub_plan_failure
from dagwright.workflows.sub_plans import end_of

_BELOW = {"state": "what it did"}


def _document(**fields: Any) -> dict[str, Any]:
    usage = {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3}
    seen = {"files": ["a.txt"], "urls": []}
    return {"status": "completed", "output": 1, "error": None, "usage": usage, "lineage": seen, "notes": [], **fields}


def test_end_of_a_run_is_found_as_the_run_would_have_reported_it() -> None:
    document = {**end_of(_document()), "child_snapshot": _BELOW, "map_batch": {"counts": {"completed": 1}}}
    assert outcome_of_document({**_document(), **document}) == document


@pytest.mark.parametrize("size", [RESULT_LIMIT_BYTES - 10, RESULT_LIMIT_BYTES])
def test_compensation_of_a_run_is_reported_for_every_size_of_its_output(size: int) -> None:
    actual = outcome_of_document(_document(output="x" * size, child_snapshot=_BELOW))
    assert (actual["status"], actual["child_snapshot"]) == ("failed", _BELOW)


def test_failure_of_a_run_that_could_not_report_its_end_says_how_to_compensate_it() -> None:
    failure = ApplicationError(
        "no", _document(status="failed", child_snapshot=_BELOW), type="PlanFailed", non_retryable=True
    )
    assert sub_plan_failure("sub", failure, CompiledNode("sub", kind="plan")).child_snapshot == _BELOW
