"""One name for a run and one for a session, in all that the API tells."""

from dagwright.interfaces.http.naming import named_run


def test_run_is_called_the_same_wherever_it_stands_and_values_of_plans_are_left() -> None:
    made = {"workflow_id": "run-0", "node": "a"}
    value = {"workflow_id": "w", "run_id": "r", "session": "s"}
    node = {
        "result": value,
        "lineage": {"inputs": [], "reused": made, "cached": {**made, "made_at": "now"}},
        "failed_items": [{"chunk": 0, "workflow_id": "run-1-a-0"}],
    }
    document = {"workflow_id": "run-1", "run_id": "3c4e", "output": value, "nodes": {"a": node}}
    asked = [{"id": "check", "workflow_id": "run-1", "arguments": value}]
    told = named_run({**document, "waiting_for": asked})
    assert told == {
        "run_id": "run-1",
        "execution_id": "3c4e",
        "output": value,
        "nodes": {
            "a": {
                "result": value,
                "lineage": {
                    "inputs": [],
                    "reused": {"run_id": "run-0", "node": "a"},
                    "cached": {"run_id": "run-0", "node": "a", "made_at": "now"},
                },
                "failed_items": [{"chunk": 0, "run_id": "run-1-a-0"}],
            }
        },
        "waiting_for": [{"id": "check", "run_id": "run-1", "arguments": value}],
    }
