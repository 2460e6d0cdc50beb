"""OpenAI's chat completions protocol on the server side: validation of requests and format of responses.

Source: OpenAI's API reference, Chat Completions and Structured Outputs.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from dagwright.testing.script import ReceivedCall
from dagwright.testing.scripted_answers import Completion, HttpError, Tokens

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_MAX_METADATA_KEYS, _MAX_METADATA_KEY_CHARACTERS, _MAX_METADATA_VALUE_CHARACTERS = 16, 64, 512
_completion_numbers = count(1)


def validation_error(call: ReceivedCall) -> HttpError | None:
    """Return the error of OpenAI's own server for an invalid request; `None` if the request is valid."""
    body = call.body
    if not isinstance(body, dict):
        return HttpError(400, "We could not parse the JSON body of your request.")
    for problem in (_fields_problem(body), _messages_problem(body), _tools_problem(body), _format_problem(body, call)):
        if problem is not None:
            param, text = problem
            return HttpError(400, text, param=param)
    return None


def _fields_problem(body: Mapping[str, Any]) -> tuple[str, str] | None:
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "model", "you must provide a model parameter"
    metadata = body.get("metadata")
    if metadata is not None:
        is_valid = isinstance(metadata, dict) and len(metadata) <= _MAX_METADATA_KEYS
        is_valid = is_valid and all(
            isinstance(value, str)
            and len(key) <= _MAX_METADATA_KEY_CHARACTERS
            and len(value) <= _MAX_METADATA_VALUE_CHARACTERS
            for key, value in metadata.items()
        )
        if not is_valid:
            return "metadata", "Invalid 'metadata': at most 16 keys of 64 characters, each with a string of 512"
    if body.get("stream_options") is not None and body.get("stream") is not True:
        return "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    return None


def _messages_problem(body: Mapping[str, Any]) -> tuple[str, str] | None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages", "Invalid 'messages': expected an array with at least one message."
    open_call_ids: set[str] = set()
    for index, message in enumerate(messages):
        location = f"messages.[{index}]"
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return location, f"Invalid value for '{location}.role'."
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_call_ids:
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                return location, text
            open_call_ids.discard(message["tool_call_id"])
            continue
        if open_call_ids:
            return location, (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. Missing: {', '.join(sorted(open_call_ids))}"
            )
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(isinstance(call, dict) and "id" in call for call in calls):
            return f"{location}.tool_calls", f"Missing required parameter: '{location}.tool_calls[0].id'."
        open_call_ids = {str(call["id"]) for call in calls}
        if message.get("content") is None and not (calls or message.get("refusal")):
            return f"{location}.content", f"Invalid value for '{location}.content': expected a string, got null."
    return ("messages", f"tool calls without a response: {', '.join(sorted(open_call_ids))}") if open_call_ids else None


def _tools_problem(body: Mapping[str, Any]) -> tuple[str, str] | None:
    tools = body.get("tools")
    if tools is None:
        return None
    if not isinstance(tools, list) or not tools:
        return "tools", "Invalid 'tools': empty array. Expected an array with minimum length 1."
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not 1 <= len(name) <= 64 or not name.replace("-", "_").isidentifier():
            return f"tools[{index}].function.name", "Invalid tool name: expected ^[a-zA-Z0-9_-]{1,64}$"
        if function is not None and function.get("strict") is True:
            schema_problem = strict_schema_problem(function.get("parameters"))
            if schema_problem:
                return f"tools[{index}].function.parameters", f"Invalid schema for function {name!r}: {schema_problem}"
    return None


def _format_problem(body: Mapping[str, Any], call: ReceivedCall) -> tuple[str, str] | None:
    format_object = body.get("response_format")
    if format_object is None:
        return None
    if call.response_format == "json_object" and "json" not in call.text.lower():
        return "messages", (
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        )
    if call.response_format != "json_schema":
        return None
    json_schema = format_object.get("json_schema")
    if not isinstance(json_schema, dict) or not isinstance(json_schema.get("name"), str):
        return "response_format.json_schema", "Missing required parameter: 'response_format.json_schema.name'."
    schema_problem = strict_schema_problem(json_schema.get("schema")) if json_schema.get("strict") is True else ""
    return (
        ("response_format", f"Invalid schema for response_format {json_schema['name']!r}: {schema_problem}")
        if schema_problem
        else None
    )


