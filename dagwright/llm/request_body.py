"""Request body of a model call, for the capabilities of the server."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dagwright.core.model.json_schemas import validator_of
from dagwright.llm.capabilities import Capabilities, OutputMode
from dagwright.llm.strict_schema import StrictSchema
from dagwright.planning.model_calls.model_requests import Message, ModelCall, OutputSchema

_MAX_TOOL_NAME_CHARACTERS = 64
"""Maximum length of a tool name in the protocol."""
_FORBIDDEN_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that the protocol does not allow in tool names, such as the dots of names in plans."""


class ToolNames:
    """Mapping between the tool names of a call and unique names for the protocol.

    Args:
        names: tool names in plans.
    """

    def __init__(self, names: Iterable[str]) -> None:
        names = list(dict.fromkeys(names))
        protocol_names = [to_protocol_name(name) for name in names]
        self._protocol_names = {
            name: allowed_name if protocol_names.count(allowed_name) == 1 or allowed_name == name else _with_hash(name)
            for name, allowed_name in zip(names, protocol_names, strict=True)
        }
        self._tool_names = {allowed_name: name for name, allowed_name in self._protocol_names.items()}

    def protocol_name(self, name: str) -> str:
        """Return the protocol name of a tool, even if the tool is no longer offered."""
        return self._protocol_names.get(name) or to_protocol_name(name)

    def tool_name(self, name: str) -> str:
        """Return the tool name for a protocol name. An unknown name is returned unchanged for the error message."""
        return self._tool_names.get(name, name)


def to_protocol_name(name: str) -> str:
    """Convert a name to a name that the protocol allows."""
    allowed_name = _FORBIDDEN_CHARACTERS.sub("_", name)
    return allowed_name if 1 <= len(allowed_name) <= _MAX_TOOL_NAME_CHARACTERS else _with_hash(name)


def _with_hash(name: str) -> str:
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{_FORBIDDEN_CHARACTERS.sub('_', name)[: _MAX_TOOL_NAME_CHARACTERS - len(digest) - 1]}_{digest}"


Json = dict[str, Any]

_ONLY_JSON = (
    "Answer with JSON only: no other text, no code fence. The JSON must be valid against this JSON Schema:\n{schema}"
)


class PreparedCall:
    """A checked call that builds its request body for the capabilities of a server.

    Args:
        model: model to call.

    Raises:
        ValueError: the output schema is not a valid JSON Schema.
    """

    def __init__(self, call: ModelCall, model: str) -> None:
        self.call = call
        self.model = model
        output_names = [] if call.output is None else [call.output.name]
        self.tool_names = ToolNames([tool.name for tool in call.tools] + output_names)
        self.strict_schema: StrictSchema | None = None
        if call.output is not None:
            # Reject an invalid schema before the call, because a call costs money.
            validator_of(call.output.schema)
            self.strict_schema = StrictSchema(call.output.schema)

    def body(self, capabilities: Capabilities, *, is_streamed: bool) -> Json:
        """Build the request body."""
        call = self.call
        config = call.config.to_json()
        body: Json = {**config, "model": self.model, "messages": self._messages(capabilities)}
        if call.config.max_tokens is not None and capabilities.max_tokens_field not in config:
            body[capabilities.max_tokens_field] = body.pop("max_tokens")
        tools = [self._tool(tool.name, tool.description, tool.parameters) for tool in call.tools]
        if tools and call.tool_choice:
            body["tool_choice"] = self._choice(call.tool_choice)
        labels = call.labels.to_json()
        if labels and "metadata" not in capabilities.omitted_fields:
            body["metadata"] = labels
        if is_streamed:
            body["stream"] = True
            if "stream_options" not in capabilities.omitted_fields:
                body["stream_options"] = {"include_usage": True}
        if call.output is not None and self.strict_schema is not None:
            match capabilities.mode:
                case OutputMode.SCHEMA:
                    json_schema = {"name": call.output.name, "strict": True, "schema": self.strict_schema.schema}
                    body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
                case OutputMode.JSON:
                    body["response_format"] = {"type": "json_object"}
                case OutputMode.TOOL:
                    tools.append(self._tool(call.output.name, "Submit the answer.", object_schema(call.output)))
                    # If the call has tools, the model may use them before it answers.
                    body["tool_choice"] = "required" if call.tools else self._choice(call.output.name)
        if tools:
            body["tools"] = tools
        return body

    def _choice(self, choice: str) -> Any:
        if choice in ("auto", "none", "required"):
            return choice
        return {"type": "function", "function": {"name": self.tool_names.protocol_name(choice)}}

    def _tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> Json:
        optional_fields = {"description": description} if description else {}
        return {
            "type": "function",
            "function": {
                "name": self.tool_names.protocol_name(name),
                **optional_fields,
                "parameters": dict(parameters),
            },
        }

    def _messages(self, capabilities: Capabilities) -> list[Json]:
        messages = [self._message(message) for message in self.call.messages]
        if self.call.output is None or capabilities.mode not in (OutputMode.JSON, OutputMode.TEXT):
            return messages
        schema = json.dumps(object_schema(self.call.output), ensure_ascii=False)
        text = _ONLY_JSON.format(schema=schema)
        if messages[0]["role"] == "system":
            # Some servers allow only one system message, and only as the first message.
            return [{**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
        return [{"role": "system", "content": text}, *messages]

    def _message(self, message: Message) -> Json:
        message_json = message.to_json()
        if message.tool_calls:
            message_json["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": self.tool_names.protocol_name(call.name), "arguments": call.arguments},
                }
                for call in message.tool_calls
            ]
        return message_json


def object_schema(output: OutputSchema) -> Mapping[str, Any]:
    """Return the output schema if it requires an object, else the schema of an object with the answer in `value`."""
    if output.schema.get("type") == "object" or "properties" in output.schema or "$ref" in output.schema:
        return output.schema
    definitions = {keyword: output.schema[keyword] for keyword in ("$defs", "definitions") if keyword in output.schema}
    inner_schema = {keyword: value for keyword, value in output.schema.items() if keyword not in definitions}
    return {"type": "object", "properties": {"value": inner_schema}, "required": ["value"], **definitions}


def is_wrapped(output: OutputSchema) -> bool:
    """Check whether the answer is wrapped in `value`."""
    return object_schema(output) is not output.schema
