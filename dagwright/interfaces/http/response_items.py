"""Convert between the Responses API and chat completions.

The ID of a response contains the run ID and the model, so that any gateway can find both.
"""

import base64
import binascii
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import question_call
from dagwright.interfaces.http.request_fields import (
    GATEWAY_FIELDS,
    ChatBody,
    ChatMessage,
    JsonObject,
    JsonObjects,
    RoundsField,
    RoutingModeField,
    StreamProgressField,
    SynthesisField,
)
from dagwright.interfaces.http.run_outcome import RunOutcome
from dagwright.planning.model_calls.model_requests import MODEL_NAME_CHARACTERS

_PREFIX = "resp_"
_NO_CALLS_SUFFIX = "~"
"""ID suffix of a response whose request allows no calls of `answer_feedback`. `~` is not a base64 character."""
_COMMON_FIELDS = (
    *("model", "metadata", "user", "temperature", "top_p", "seed"),
    *GATEWAY_FIELDS,
)
"""Fields with the same name in both APIs."""
_MESSAGE_PREFIX, _CALL_PREFIX = "msg_", "fc_"
"""Prefixes of item IDs. The rest of a message ID is the ID of the run that answered."""
_REFERENCE_TYPE = "item_reference"
_IGNORED_ITEM_TYPES = ("reasoning", _REFERENCE_TYPE)
"""Item types that a run ignores. A reference is ignored only if no answer of a run replaces it."""
_IGNORED_REFERENCE_PREFIXES = (_CALL_PREFIX, "rs_")
"""Prefixes of references to function calls and reasoning."""


NO_REFERENCES: Mapping[str, str | None] = {}


