"""Structured output of runs: a JSON Schema for the answer, from `response_format` or from a required function.

Clients request it with `response_format` (`text.format` of a response), or with a function that the model has to call,
whose arguments are the answer. Both are validated before a run starts, and the answer before it is returned.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dagwright.core.model.json_schemas import validator_of
from dagwright.interfaces.http.conversation import ANSWER_FUNCTION
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import ChatBody, parse_json

_PROBLEMS_LISTED = 5
_PROBLEM_CHARACTERS = 300
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_MODES = ("required", "any")


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The required form of an answer.

    Args:
        schema: JSON Schema of the answer.
        param: the field of the request with the schema.
        function: name of the function whose arguments are the answer; `None` if the content is the answer.
        is_named: whether `tool_choice` names the function: the finish reason is then `stop`, as with OpenAI.
    """

    schema: Mapping[str, Any]
    param: str
    function: str | None = None
    is_named: bool = False

    def text_of(self, output: Any) -> str:
        """Return the output of a run as JSON text.

        Raises:
            OutputMismatch: it does not fit the schema.
        """
        value, text = output, None
        if isinstance(output, str) and not validator_of(self.schema).is_valid(output):
            # A model or a tool may have written JSON as text.
            try:
                value, text = parse_json(output), output
            except ValueError:
                value = output
        if problems := self._problems_of(value):
            raise OutputMismatch("; ".join(problems))
        return json.dumps(value, ensure_ascii=False) if text is None else text

    def _problems_of(self, value: Any) -> list[str]:
        errors = islice(validator_of(self.schema).iter_errors(value), _PROBLEMS_LISTED)
        return [
            f"{'/'.join(['output', *map(str, error.instance_path)])}: {str(error.message)[:_PROBLEM_CHARACTERS]}"
            for error in errors
        ]

    def call(self, arguments: str, *, run: str) -> dict[str, Any]:
        """Return the call of the function; its id is the same from every gateway."""
        digest = hashlib.sha256(json.dumps([run, self.function]).encode()).hexdigest()[:24]
        return {
            "id": f"call_{digest}",
            "type": "function",
            "function": {"name": self.function, "arguments": arguments},
        }


class OutputMismatch(Exception):
    """The output of a run does not fit the schema of the request; the message lists the problems."""


def output_form_of(body: ChatBody) -> OutputForm | None:
    """Return the required form of the answer; `None` for text.

    Raises:
        ApiError: a run cannot answer in this form.
    """
    if isinstance(body.function_call, Mapping):
        message = "function_call: a run returns calls only with tools and tool_choice; use these instead"
        raise _unsupported(message, "function_call")
    by_format = _by_format(body.response_format)
    # Some clients send both. The format applies to content, which an answer that is a call does not have.
    return _by_function(body) or by_format


def _by_format(requested_format: Mapping[str, Any] | None) -> OutputForm | None:
    kind = None if requested_format is None else requested_format.get("type")
    if requested_format is None or kind in (None, "text"):
        return None
    if kind == "json_object":
        return OutputForm(_ANY_OBJECT, "response_format")
    if kind != "json_schema":
        message = f"response_format: type must be text, json_object or json_schema, not {kind!r:.40}"
        raise _unsupported(message, "response_format")
    described = requested_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, Mapping) else None
    return OutputForm(_checked(schema, "response_format", "response_format.json_schema.schema"), "response_format")


def _by_function(body: ChatBody) -> OutputForm | None:
    required, is_named = _required(body)
    if required is None:
        return None
    declared = {
        str(function.get("name")): function
        for tool in body.tools or ()
        if isinstance(function := tool.get("function"), Mapping)
    }
    names = [name for name in (required or declared) if name != ANSWER_FUNCTION]
    if len(names) != 1:
        names_text = f"found {', '.join(names)}" if names else "found none"
        expected = f"the answer of a run must be the call of one function other than {ANSWER_FUNCTION}"
        message = f"tool_choice: {expected}; {names_text}"
        raise _unsupported(f"{message}; name it in tool_choice, or omit tool_choice", "tool_choice")
    if (function := declared.get(names[0])) is None:
        message = f"tool_choice: tools has no function {names[0]!r:.80}"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="tool_choice")
    schema = function.get("parameters") or _ANY_OBJECT
    return OutputForm(_checked(schema, "tools", f"tools: parameters of {names[0]}"), "tools", names[0], is_named)


def _required(body: ChatBody) -> tuple[Sequence[str] | None, bool]:
    """Return the functions of which one must be called, empty for any, and whether `tool_choice` names a single one."""
    choice = body.tool_choice
    if choice in _MODES:
        return (), False
    if not isinstance(choice, Mapping):
        return None, False
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, Mapping):
        if allowed.get("mode") != "required":
            return None, False
        return [_name_in(tool) for tool in allowed.get("tools") or ()], False
    name = _name_in(choice)
    return (None, False) if name == ANSWER_FUNCTION else ([name], True)


def _name_in(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return str(function.get("name")) if isinstance(function, Mapping) else ""


def _checked(schema: Any, param: str, path: str) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        raise ApiError(ErrorCode.INVALID_VALUE, f"{path}: must be a JSON Schema", param=param)
    try:
        validator_of(schema)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_VALUE, f"{path}: {error}", param=param) from None
    return schema


def _unsupported(message: str, param: str) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=param)
