"""Timeouts of the activities that workflows start. Each timeout must exceed the longest work of a valid plan."""

import ast

from tests.architecture.source_files import python_files, relative_path, syntax_tree


def _attempt_timeouts() -> dict[str, set[str]]:
    """Return the timeouts of one attempt: source expression -> the files that contain it."""
    files: dict[str, set[str]] = {}
    for path in python_files("workflows"):
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.keyword) and node.arg == "start_to_close_timeout":
                files.setdefault(ast.unparse(node.value), set()).add(relative_path(path))
    return files


def test_workflows_use_only_known_activity_timeouts() -> None:
    assert _attempt_timeouts() == {
        "timedelta(seconds=node.activity_timeout_s)": {"workflows/activity_calls.py"},
        "_REGION_BATCH_TIMEOUT": {"workflows/activity_calls.py"},
        "INTERNAL_ATTEMPT_TIMEOUT": {
            "workflows/blobs.py",
            "workflows/activity_calls.py",
            "workflows/batch_starts.py",
            "workflows/state_transfer.py",
            "workflows/maps.py",
            "workflows/notifying.py",
            "workflows/plan_pages.py",
            "workflows/run_plan.py",
        },
        # This activity queries other runs; after a timeout, the next poll queries them again.
        "timedelta(minutes=2)": {"workflows/sub_plans.py"},
        # This activity loads the output of a run, at most 1.5 MB, while a user's workflow waits.
        "_LOAD_TIMEOUT": {"workflows/child.py"},
        # These activities make one or a few requests to the server, and are retried.
        "timedelta(seconds=30)": {"workflows/call_limit.py", "workflows/ending.py"},
    }
