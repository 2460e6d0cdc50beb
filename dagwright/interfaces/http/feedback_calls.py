"""Questions (open requests of runs to people) as function calls in OpenAI's form; the call results are the answers.

A completion with questions has one call of `answer_feedback` per question. The arguments of a call are the
question and the JSON Schema of its answer. The content of the completion is the text of the questions, for clients that
show only text.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dagwright.core.model.json_schemas import validator_of
from dagwright.core.model.requests import is_labelled
from dagwright.interfaces.http.conversation import ANSWER_FUNCTION
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import ChatBody, parse_json

RequestDocument = Mapping[str, Any]
"""The result of `dagwright.core.model.requests.Request.to_json`."""

_CALL_PREFIX = "call_"
_YES = frozenset({"y", "yes", "true", "ok", "approve", "approved"})
_NO = frozenset({"n", "no", "false", "reject", "rejected"})
_SHOWN_FIELDS = (
    "type",
    "prompt",
    "options",
    "multiple",
    "node_id",
    "assignee",
    "deadline",
    "purpose",
    "tool",
    "arguments",
)
"""Fields of a question that the arguments of its call contain."""


def allows_answer_calls(body: ChatBody, *, is_structured: bool = False) -> bool:
    """Return whether the client of a chat request accepts calls of `answer_feedback`.

    A chat request without tools allows these calls, because its client does not execute tools. If a chat request has
    only other tools, its client is usually a framework. Frameworks answer unknown calls with an error text, which
    would be taken for the answer of a person.

    Args:
        is_structured: whether the answer has a schema. The chat request must then declare `answer_feedback`.
    """
    choice = body.tool_choice
    if "none" in (choice, body.function_call):
        return False
    accepted_names = _declared_functions(body)
    if isinstance(choice, Mapping):
        allowed_tools = choice.get("allowed_tools")
        tools = allowed_tools.get("tools") if isinstance(allowed_tools, Mapping) else [choice]
        accepted_names = _function_names(tools)
    return ANSWER_FUNCTION in accepted_names or not (accepted_names or is_structured)


def reject_undeclared_function(body: ChatBody) -> None:
    """Raise `ApiError` if a chat request declares functions, but not `answer_feedback`.

    The results of `answer_feedback` in such a chat request are error texts of a framework, not answers of a person.
    """
    if (declared_names := _declared_functions(body)) and ANSWER_FUNCTION not in declared_names:
        message = (
            f"the result of {ANSWER_FUNCTION} is not the answer of a person: the request does not declare this function"
        )
        hint = f"declare {ANSWER_FUNCTION}, or answer in the console or with POST /v1/runs/ID/feedback"
        raise ApiError(ErrorCode.ANSWER_REJECTED, f"{message}; {hint}", param="tools")


def _declared_functions(body: ChatBody) -> list[str]:
    return [*_function_names(body.tools), *(str(function.get("name")) for function in body.functions or ())]


def _function_names(tools: Any) -> list[str]:
    functions = [tool.get("function") if isinstance(tool, Mapping) else None for tool in tools or ()]
    return [str(function.get("name")) for function in functions if isinstance(function, Mapping)]


def requests_sent_as_calls(requests: Sequence[RequestDocument], *, allows_calls: bool) -> list[RequestDocument]:
    """Return the questions that a client may answer with the result of a call."""
    return [request for request in requests if allows_calls and request.get("channel") != "inbox"]


def questions_with_hint(requests: Sequence[RequestDocument], *, run_id: str, allows_calls: bool) -> str:
    """Return the questions as text, with a hint on how to answer questions that are not sent as calls."""
    message = questions_text(requests)
    requests_without_call = [
        request for request in requests if not requests_sent_as_calls([request], allows_calls=allows_calls)
    ]
    if not requests_without_call:
        return message
    names = ", ".join(repr(request["request_id"]) for request in requests_without_call)
    answer_channels = (
        f"in the console, with `dagwright feedback {run_id}`, or with POST /v1/runs/{quote(run_id)}/feedback"
    )
    return f"{message}\n\n(The run {run_id!r} waits for the answer to {names}. Answer {answer_channels}.)"


def open_request_documents(requests: Sequence[RequestDocument], *, run_id: str) -> list[dict[str, Any]]:
    """Return the open requests as listed in `dagwright.waiting_for`."""
    return [
        {
            **{name: value for name, value in request.items() if name != "run_id"},
            "run_id": run_id,
            "answer_schema": answer_schema(request),
        }
        for request in requests
    ]


def question_call(request: RequestDocument, *, run_id: str) -> dict[str, Any]:
    """Return the function call for a question.

    Args:
        run_id: ID of the run that the client started, also for a question of a sub-plan.
    """
    shown_fields = {name: request.get(name) for name in _SHOWN_FIELDS if request.get(name) not in (None, False)}
    arguments = {
        "run_id": run_id,
        "request_id": request["request_id"],
        **shown_fields,
        "answer_schema": answer_schema(request),
    }
    text = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call_id(request, run_id=run_id),
        "type": "function",
        "function": {"name": ANSWER_FUNCTION, "arguments": text},
    }


def call_id(request: RequestDocument, *, run_id: str) -> str:
    """Return the ID of the call for a question. It ends with a checksum, which `is_call_id_of` verifies.

    All gateways return the same ID. If the same question is asked again, its call has another ID.
    """
    digest = _digest([run_id, request["request_id"], request["opened_at"]])[:16]
    return f"{_CALL_PREFIX}{digest}{_checksum(digest, run_id)}"


def is_call_id_of(call: str, *, run_id: str) -> bool:
    """Return whether an ID belongs to the call for a question of the run, open or answered."""
    digest = call.removeprefix(_CALL_PREFIX)[:16]
    return call == f"{_CALL_PREFIX}{digest}{_checksum(digest, run_id)}"


def _checksum(digest: str, run_id: str) -> str:
    return _digest([run_id, digest])[:8]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def questions_text(requests: Sequence[RequestDocument]) -> str:
    """Return the questions as text."""
    return "\n".join(str(request.get("prompt") or request["type"].capitalize()) for request in requests)


def answer_schema(request: RequestDocument) -> dict[str, Any]:
    """Return the JSON Schema of the answer to a request."""
    text_schema = {"type": "string"}
    match request["type"]:
        case "APPROVAL":
            fields: dict[str, Any] = {"approved": {"type": "boolean"}, "reason": text_schema}
            if request.get("tool"):
                fields["arguments"] = {"type": "object", "description": "Replaces the arguments of the call."}
                fields["remember"] = {"type": "boolean", "description": "Do not ask about this tool again in this run."}
            required_fields = ["approved"]
        case "SELECTION":
            option_ids = [_option_id(option) for option in request.get("options") or ()]
            item = {"enum": option_ids} if option_ids else text_schema
            fields = {"selected": {"type": "array", "items": item, "minItems": 1}}
            if not request.get("multiple"):
                fields["selected"]["maxItems"] = 1
            required_fields = ["selected"]
            if request.get("allow_text"):
                fields["text"] = text_schema
                required_fields = []
            if request.get("purpose") == "error":
                fields["value"] = {"description": "With option `value`: the result of the node."}
                fields["arguments"] = {
                    "type": "object",
                    "description": "With option `retry`: replaces the node's arguments.",
                }
        case "INFORMATION":
            fields, required_fields = {"data": dict(request.get("schema") or {"type": "object"})}, ["data"]
        case "GUIDANCE":
            fields, required_fields = {"text": text_schema, "nodes": {"type": "array", "items": {"type": "object"}}}, []
        case _:
            fields, required_fields = {"text": text_schema}, ["text"]
    return {"type": "object", "properties": fields, "required": required_fields, "additionalProperties": False}


def _option_id(option: Any) -> Any:
    return option["id"] if is_labelled(option) else option


def parse_answer(request: RequestDocument, text: str) -> dict[str, Any]:
    """Parse the result of a call into an answer; the run validates the answer.

    The result may be an object that matches `answer_schema`, or a text as people type it: `yes`, an option, any text.
    If the question asks for information, the result may also be the content of the field `data`.

    Raises:
        ApiError: the result is not an answer.
    """
    value = _json_or_text(text)
    kind = request["type"]
    if isinstance(value, dict) and _is_answer(value, request):
        return value
    match kind:
        case "APPROVAL":
            normalized_text = str(value).strip().lower().rstrip(".!")
            if normalized_text in _YES or normalized_text in _NO:
                return {"approved": normalized_text in _YES}
            raise _invalid_answer_error(request, 'answer {"approved": true} or {"approved": false, "reason": "…"}')
        case "SELECTION":
            return {
                "selected": [option if isinstance(option, str) else json.dumps(option) for option in _as_list(value)]
            }
        case "INFORMATION":
            if isinstance(value, dict):
                return {"data": value}
            raise _invalid_answer_error(request, 'answer {"data": {…}} with the fields of the schema')
        case _:
            return {"text": text}


def _is_answer(value: Mapping[str, Any], request: RequestDocument) -> bool:
    """Return whether a value, valid or not, is the whole answer rather than one of its fields."""
    match request["type"]:
        case "INFORMATION":
            return _is_wrapped(value, request)
        case "APPROVAL" | "SELECTION" | "GUIDANCE":
            return True
        case _:
            # The answer is any text, which may be JSON.
            return {*value} == {"text"}


def _is_wrapped(value: Mapping[str, Any], request: RequestDocument) -> bool:
    """Return whether the data of an answer are wrapped in the field `data`."""
    if {*value} != {"data"} or not isinstance(value["data"], Mapping):
        return False
    schema = request.get("schema") or {}
    fields = schema.get("properties")
    has_data_field = isinstance(fields, Mapping) and "data" in fields
    # If the schema itself has a field `data`, the value is ambiguous. The value counts as unwrapped only if the whole
    # value matches the schema, and the content of `data` does not.
    return not has_data_field or _is_valid(value["data"], schema) or not _is_valid(value, schema)


def _is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    try:
        return validator_of(schema).is_valid(value)
    except ValueError:
        return False


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value.strip() if isinstance(value, str) else value]


def _invalid_answer_error(request: RequestDocument, message: str) -> ApiError:
    return ApiError(
        ErrorCode.ANSWER_REJECTED,
        f"the result is not an answer to {request['request_id']!r}: {message}",
        param="messages",
    )
