"""Structured output of runs: a JSON Schema for the answer, from `response_format` or from a required function.

Clients send the schema in `response_format` (`text.format` of a response), or in a function that the model has to call.
In the second case, the arguments of the call are the answer. The schema is validated before a run starts. The answer
is validated before the gateway returns it.
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

_MAX_LISTED_PROBLEMS = 5
_MAX_PROBLEM_CHARACTERS = 300
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_ANY_FUNCTION_CHOICES = ("required", "any")
"""Values of `tool_choice` that require the call of any function."""


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The required form of an answer.

    Args:
        schema: JSON Schema of the answer.
        param: the field of the request that contains the schema.
        function: name of the function whose arguments are the answer; `None` if the content is the answer.
        is_named: whether `tool_choice` names the function. If so, the finish reason is `stop`, as in OpenAI's API.
    """

    schema: Mapping[str, Any]
    param: str
    function: str | None = None
    is_named: bool = False

    def text_of(self, output: Any) -> str:
        """Return the output of a run as JSON text.

        Raises:
            OutputMismatch: the output does not match the schema.
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
        errors = islice(validator_of(self.schema).iter_errors(value), _MAX_LISTED_PROBLEMS)
        return [
            f"{'/'.join(['output', *map(str, error.instance_path)])}: {str(error.message)[:_MAX_PROBLEM_CHARACTERS]}"
            for error in errors
        ]

    def function_call(self, arguments: str, *, run_id: str) -> dict[str, Any]:
        """Return the call of the function. All gateways return the same call ID."""
        digest = hashlib.sha256(json.dumps([run_id, self.function]).encode()).hexdigest()[:24]
        return {
            "id": f"call_{digest}",
            "type": "function",
            "function": {"name": self.function, "arguments": arguments},
        }


class OutputMismatch(Exception):
    """The output of a run does not match the schema of the request; the message lists the problems."""


def output_form_of(body: ChatBody) -> OutputForm | None:
    """Return the required form of the answer; `None` for text.

    Raises:
        ApiError: a run cannot answer in this form.
    """
    if isinstance(body.function_call, Mapping):
        message = "function_call: a run returns calls only with tools and tool_choice; use these instead"
        raise _unsupported_parameter_error(message, "function_call")
    response_form = _form_of_response_format(body.response_format)
    # Some clients send a format and a required function. The function has precedence: the format is only for content.
    return _form_of_required_function(body) or response_form


def _form_of_response_format(requested_format: Mapping[str, Any] | None) -> OutputForm | None:
    format_type = None if requested_format is None else requested_format.get("type")
    if requested_format is None or format_type in (None, "text"):
        return None
    if format_type == "json_object":
        return OutputForm(_ANY_OBJECT, "response_format")
    if format_type != "json_schema":
        message = f"response_format: type must be text, json_object or json_schema, not {format_type!r:.40}"
        raise _unsupported_parameter_error(message, "response_format")
    json_schema = requested_format.get("json_schema")
    schema = json_schema.get("schema") if isinstance(json_schema, Mapping) else None
    checked_schema = _checked_schema(schema, "response_format", "response_format.json_schema.schema")
    return OutputForm(checked_schema, "response_format")


def _form_of_required_function(body: ChatBody) -> OutputForm | None:
    required_names, is_named = _required_functions(body)
    if required_names is None:
        return None
    declared_functions = {
        str(function.get("name")): function
        for tool in body.tools or ()
        if isinstance(function := tool.get("function"), Mapping)
    }
    names = [name for name in (required_names or declared_functions) if name != ANSWER_FUNCTION]
    if len(names) != 1:
        names_text = f"found {', '.join(names)}" if names else "found none"
        expected = f"the answer of a run must be the call of one function other than {ANSWER_FUNCTION}"
        message = f"tool_choice: {expected}; {names_text}"
        raise _unsupported_parameter_error(f"{message}; name it in tool_choice, or omit tool_choice", "tool_choice")
    if (function := declared_functions.get(names[0])) is None:
        message = f"tool_choice: tools has no function {names[0]!r:.80}"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="tool_choice")
    schema = function.get("parameters") or _ANY_OBJECT
    checked_schema = _checked_schema(schema, "tools", f"tools: parameters of {names[0]}")
    return OutputForm(checked_schema, "tools", names[0], is_named)


def _required_functions(body: ChatBody) -> tuple[Sequence[str] | None, bool]:
    """Return the functions from which the model has to choose, and whether `tool_choice` names a single function.

    An empty list means that the model may choose any function; `None` means that the model need not call a function.
    """
    choice = body.tool_choice
    if choice in _ANY_FUNCTION_CHOICES:
        return (), False
    if not isinstance(choice, Mapping):
        return None, False
    allowed_tools = choice.get("allowed_tools")
    if isinstance(allowed_tools, Mapping):
        if allowed_tools.get("mode") != "required":
            return None, False
        return [_function_name(tool) for tool in allowed_tools.get("tools") or ()], False
    name = _function_name(choice)
    return (None, False) if name == ANSWER_FUNCTION else ([name], True)


def _function_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return str(function.get("name")) if isinstance(function, Mapping) else ""


def _checked_schema(schema: Any, param: str, path: str) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        raise ApiError(ErrorCode.INVALID_VALUE, f"{path}: must be a JSON Schema", param=param)
    try:
        validator_of(schema)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_VALUE, f"{path}: {error}", param=param) from None
    return schema


def _unsupported_parameter_error(message: str, param: str) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=param)
