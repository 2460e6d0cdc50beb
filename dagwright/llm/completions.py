"""Parse chat completions, streamed or not, and check that they are usable.

Servers omit fields and send different types, so only the presence of a message is required.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.model.json_schemas import validator_of
from dagwright.dialects.json_reader import depth_of
from dagwright.dialects.written_text import json_values
from dagwright.llm.capabilities import OutputMode
from dagwright.llm.errors import ServiceError
from dagwright.llm.prices import PriceTable
from dagwright.llm.request_body import PreparedCall, is_wrapped
from dagwright.planning.model_calls.model_failure import ModelError
from dagwright.planning.model_calls.model_requests import Message, ModelResponse, OutputSchema
from dagwright.planning.model_calls.response_summary import ToolCall
from dagwright.tools.result_json import DEPTH_LIMIT

_MAX_PROBLEMS = 5
_MAX_TOKENS = 10**8
"""Maximum plausible number of tokens of a call; if a server reports more, the usage of the call is unknown."""
_INVALID_RESULT_PROBLEM = (
    "it has an invalid number or lone surrogate, a key twice with different values, or too deep nesting"
)
_ENCLOSING_DEPTH = 10
"""Nesting levels reserved for the lists and objects that contain an answer, in a node result or in arguments."""


@dataclass(slots=True)
class CompletionContent:
    """Content of a chat completion.

    Args:
        usage: usage as received.
        calls: ID, name and arguments of each tool call.
    """

    text: str = ""
    refusal: str = ""
    finish_reason: str = ""
    model: str = ""
    usage: Any = None
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls, each with a unique ID.

        The results of calls refer to these IDs, so a missing or duplicate ID is replaced with an ID that is derived
        from the index.
        """
        ids: set[str] = set()
        calls = []
        for index, (call_id, name, arguments) in enumerate(self.calls):
            unique_id = call_id if call_id and call_id not in ids else f"call_{index + 1}"
            while unique_id in ids:
                unique_id += "_"
            ids.add(unique_id)
            calls.append(ToolCall(id=unique_id, name=name, arguments=arguments or "{}"))
        return calls

    def replace_surrogates(self) -> "CompletionContent":
        """Replace lone surrogates, which JSON cannot encode, with U+FFFD."""
        clean_text = without_lone_surrogates
        calls = [
            (clean_text(call_id), clean_text(name), clean_text(arguments)) for call_id, name, arguments in self.calls
        ]
        return replace(
            self,
            text=clean_text(self.text),
            refusal=clean_text(self.refusal),
            model=clean_text(self.model),
            calls=calls,
        )


def parse_completion(body: Any) -> CompletionContent:
    """Parse a response that is not streamed.

    Raises:
        ServiceError: the response is not a chat completion.
    """
    choice = _first_choice(body)
    message = choice.get("message") if choice is not None else None
    if not isinstance(body, Mapping) or choice is None or not isinstance(message, Mapping):
        body_text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)
        raise ServiceError("broken", f"returned something other than a chat completion: {body_text[:200]!r}")
    completion = CompletionContent(
        finish_reason=_text_or_empty(choice.get("finish_reason")),
        model=_text_or_empty(body.get("model")),
        usage=body.get("usage"),
    )
    completion.text, completion.refusal = _content(message.get("content")), _refusal(message)
    completion.calls = _calls_of(message)
    return completion


def to_stream_chunk(body: Any) -> Any:
    """Convert a complete response into a single stream chunk, for servers that ignore `stream: true`.

    Raises:
        ServiceError: the response is not a chat completion.
    """
    parse_completion(body)
    choice = body["choices"][0]
    message = choice["message"]
    # Streamed tool calls are identified by an index. A response without streaming has no indexes, and may have no IDs.
    calls = [
        {**call, "index": index} if isinstance(call, Mapping) else call
        for index, call in enumerate(_list_or_empty(message.get("tool_calls")))
    ]
    single_choice = {
        **choice,
        "delta": {**message, "tool_calls": calls},
        "finish_reason": choice.get("finish_reason") or "stop",
    }
    return {**body, "choices": [single_choice]}