def strict_schema_problem(schema: Any) -> str:
    """Return why OpenAI's strict mode rejects a schema; empty if the schema is accepted."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "schema must be a JSON Schema of 'type: \"object\"'"
    return next(_strict_problems(schema, ()), "")


_SUPPORTED_KEYWORDS = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
        *("$ref", "$defs", "definitions", "description", "title", "pattern", "format", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)
"""Keywords of JSON Schema that strict mode supports."""


def _strict_problems(schema: Any, context: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"In context={context}, schema must be an object"
        return
    unsupported_keywords = sorted(schema.keys() - _SUPPORTED_KEYWORDS)
    if unsupported_keywords:
        yield f"In context={context}, {unsupported_keywords[0]!r} is not permitted."
    properties = schema.get("properties", {})
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"In context={context}, 'additionalProperties' is required to be supplied and to be false."
        missing_names = sorted(properties.keys() - set(schema.get("required", ())))
        if missing_names:
            yield f"In context={context}, 'required' is required to include every key. Missing '{missing_names[0]}'."
    if not any(keyword in schema for keyword in ("type", "anyOf", "$ref", "enum", "const")):
        yield f"In context={context}, schema must have a 'type' key."
    if schema.get("type") == "array" and "items" not in schema:
        yield f"In context={context}, array schema missing items."
    for keyword in ("properties", "$defs", "definitions"):
        for name, nested in schema.get(keyword, {}).items():
            yield from _strict_problems(nested, (*context, keyword, name))
    if "items" in schema:
        yield from _strict_problems(schema["items"], (*context, "items"))
    for index, nested in enumerate(schema.get("anyOf", ())):
        yield from _strict_problems(nested, (*context, "anyOf", str(index)))


class WireCompletion:
    """The wire format of one completion."""

    def __init__(self, completion: Completion, call: ReceivedCall) -> None:
        self._completion = completion
        self._id = f"chatcmpl-{next(_completion_numbers)}"
        self._created_at = int(time.time())
        self._model = completion.model or call.model
        self._tokens = completion.tokens or _words_as_tokens(completion, call)
        options = call.body.get("stream_options") if isinstance(call.body, dict) else None
        self._streams_usage = isinstance(options, dict) and options.get("include_usage") is True

    def full_body(self) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        completion = self._completion
        message: dict[str, Any] = {"role": "assistant", "content": completion.text, "refusal": completion.refusal}
        if completion.reasoning is not None:
            message["reasoning_content"] = completion.reasoning
        if completion.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": tool_call.name, "arguments": tool_call.arguments_text},
                }
                for call_id, tool_call in self._tool_calls_with_ids()
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": completion.sent_finish_reason}
        usage = {"usage": self._tokens.to_json()} if completion.has_usage else {}
        return self._body("chat.completion") | {"choices": [choice]} | usage

    def chunks(self) -> list[dict[str, Any]]:
        """Return the chunks of a streamed response, except the chunks of `final_chunks`."""
        completion = self._completion
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if completion.reasoning is not None:
            deltas += [
                {"reasoning_content": piece} for piece in _split(completion.reasoning, completion.pace.chunk_characters)
            ]
        deltas += [{"content": piece} for piece in _split(completion.text or "", completion.pace.chunk_characters)]
        deltas += [{"refusal": piece} for piece in _split(completion.refusal or "", completion.pace.chunk_characters)]
        for index, (call_id, tool_call) in enumerate(self._tool_calls_with_ids()):
            head = {"index": index, "id": call_id, "type": "function"}
            deltas.append({"tool_calls": [head | {"function": {"name": tool_call.name, "arguments": ""}}]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in _split(tool_call.arguments_text, completion.pace.chunk_characters)
            ]
        return [
            self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]) for delta in deltas
        ]

    def final_chunks(self) -> list[dict[str, Any]]:
        """Return the chunks that end a stream: the finish reason, and the usage if requested."""
        end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self._completion.sent_finish_reason}
        sends_usage = self._streams_usage and self._completion.has_usage
        usage = [self._chunk([]) | {"usage": self._tokens.to_json()}] if sends_usage else []
        return [self._chunk([end]), *usage]

    def _tool_calls_with_ids(self) -> Iterator[tuple[str, Any]]:
        for index, tool_call in enumerate(self._completion.tool_calls):
            yield tool_call.id or f"call_{self._id.removeprefix('chatcmpl-')}_{index + 1}", tool_call

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"usage": None} if self._streams_usage else {}
        return self._body("chat.completion.chunk") | {"choices": choices} | usage

    def _body(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created_at, "model": self._model}


def encode_event(chunk: Mapping[str, Any]) -> bytes:
    """Encode a chunk as a server-sent event."""
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""End of a stream."""


def _split(text: str, chunk_characters: int) -> Sequence[str]:
    if not text:
        return []
    return (
        [text[start : start + chunk_characters] for start in range(0, len(text), chunk_characters)]
        if chunk_characters
        else [text]
    )


def _words_as_tokens(completion: Completion, call: ReceivedCall) -> Tokens:
    """Return a usage in which each word counts as one token."""
    response_text = " ".join(
        [completion.text or "", *(tool_call.arguments_text for tool_call in completion.tool_calls)]
    )
    return Tokens(prompt=len(call.text.split()), completion=len(response_text.split()))
