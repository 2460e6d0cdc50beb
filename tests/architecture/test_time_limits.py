"""Timeouts of the activities that workflows start: no valid plan can exceed them."""

import ast

from tests.architecture.source_files import place, python_files, syntax_tree


def _limits() -> dict[str, set[str]]:
    """Return the limits of one attempt: how they are written -> the files where they are."""
    found: dict[str, set[str]] = {}
    for path in python_files("workflows"):
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.keyword) and node.arg == "start_to_close_timeout":
                found.setdefault(ast.unparse(node.value), set()).add(place(path))
    return found


def test_attempts_of_activities_end_by_their_node_or_after_longer_than_any_work_takes() -> None:
    assert _limits() == {
        "timedelta(seconds=node.activity_timeout_s)": {"workflows/activity_calls.py"},
        "_BATCH_TIMEOUT": {"workflows/activity_calls.py"},
        "INTERNAL_ATTEMPT": {
            "workflows/blobs.py",
            "workflows/activity_calls.py",
            "workflows/batch_starts.py",
            "workflows/state_transfer.py",
            "workflows/maps.py",
            "workflows/notifying.py",
            "workflows/plan_pages.py",
            "workflows/run_plan.py",
        },
        # A look at other runs, which the next look repeats.
        "timedelta(minutes=2)": {"workflows/sub_plans.py"},
        # The output of a run, at most 1.5 MB; a workflow of a user waits for it.
        "_LOAD_TIMEOUT": {"workflows/child.py"},
        # One request to the server, or a few, which are repeated.
        "timedelta(seconds=30)": {"workflows/call_limit.py", "workflows/ending.py"},
    }