class CompletionBuilder:
    """Assembles a streamed response.

    Args:
        output_tool: tool whose arguments are the answer, for servers that support JSON output only through tools.
    """

    def __init__(self, output_tool: str = "") -> None:
        self._output_tool = output_tool
        self._completion = CompletionContent()
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: dict[Any, _PartialToolCall] = {}
        self.character_count = 0
        """Number of characters received so far."""

    def add(self, chunk: Any) -> str:
        """Add the next chunk and return the text that it adds to the answer.

        Raises:
            ServiceError: the chunk is not a chunk of a chat completion.
        """
        if not isinstance(chunk, Mapping):
            raise ServiceError("broken", f"streamed an event that is not a chunk of a chat completion: {chunk!r:.200}")
        completion = self._completion
        completion.model = completion.model or _text_or_empty(chunk.get("model"))
        completion.usage = chunk.get("usage") or completion.usage
        choice = _first_choice(chunk)
        if choice is None:
            return ""
        completion.finish_reason = _text_or_empty(choice.get("finish_reason")) or completion.finish_reason
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return ""
        text = _content(delta.get("content"))
        self._texts.append(text)
        self._refusals.append(_refusal(delta))
        self.character_count += len(text) + len(self._refusals[-1])
        arguments = "".join(self._add_call(call) for call in _list_or_empty(delta.get("tool_calls")))
        return arguments if self._output_tool else text

    def _add_call(self, call: Any) -> str:
        """Add a fragment of a tool call and return the text that it adds to the answer."""
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            return ""
        call_id, index = _text_or_empty(call.get("id")), call.get("index")
        if not isinstance(index, int):
            # Some servers send each call in one chunk, without an index.
            index = len(self._calls) if call_id or not self._calls else len(self._calls) - 1
        partial_call = self._calls.setdefault(index, _PartialToolCall())
        arguments = _arguments(function.get("arguments"))
        partial_call.id = partial_call.id or call_id
        partial_call.name += _text_or_empty(function.get("name"))
        partial_call.arguments.append(arguments)
        self.character_count += len(arguments)
        return arguments if partial_call.name == self._output_tool else ""

    def content_so_far(self) -> CompletionContent:
        """Return the content received so far."""
        completion = self._completion
        completion.text, completion.refusal = "".join(self._texts), "".join(self._refusals)
        completion.calls = [(call.id, call.name, "".join(call.arguments)) for call in self._calls.values()]
        return completion

    def finish(self) -> CompletionContent:
        """Return the complete content.

        Raises:
            ServiceError: the stream ended before the response was complete.
        """
        if not self._completion.finish_reason:
            raise ServiceError("broken", "ended its stream before the answer was complete")
        return self.content_so_far()


@dataclass(slots=True)
class _PartialToolCall:
    """Tool call that is still being received."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


def _calls_of(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    ids_and_functions = [
        (_text_or_empty(call.get("id")), call["function"])
        for call in _list_or_empty(message.get("tool_calls"))
        if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)
    ]
    return [
        (call_id, _text_or_empty(function.get("name")), _arguments(function.get("arguments")))
        for call_id, function in ids_and_functions
    ]


def _first_choice(body: Any) -> Mapping[str, Any] | None:
    choices = _list_or_empty(body.get("choices")) if isinstance(body, Mapping) else []
    return choices[0] if choices and isinstance(choices[0], Mapping) else None


def _list_or_empty(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def without_lone_surrogates(text: str) -> str:
    """Replace each lone surrogate with U+FFFD. A pair that was split between chunks becomes one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _refusal(message: Mapping[str, Any]) -> str:
    """Return the refusal of a model. LiteLLM's proxy puts it into `provider_specific_fields`."""
    provider_fields = message.get("provider_specific_fields")
    return _text_or_empty(message.get("refusal")) or (
        _text_or_empty(provider_fields.get("refusal")) if isinstance(provider_fields, Mapping) else ""
    )


def _content(value: Any) -> str:
    """Return the text of a message's content. Some servers send a list of parts."""
    if isinstance(value, list):
        return "".join(_text_or_empty(part.get("text")) for part in value if isinstance(part, Mapping))
    return _text_or_empty(value)


