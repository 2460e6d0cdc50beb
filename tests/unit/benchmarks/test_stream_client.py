"""Detection of lost, duplicate and unordered events in the benchmark of streams."""

import pytest

from benchmarks.stream_client import StreamContent, problem_with


@pytest.mark.parametrize(
    ("statuses", "is_correct"),
    [
        (["running", "completed"], True),
        # A node waits until a worker accepts its activity.
        (["running", "waiting", "running", "completed"], True),
        (["running", "waiting", "running", "waiting", "running", "completed"], True),
        (["running", "running", "completed"], False),
        (["running", "waiting", "waiting", "running", "completed"], False),
        (["running", "completed", "completed"], False),
        (["running", "completed", "running"], False),
        (["running", "waiting", "running"], False),
    ],
)
def test_lost_duplicate_or_unordered_status_is_a_problem(statuses: list[str], *, is_correct: bool) -> None:
    content = StreamContent(statuses_by_node={"sum": statuses}, ids=["1-1", "1-2e"], end_count=1)
    assert (problem_with(content) is None) == is_correct
