"""Results of calls: the state of a run as a document and as its text."""

import json
from types import SimpleNamespace
from typing import Any

from dagwright.interfaces.mcp.elicitation import form_for
from dagwright.interfaces.mcp.tool_results import run_result


def _document(status: str, **fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"title": None, "output": None, "error": None, "nodes": {}, "waiting_for": [], "notes": []}
    return {"run_id": "w", "status": status, **plain, **fields}


def _message_of(status: str, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = run_result(_document(status, **fields)).structured_content
    return found


def test_text_is_the_document() -> None:
    result = run_result(_document("completed", output={"é": 1}))
    [text] = result.content
    assert json.loads(getattr(text, "text", "")) == result.structured_content
    assert (result.structured_content["output"], result.is_error) == ({"é": 1}, False)


def test_only_failed_and_cancelled_runs_are_errors_and_only_ended_ones_have_an_output() -> None:
    errors = {"completed": False, "completed_with_failures": False, "failed": True, "cancelled": True, "running": False}
    assert {status: run_result(_document(status)).is_error for status in errors} == errors
    assert "output" not in _message_of("running")
    assert _message_of("failed")["output"] is None
    message = run_result(_document("running"), prefix="'x' is answered.").structured_content["message"]
    assert message.startswith("'x' is answered. The run continues. Call get_run ")


def test_failed_run_reports_why_and_which_nodes() -> None:
    error = {"code": "boom", "message": "it broke", "retryable": False}
    nodes = {"a": {"status": "failed", "error": error}, "b": {"status": "blocked", "error": None}}
    result = _message_of("failed", error=error, nodes=nodes, nodes_ref={"ref": "regions", "counts": {"completed": 7}})
    assert result["message"] == "The run failed: it broke."
    assert result["failures"] == [{"node_id": "a", "code": "boom", "message": "it broke"}]
    assert result["node_counts"] == {"blocked": 1, "completed": 7, "failed": 1}


def test_first_of_many_requests_names_the_way_to_answer() -> None:
    asked = [
        {"request_id": "x", "type": "SELECTION", "prompt": "Which?"},
        {"request_id": "y", "type": "APPROVAL", "prompt": "Go?"},
    ]
    result = _message_of("waiting", waiting_for=asked)
    assert result["message"] == (
        "The run waits for people: Which? To answer, call answer_feedback with run_id 'w', request_id 'x' and "
        "selected. 1 more are under `waiting_for`."
    )


def test_request_of_the_inbox_has_no_form() -> None:
    asked = {"request_id": "x", "type": "APPROVAL", "prompt": "Go?", "channel": "inbox"}
    assert _message_of("waiting", waiting_for=[asked])["message"] == (
        "The run waits for people: Go? A person must answer in the inbox, with `dagwright feedback w x`, in the "
        "console or through the HTTP API; this server cannot."
    )
    context: Any = SimpleNamespace(protocol_version="2025-11-25")
    assert form_for(asked, context) is None
    assert form_for({**asked, "channel": "any"}, context) is not None