def _arguments(value: Any) -> str:
    """Return the arguments of a call as text; some servers send an object."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def parse_usage(completion: CompletionContent, prices: PriceTable, *, requested_model: str) -> Usage:
    """Return the usage of a call with its cost.

    Args:
        requested_model: requested model; the server may report a more specific model.
    """
    usage_fields = completion.usage if isinstance(completion.usage, Mapping) else {}
    counts = [
        count for name in ("prompt_tokens", "completion_tokens") if isinstance(count := usage_fields.get(name), int)
    ]
    if not counts or max(counts) > _MAX_TOKENS:
        return Usage(calls=1, uncounted_calls=1)
    prompt = _count(usage_fields, "prompt_tokens")
    usage = Usage(
        calls=1,
        prompt_tokens=prompt,
        completion_tokens=_count(usage_fields, "completion_tokens"),
        cached_tokens=min(prompt, _count(usage_fields.get("prompt_tokens_details"), "cached_tokens")),
        reasoning_tokens=_count(usage_fields.get("completion_tokens_details"), "reasoning_tokens"),
    )
    return prices.add_cost(usage, completion.model, requested_model)


def _count(counts: Any, name: str) -> int:
    value = counts.get(name) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) and 0 < value <= _MAX_TOKENS else 0


def to_model_response(
    completion: CompletionContent, prepared_call: PreparedCall, mode: OutputMode, *, usage: Usage
) -> ModelResponse:
    """Convert a completion to the response of the call.

    Raises:
        ServiceError: the completion cannot be used. The error has the text and the usage of the completion.
    """
    completion = completion.replace_surrogates()
    try:
        return _to_model_response(completion, prepared_call, mode, usage=usage)
    except ServiceError as error:
        error.partial, error.usage = (
            completion.text or "".join(arguments for _, _, arguments in completion.calls),
            usage,
        )
        raise


def _to_model_response(
    completion: CompletionContent, prepared_call: PreparedCall, mode: OutputMode, *, usage: Usage
) -> ModelResponse:
    output = prepared_call.call.output
    _reject_unusable(completion)
    calls = completion.tool_calls()
    value: Any = None
    text: str | None = completion.text or None
    if output is not None and mode is OutputMode.TOOL:
        output_calls = [call for call in calls if call.name == prepared_call.tool_names.protocol_name(output.name)]
        if output_calls:
            # The tool is only the way in which this server returns JSON, so the call of the tool is hidden.
            calls, text = [], output_calls[0].arguments
    # If no tools were offered, drop the calls: they get no result, and servers reject a conversation that contains a
    # call without a result.
    accepted_calls = calls if prepared_call.call.tools else []
    tool_calls = tuple(
        call.model_copy(update={"name": prepared_call.tool_names.tool_name(call.name)}) for call in accepted_calls
    )
    if output is None and not completion.text.strip() and not tool_calls:
        # Models return empty answers occasionally. Without this check, a run could end with an empty answer.
        raise ServiceError(
            "broken", "called a tool, but no tools were offered" if calls else "returned an empty answer"
        )
    if output is not None and not tool_calls:
        value = _value_of(text or "", output, prepared_call, mode)
    return ModelResponse(
        message=Message(role="assistant", content=text if text or tool_calls else "", tool_calls=tool_calls),
        output=value,
        finish_reason="tool_calls" if tool_calls else "stop",
        model=completion.model or prepared_call.model,
        usage=usage,
    )


def _reject_unusable(completion: CompletionContent) -> None:
    if completion.refusal:
        raise ServiceError("classified", f"declined: {completion.refusal}", error=ModelError.REFUSED)
    match completion.finish_reason:
        case "length":
            raise ServiceError("classified", "stopped its answer at the token limit", error=ModelError.TRUNCATED)
        case "content_filter":
            raise ServiceError(
                "classified", "withheld its answer because of its content filter", error=ModelError.FILTERED
            )


def _value_of(text: str, output: OutputSchema, prepared_call: PreparedCall, mode: OutputMode) -> Any:
    """Return the valid value in an answer; `None` if there is no valid value and the schema is not enforced.

    Raises:
        ServiceError: the answer has no valid value, and the schema is enforced.
    """
    validator, problems = validator_of(output.schema), ""
    for json_value in json_values(text):
        if not _is_valid_result(json_value):
            problems = problems or _INVALID_RESULT_PROBLEM
            continue
        if mode is OutputMode.SCHEMA and prepared_call.strict_schema is not None:
            candidates = [prepared_call.strict_schema.from_strict(json_value), json_value]
        else:
            has_wrapper = is_wrapped(output) and isinstance(json_value, dict) and set(json_value) == {"value"}
            candidates = [json_value["value"], json_value] if has_wrapper else [json_value]
        for value in candidates:
            if validator.is_valid(value):
                return value
        problems = problems or _schema_problems(candidates[0], output)
    if not output.is_enforced:
        return None
    message = (
        f"gave JSON that does not fit the schema: {problems}" if problems else "gave no JSON, but the call requires it"
    )
    raise ServiceError("classified", message, error=ModelError.OUTPUT_INVALID)


def _is_valid_result(value: Any) -> bool:
    """Return whether a value can be a node result: no `1e999`, lone surrogate, conflicting keys or deep nesting."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return depth_of(value) <= DEPTH_LIMIT - _ENCLOSING_DEPTH


def _schema_problems(value: Any, output: OutputSchema) -> str:
    errors = islice(validator_of(output.schema).iter_errors(value), _MAX_PROBLEMS)
    return "; ".join(
        "/".join(["answer", *map(str, error.instance_path)]) + f": {str(error.message)[:300]}" for error in errors
    )
