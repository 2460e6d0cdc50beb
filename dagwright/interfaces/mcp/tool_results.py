"""Results of MCP calls: the document of a run or an error, as structured content and as text.

Each result has `message` with the possible next steps, and `status`, or `code` for an error.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types

from dagwright.core.errors import PlanInvalid
from dagwright.interfaces.mcp.tool_definitions import ANSWER_FEEDBACK, GET_RUN
from dagwright.plans.check_reports import invalid_plan_report

_MAX_SHOWN_FAILURES = 20
_MAX_SHOWN_NOTES = 20
_ERROR_STATUSES = ("failed", "cancelled")
_FINAL_STATUSES = (*_ERROR_STATUSES, "completed", "completed_with_failures")
_ANSWER_ARGUMENTS: Mapping[str, str] = {
    "APPROVAL": "approved",
    "SELECTION": "selected",
    "INFORMATION": "data",
    "CLARIFICATION": "text",
    "GUIDANCE": "text",
}
"""Type of a request -> the argument of `answer_feedback` for its answer."""


def result_of(document: Mapping[str, Any], *, is_error: bool = False) -> types.CallToolResult:
    """Return a document as structured content, and as text for clients that show text only."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=dict(document), is_error=is_error
    )


def error_result(code: str, message: str) -> types.CallToolResult:
    """Return an error result.

    Args:
        code: error code, as in documents of the command line.
        message: the problem, and what to do.
    """
    return result_of({"code": code, "message": message}, is_error=True)


def invalid_plan_result(error: PlanInvalid) -> types.CallToolResult:
    """Return the result of a call whose plan or inputs are invalid, with all problems."""
    count = len(error.problems)
    subject = "the problem" if count == 1 else f"the {count} problems"
    message = f"fix {subject} in `errors` and call again"
    return result_of({**invalid_plan_report(error.problems), "message": message}, is_error=True)


def run_result(
    document: Mapping[str, Any], *, node_counts: Mapping[str, int], prefix: str = ""
) -> types.CallToolResult:
    """Return the result for a run.

    Args:
        document: document of the run.
        node_counts: state -> number of nodes, including nodes that the document does not list.
        prefix: text before the message, such as the result of an answer.
    """
    status = str(document["status"])
    message = " ".join(filter(None, [prefix, _message_of(document)]))
    content: dict[str, Any] = {"status": status, "message": message, "run_id": document["run_id"]}
    if document["title"]:
        content["title"] = document["title"]
    if status in _FINAL_STATUSES:
        content["output"] = document["output"]
    content["node_counts"] = dict(node_counts)
    if failures := _failures(document["nodes"]):
        content["failures"] = failures
    if document["error"] is not None:
        content["error"] = document["error"]
    if document["waiting_for"]:
        content["waiting_for"] = [*document["waiting_for"]]
    if document["notes"]:
        content["notes"] = [*document["notes"][:_MAX_SHOWN_NOTES]]
    return result_of(content, is_error=status in _ERROR_STATUSES)


def _message_of(document: Mapping[str, Any]) -> str:
    status, run_id = str(document["status"]), document["run_id"]
    if status == "completed":
        return "The run completed."
    if status == "completed_with_failures":
        return "The run completed, but some nodes failed: see `failures`."
    if status in _ERROR_STATUSES:
        error = document["error"] or {}
        reason = f": {error['message']}" if error.get("message") else ""
        return f"The run {'was cancelled' if status == 'cancelled' else 'failed'}{reason}."
    if document["waiting_for"]:
        return f"The run waits for people: {_how_to_answer(document['waiting_for'], run_id)}"
    if status == "waiting":
        return f"The run waits; `notes` may have the reason. Call {GET_RUN} with run_id {run_id!r} to wait for its end."
    return f"The run continues. Call {GET_RUN} with run_id {run_id!r} to wait for its end."


def _how_to_answer(requests: Sequence[Mapping[str, Any]], run_id: str) -> str:
    request = requests[0]
    more_text = f" `waiting_for` has {len(requests) - 1} more." if len(requests) > 1 else ""
    if request.get("channel") == "inbox":
        instruction = (
            f"with `dagwright feedback {run_id} {request['request_id']}`, in the console or through the HTTP API"
        )
        answer_text = f"A person must answer in the inbox, {instruction}; this server cannot."
        return f"{request['prompt']!s:.500} {answer_text}{more_text}"
    argument = _ANSWER_ARGUMENTS.get(str(request["type"]), "data")
    instruction = f"call {ANSWER_FEEDBACK} with run_id {run_id!r}, request_id {request['request_id']!r} and {argument}"
    return f"{request['prompt']!s:.500} To answer, {instruction}.{more_text}"


def _failures(nodes: Mapping[str, Any]) -> list[dict[str, Any]]:
    failed_nodes = [
        (name, node["error"]) for name, node in nodes.items() if node["status"] == "failed" and node["error"]
    ]
    return [
        {"node_id": name, "code": error["code"], "message": error["message"]}
        for name, error in failed_nodes[:_MAX_SHOWN_FAILURES]
    ]