class CreateResponseBody(BaseModel):
    """Body of a request that creates a response."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"model": "profile/plan", "input": "Double the sum of 1 and 2."},
                {"model": "plan/report", "input": '{"region": "north"}', "background": True},
            ]
        },
    )

    model: str | None = Field(default=None, max_length=MODEL_NAME_CHARACTERS)
    input: str | JsonObjects = Field(description="A text, or items of a conversation.")
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = Field(default=None, description="Respond at once; fetch the response by its ID.")
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: str | JsonObject | None = Field(default=None, description="Not supported: use `session_id`.")
    tools: JsonObjects | None = Field(
        default=None, description="Declare `answer_feedback` to receive questions as calls of this function."
    )
    tool_choice: str | JsonObject | None = None
    text: JsonObject | None = Field(
        default=None, description="`format`: `json_schema` or `json_object` to validate the answer of a run."
    )
    metadata: JsonObject | None = None
    user: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_output_tokens: int | None = None
    routing_mode: RoutingModeField = None
    session_id: str | None = None
    stream_progress: StreamProgressField = None
    cancel_on_disconnect: bool | None = None
    inputs: JsonObject | None = None
    run_model: str | None = None
    deadline: str | None = None
    max_rounds: RoundsField = None
    worker_timeout: str | None = None
    synthesis: SynthesisField = None
    extra_body: JsonObject | None = None


def referenced_runs(body: CreateResponseBody) -> dict[str, int]:
    """Return the runs whose answers are referenced by message IDs: run -> index of its last reference in the input.

    Raises:
        ApiError: a reference does not refer to the answer of a run.
    """
    runs: dict[str, int] = {}
    for index, item in enumerate(body.input if isinstance(body.input, list) else ()):
        id = item.get("id")
        if item.get("type") != _REFERENCE_TYPE or (isinstance(id, str) and id.startswith(_IGNORED_REFERENCE_PREFIXES)):
            continue
        if (
            not isinstance(id, str)
            or not id.removeprefix(_MESSAGE_PREFIX).isprintable()
            or not id.startswith(_MESSAGE_PREFIX)
        ):
            raise unknown_reference_error(index)
        runs[id.removeprefix(_MESSAGE_PREFIX)] = index
    return runs


def unknown_reference_error(index: int) -> ApiError:
    """Return the error for a reference to an item that is not stored.

    Args:
        index: index of the reference in the input.
    """
    message = (
        f"input.{index}: an item_reference must have the message id of a run's answer; send the message itself (in the "
        "Vercel AI SDK, set providerOptions.openai.store to false), or use session_id"
    )
    return ApiError(ErrorCode.UNKNOWN_ITEM, message, param="input")


def run_of_referenced_question(body: CreateResponseBody) -> str | None:
    """Return the ID of the run whose questions are answered by the function results at the end of the input.

    The input must refer to the questions by item references. If the input contains the questions themselves, the result
    is `None`, because the calls of the questions contain the run ID.
    """
    items = list(body.input) if isinstance(body.input, list) else []
    while items and items[-1].get("type") == "function_call_output":
        items.pop()
    ids = [str(item.get("id")) if item.get("type") == _REFERENCE_TYPE else "" for item in items]
    while ids and ids[-1].startswith(_CALL_PREFIX):
        ids.pop()
    has_results_and_calls = len(ids) < len(items) < len(body.input)
    if has_results_and_calls and ids and ids[-1].startswith(_MESSAGE_PREFIX):
        return ids[-1].removeprefix(_MESSAGE_PREFIX)
    return None


def to_chat_body(body: CreateResponseBody, references: Mapping[str, str | None] = NO_REFERENCES) -> ChatBody:
    """Convert the body of a response request to the body of a chat request.

    Args:
        references: run -> answer of the run. A reference to a run that is not in this mapping is omitted.

    Raises:
        ApiError: neither a run nor the chat completions API supports the request.
    """
    if body.conversation is not None:
        message = "conversations are not supported: use session_id, or send previous_response_id"
        raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, message, param="conversation")
    messages = _messages(body, references)
    if not messages:
        raise ApiError(ErrorCode.INVALID_VALUE, "input is empty", param="input")
    body_fields = body.model_dump(exclude_unset=True)
    fields = {name: body_fields[name] for name in (*_COMMON_FIELDS, "extra_body") if body_fields.get(name) is not None}
    if body.max_output_tokens is not None:
        fields["max_completion_tokens"] = body.max_output_tokens
    if body.tools:
        fields["tools"] = [_chat_tool(tool) for tool in body.tools]
    if body.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(body.tool_choice)
    if (requested_format := _response_format(body.text)) is not None:
        fields["response_format"] = requested_format
    return ChatBody(messages=messages, **fields)


def _messages(body: CreateResponseBody, references: Mapping[str, str | None]) -> list[ChatMessage]:
    messages = [ChatMessage(role="system", content=body.instructions)] if body.instructions else []
    if isinstance(body.input, str):
        return [*messages, ChatMessage(role="user", content=body.input)]
    for index, item in enumerate(body.input):
        item_type = item.get("type", "message")
        if item_type == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if messages and messages[-1].role == "assistant":
                messages[-1].tool_calls = [*(messages[-1].tool_calls or ()), call]
            else:
                messages.append(ChatMessage(role="assistant", content=None, tool_calls=[call]))
        elif item_type == "function_call_output":
            messages.append(
                ChatMessage(
                    role="tool", content=_text(item.get("output"), index), tool_call_id=str(item.get("call_id"))
                )
            )
        elif item_type == "message" and item.get("role") in ("system", "developer", "user", "assistant"):
            messages.append(ChatMessage(role=item["role"], content=_text(item.get("content"), index)))
        elif item_type == _REFERENCE_TYPE and (
            answer := references.get(str(item.get("id")).removeprefix(_MESSAGE_PREFIX))
        ):
            messages.append(ChatMessage(role="assistant", content=answer))
        elif item_type not in _IGNORED_ITEM_TYPES:
            text = (
                f"input.{index}: items of type {item_type!r:.40} are not supported; send messages and function results"
            )
            raise ApiError(ErrorCode.UNSUPPORTED_CONTENT, text, param="input")
    return messages


def _text(content: Any, index: int) -> str:
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    texts = []
    for part in parts if isinstance(parts, list) else [None]:
        text = part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            raise ApiError(
                ErrorCode.UNSUPPORTED_CONTENT,
                f"input.{index}: only text is supported; send images and files with chat completions",
                param="input",
            )
        texts.append(text)
    return "\n".join(texts)


def _chat_tool(tool: Mapping[str, Any]) -> JsonObject:
    if tool.get("type") != "function":
        message = f"tools of type {tool.get('type')!r:.40} are not supported: a run uses the tools of the gateway"
        raise ApiError(ErrorCode.UNSUPPORTED_TOOL, message, param="tools")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _response_format(text: JsonObject | None) -> JsonObject | None:
    """Convert `text.format` of a response to the `response_format` of chat completions."""
    requested_format = None if text is None else text.get("format")
    if not isinstance(requested_format, Mapping) or requested_format.get("type") in (None, "text"):
        return None
    if requested_format.get("type") != "json_schema":
        return dict(requested_format)
    schema_fields = {name: value for name, value in requested_format.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema_fields}


def _tool_choice(choice: str | JsonObject) -> str | JsonObject:
    """Convert the `tool_choice` of a response to the `tool_choice` of chat completions."""
    if isinstance(choice, str):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = [_chat_tool(tool) for tool in choice.get("tools") or () if isinstance(tool, Mapping)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}
    return _chat_tool(choice)


@dataclass(frozen=True, slots=True)
class ResponseRef:
    """The content of a response ID.

    Args:
        model: model ID as the client sent it.
        allows_calls: whether questions may be sent as calls of `answer_feedback`.
    """

    run_id: str
    model: str
    allows_calls: bool = True

    @property
    def id(self) -> str:
        """The ID of the response."""
        encoded_model = base64.urlsafe_b64encode(self.model.encode()).decode().rstrip("=")
        return f"{_PREFIX}{self.run_id}.{encoded_model}{'' if self.allows_calls else _NO_CALLS_SUFFIX}"


def parse_response_id(response_id: str) -> ResponseRef:
    """Parse a response ID.

    Raises:
        ApiError: the text is not the ID of a response of a run.
    """
    run_id, dot, encoded_model = response_id.removeprefix(_PREFIX).rpartition(".")
    allows_calls, encoded_model = (
        not encoded_model.endswith(_NO_CALLS_SUFFIX),
        encoded_model.removesuffix(_NO_CALLS_SUFFIX),
    )
    try:
        model = base64.urlsafe_b64decode(encoded_model + "=" * (-len(encoded_model) % 4)).decode()
    except (binascii.Error, ValueError):
        dot, model = "", ""
    if not (dot and run_id and run_id.isprintable() and response_id.startswith(_PREFIX)):
        message = f"there is no response {response_id!r:.120}; only responses of runs are stored"
        raise ApiError(ErrorCode.NOT_FOUND, message)
    return ResponseRef(run_id, model, allows_calls)


def response_object(body: Mapping[str, Any], ref: ResponseRef, *, status: str) -> dict[str, Any]:
    """Return a response without its answer.

    Args:
        body: known fields of the request body.
        status: `in_progress`, `completed`, `failed` or `cancelled`.
    """
    id, previous_id = ref.id, body.get("previous_response_id")
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "background": bool(body.get("background")),
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": ref.model,
        "output": [],
        "parallel_tool_calls": True,
        # If the request answers a question, its response has the same ID as the response with the question.
        "previous_response_id": None if previous_id == id else previous_id,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": body.get("temperature"),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [],
        "top_p": body.get("top_p"),
        "truncation": "disabled",
        "usage": None,
        "user": body.get("user"),
        "metadata": body.get("metadata") or {},
    }


def completed_response(response: Mapping[str, Any], outcome: RunOutcome, *, run_id: str) -> dict[str, Any]:
    """Return a response with its answer.

    The answer is a text, followed by a call for each question that the client receives as a call. If the client
    requires the answer as a call of one of the client's functions, the answer is only this call.
    """
    calls = [question_call(request, run_id=run_id) for request in outcome.requests_as_tool_calls]
    items: list[dict[str, Any]] = [message_item(outcome.text, answer_id=run_id)]
    if outcome.output_form is not None and outcome.has_answer_as_call:
        items, calls = [], [outcome.output_form.function_call(outcome.text, run_id=run_id)]
    for call in calls:
        items.append(
            {
                "type": "function_call",
                "id": call["id"].replace("call_", _CALL_PREFIX),
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": "completed",
            }
        )
    return {
        **response,
        "status": "completed",
        "output": items,
        "usage": _usage(outcome.usage),
        "dagwright": outcome.run_fields,
    }


def message_item(text: str, *, answer_id: str) -> dict[str, Any]:
    """Return the message item of an answer.

    Args:
        answer_id: ID of the run or of the completion that wrote the answer.
    """
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": f"{_MESSAGE_PREFIX}{answer_id}",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def failed_response(response: Mapping[str, Any], error: ApiError) -> dict[str, Any]:
    """Return the response of a run without an answer."""
    status = "cancelled" if error.code == "run_cancelled" else "failed"
    return {**response, "status": status, "error": {"code": error.code, "message": error.message}}


def response_of_completion(body: Mapping[str, Any], completion: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """Convert a chat completion of the model service to a response, which is not stored."""
    message: Mapping[str, Any] = ((completion.get("choices") or [{}])[0]).get("message") or {}
    completion_id = str(completion.get("id") or "direct")
    items = [message_item(message["content"], answer_id=completion_id)] if message.get("content") else []
    items += [
        {
            "type": "function_call",
            "id": f"{_CALL_PREFIX}{call['id']}",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for call in message.get("tool_calls") or ()
    ]
    response = response_object(body, ResponseRef(completion_id, model), status="completed")
    usage = completion.get("usage")
    return {
        **response,
        "id": f"{_PREFIX}{completion_id}",
        "store": False,
        "output": items,
        "usage": _usage(usage) if isinstance(usage, Mapping) else None,
    }


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    input_details = usage.get("prompt_tokens_details") or {}
    output_details = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "input_tokens_details": {"cached_tokens": input_details.get("cached_tokens") or 0},
        "output_tokens": usage.get("completion_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": output_details.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens", 0),
    }


def item_events(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all events of complete items."""
    events: list[dict[str, Any]] = []
    for item in items:
        if item["type"] == "message":
            events += [*message_start_events(item), text_delta(item, item["content"][0]["text"])]
    return events + item_events_after_text(items)


def item_events_after_text(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the events that follow the text of the message: the end of the message, and all events of the calls."""
    events: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        position = {"output_index": index, "item_id": item["id"]}
        started_item = {**item, "status": "in_progress"}
        if item["type"] == "message":
            (part,) = item["content"]
            content_position = {**position, "content_index": 0}
            events += [
                {"type": "response.output_text.done", **content_position, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **content_position, "part": part},
            ]
        else:
            arguments = item["arguments"]
            events += [
                {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**started_item, "arguments": ""},
                },
                {"type": "response.function_call_arguments.delta", **position, "delta": arguments},
                {
                    "type": "response.function_call_arguments.done",
                    **position,
                    "arguments": arguments,
                    "name": item["name"],
                },
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return events


def message_start_events(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events before the text of a message. The message must be the first item of its response."""
    (part,) = item["content"]
    content_position = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    started_item = {**item, "status": "in_progress", "content": []}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": started_item},
        {"type": "response.content_part.added", **content_position, "part": {**part, "text": ""}},
    ]


def text_delta(item: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the event for a part of the text of a message item."""
    content_position = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    return {"type": "response.output_text.delta", **content_position, "delta": text, "logprobs": []}
