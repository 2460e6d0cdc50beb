"""Questions of runs to people, as OpenAI's protocol can carry them: calls of a function, and its results as answers.

Pure. A completion that ends with questions has their words as its content, for clients that show nothing else, and one
call of `answer_feedback` for each, whose arguments say what is asked and what an answer looks like.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dagwright.core.model.argument_checks import validator_of
from dagwright.interfaces.http.bodies import ChatBody, json_of
from dagwright.interfaces.http.conversation import ANSWER_FUNCTION
from dagwright.interfaces.http.errors import ApiError

Request = Mapping[str, Any]
"""What `dagwright.core.model.requests.Request.to_json` returns."""

_CALL = "call_"
_YES = frozenset({"y", "yes", "true", "ok", "approve", "approved"})
_NO = frozenset({"n", "no", "false", "reject", "rejected"})
_TOLD = ("type", "prompt", "options", "multiple", "node", "assignee", "deadline", "purpose", "tool", "arguments")
"""Parts of a request that a client is told."""


def may_call(body: ChatBody, *, is_structured: bool = False) -> bool:
    """Return whether a request allows calls of `answer_feedback`.

    A request without tools is from a client that executes no tools by itself. A request with other tools comes from a
    framework that replies to unknown calls with an error text, which would be taken for the answer.

    Args:
        is_structured: whether the answer has a schema: then only a request that declares the function does.
    """
    choice = body.tool_choice
    if "none" in (choice, body.function_call):
        return False
    declared = _declared(body)
    if isinstance(choice, Mapping):
        allowed = choice.get("allowed_tools")
        named = allowed.get("tools") if isinstance(allowed, Mapping) else [choice]
        declared = _function_names(named)
    return ANSWER_FUNCTION in declared or not (declared or is_structured)


def refuse_undeclared(body: ChatBody) -> None:
    """Refuse results of `answer_feedback` from a framework that does not have it: it replies with an error text.

    Raises:
        ApiError: the request declares functions, and `answer_feedback` is none of them.
    """
    if (declared := _declared(body)) and ANSWER_FUNCTION not in declared:
        words = (
            f"the result of {ANSWER_FUNCTION} is no answer of a person: the request declares no function of that name"
        )
        hint = f"declare {ANSWER_FUNCTION}, or answer in the console or with POST /v1/runs/ID/feedback"
        raise ApiError(400, f"{words}; {hint}", param="tools", code="answer_refused")


def _declared(body: ChatBody) -> list[str]:
    return [*_function_names(body.tools), *(str(each.get("name")) for each in body.functions or ())]


def _function_names(tools: Any) -> list[str]:
    found = [tool.get("function") if isinstance(tool, Mapping) else None for tool in tools or ()]
    return [str(function.get("name")) for function in found if isinstance(function, Mapping)]


def callable_requests(requests: Sequence[Request], *, allows_calls: bool) -> list[Request]:
    """Return the requests that a client may answer with the result of a call."""
    return [request for request in requests if allows_calls and request.get("channel") != "inbox"]


def waiting_words(requests: Sequence[Request], *, run: str, allows_calls: bool) -> str:
    """Return the questions in words, and where to answer those that are not calls."""
    words = question_words(requests)
    inbox_only = [request for request in requests if not callable_requests([request], allows_calls=allows_calls)]
    if not inbox_only:
        return words
    names = ", ".join(repr(request["id"]) for request in inbox_only)
    where = f"in the console, with `dagwright feedback {run}`, or with POST /v1/runs/{quote(run)}/feedback"
    return f"{words}\n\n(The run {run!r} waits for the answer to {names}. Answer {where}.)"


def waiting_for(requests: Sequence[Request], *, run: str) -> list[dict[str, Any]]:
    """Return the open requests as `dagwright.waiting_for` lists them."""
    return [
        {
            **{name: value for name, value in request.items() if name != "workflow_id"},
            "run_id": run,
            "answer_schema": answer_schema(request),
        }
        for request in requests
    ]


def call_of(request: Request, *, run: str) -> dict[str, Any]:
    """Returns the function call that stands for a question.

    Args:
        run: id of the run that a client knows.
    """
    told = {name: request.get(name) for name in _TOLD if request.get(name) not in (None, False)}
    arguments = {"run_id": run, "request_id": request["id"], **told, "schema": answer_schema(request)}
    text = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call_id(request, run=run),
        "type": "function",
        "function": {"name": ANSWER_FUNCTION, "arguments": text},
    }


def call_id(request: Request, *, run: str) -> str:
    """Returns the id of that call: the same from every gateway, and another one if the same is asked again.

    It ends with a check of what it is made of, by which `is_call_of` knows it.
    """
    told = _digest([run, request["id"], request["opened_at"]])[:16]
    return f"{_CALL}{told}{_check(told, run)}"


def is_call_of(call: str, *, run: str) -> bool:
    """Tells whether an id is that of a call for which a run has asked, be that open or answered long ago."""
    told = call.removeprefix(_CALL)
    return call == f"{_CALL}{told[:16]}{_check(told[:16], run)}"


def _check(told: str, run: str) -> str:
    return _digest([run, told])[:8]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def question_words(requests: Sequence[Request]) -> str:
    """Returns what is asked, for people."""
    return "\n".join(str(request.get("prompt") or request["type"].capitalize()) for request in requests)


def answer_schema(request: Request) -> dict[str, Any]:
    """Returns the JSON Schema of the answer to a request."""
    text = {"type": "string"}
    match request["type"]:
        case "APPROVAL":
            fields: dict[str, Any] = {"approved": {"type": "boolean"}, "reason": text}
            if request.get("tool"):
                fields["arguments"] = {"type": "object", "description": "In place of those of the call."}
                fields["remember"] = {"type": "boolean", "description": "Ask no more about this tool in this run."}
            required = ["approved"]
        case "SELECTION":
            names = [_option_id(option) for option in request.get("options") or ()]
            item = {"enum": names} if names else text
            fields = {"selected": {"type": "array", "items": item, "minItems": 1}}
            if not request.get("multiple"):
                fields["selected"]["maxItems"] = 1
            required = ["selected"]
            if request.get("takes_text"):
                fields["text"] = text
                required = []
            if request.get("purpose") == "error":
                fields["value"] = {"description": "With `value`: the result of the node."}
                fields["arguments"] = {"type": "object", "description": "With `retry`: in place of those of the node."}
        case "INFORMATION":
            fields, required = {"data": dict(request.get("schema") or {"type": "object"})}, ["data"]
        case "GUIDANCE":
            fields, required = {"text": text, "nodes": {"type": "array", "items": {"type": "object"}}}, []
        case _:
            fields, required = {"text": text}, ["text"]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _option_id(option: Any) -> Any:
    is_labelled = isinstance(option, Mapping) and {*option} == {"id", "label"}
    return option["id"] if is_labelled else option


def content_of(request: Request, text: str) -> dict[str, Any]:
    """Returns the answer that the result of a call means, as the run takes it: it says what of it does not fit.

    Beside the object of `answer_schema` it may be what a person types: `yes`, an option, a text, the data alone.

    Raises:
        ApiError: it means none.
    """
    value = _json_or_text(text)
    kind = request["type"]
    if isinstance(value, dict) and _is_answer(value, request):
        return value
    match kind:
        case "APPROVAL":
            said = str(value).strip().lower().rstrip(".!")
            if said in _YES or said in _NO:
                return {"approved": said in _YES}
            raise _not_answered(request, 'answer {"approved": true} or {"approved": false, "reason": "…"}')
        case "SELECTION":
            return {"selected": [each if isinstance(each, str) else json.dumps(each) for each in _listed(value)]}
        case "INFORMATION":
            if isinstance(value, dict):
                return {"data": value}
            raise _not_answered(request, 'answer {"data": {…}} with the fields of the schema')
        case _:
            return {"text": text}


def _is_answer(value: Mapping[str, Any], request: Request) -> bool:
    """Tells whether an object is one of `answer_schema`, well or badly filled in, and not what it has in a field."""
    match request["type"]:
        case "INFORMATION":
            return _is_wrapped(value, request)
        case "APPROVAL" | "SELECTION" | "GUIDANCE":
            return True
        case _:
            # What is asked for is any text, which may be JSON.
            return {*value} == {"text"}


def _is_wrapped(value: Mapping[str, Any], request: Request) -> bool:
    """Tells whether data stand in their field `data` already."""
    if {*value} != {"data"} or not isinstance(value["data"], Mapping):
        return False
    schema = request.get("schema") or {}
    fields = schema.get("properties")
    has_own = isinstance(fields, Mapping) and "data" in fields
    # With a field `data` of their own either may be meant: what fits as `answer_schema` has it, is meant so.
    return not has_own or _fits(value["data"], schema) or not _fits(value, schema)


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    try:
        return validator_of(schema).is_valid(value)
    except ValueError:
        return False


def _json_or_text(text: str) -> Any:
    try:
        return json_of(text)
    except ValueError:
        return text


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value.strip() if isinstance(value, str) else value]


def _not_answered(request: Request, words: str) -> ApiError:
    return ApiError(400, f"that is no answer to {request['id']!r}: {words}", param="messages", code="answer_refused")
