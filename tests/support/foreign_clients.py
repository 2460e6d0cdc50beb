"""Requests as known clients send them.

Only the form of a request comes from its client; the names, texts and values are ours. `source` is the origin of the
form. Most forms were recorded with a server that stores requests. With these requests, tests find changes of the
gateway that a client would not understand, and do not need to install the clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_WEATHER_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
}
_STRICT_WEATHER_PARAMETERS: Mapping[str, Any] = {
    **_WEATHER_PARAMETERS,
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}
QUESTION = "What is 1 + 2?"
EARLIER_MESSAGE_ID = "msg_run-1"
"""Placeholder for the ID of the message in an earlier response."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request of a client.

    Args:
        source: origin of the form, with the version; quoted words are settings of the client.
        body: the body without the field `model`.
        headers: headers in addition to those of every JSON request.
    """

    client: str
    source: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return "/v1/responses" if "input" in self.body else "/v1/chat/completions"

    @property
    def is_streamed(self) -> bool:
        return bool(self.body.get("stream"))


def _stainless_headers(user_agent: str, language: str) -> Mapping[str, str]:
    """Return headers of OpenAI's clients, which accept only JSON even if they request a stream."""
    shared_headers = {"Accept": "application/json", "X-Stainless-Retry-Count": "0"}
    return {**shared_headers, "User-Agent": user_agent, "X-Stainless-Lang": language}


_GO_HEADERS = _stainless_headers("OpenAI/Go 3.96.0", "go")
_PYTHON_HEADERS = _stainless_headers("OpenAI/Python 2.54.0", "python")
_AGENTS_HEADERS = _stainless_headers("Agents/Python 0.20.0", "python")
_LANGCHAIN_JS_HEADERS = _stainless_headers("langchainjs-openai/1.0.0 ((node/v20.20.2; linux; x64))", "js")
_CURL_HEADERS = {"Accept": "*/*", "User-Agent": "curl/7.88.1"}
_STREAM_OPTIONS = {"include_usage": True}

_SYSTEM_MESSAGE = {"role": "system", "content": "Be brief."}
_USER_MESSAGE = {"role": "user", "content": QUESTION}
_SYSTEM_ITEM = {**_SYSTEM_MESSAGE, "type": "message"}
_USER_ITEM = {**_USER_MESSAGE, "type": "message"}


def _user_message(text: str = QUESTION, *, part_type: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": part_type, "text": text}]}


def _function(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "weather", "description": "It.", "parameters": parameters}}


def _answer_item(*, logprobs: bool = False, **fields: object) -> dict[str, Any]:
    content_part: dict[str, Any] = {"type": "output_text", "text": "Four.", "annotations": []}
    if logprobs:
        content_part["logprobs"] = []
    return {"type": "message", "id": EARLIER_MESSAGE_ID, "role": "assistant", "content": [content_part], **fields}


_RECORDED_CURL = "headers recorded from curl 7.88.1; a user of curl writes the body"
_RECORDED_GO = "recorded: github.com/openai/openai-go/v3 3.96.0"
_RECORDED_LANGCHAIN = "recorded: langchain-openai 1.7.3 (PyPI)"
_RECORDED_LANGCHAIN_JS = "recorded: @langchain/openai 1.5.8 (npm)"
_RECORDED_LITELLM = "recorded: litellm 1.106.2 (PyPI)"
_RECORDED_COMPATIBLE = "recorded: @ai-sdk/openai-compatible 2.0.91 with ai 6.0.326 (npm), `includeUsage`"
_RECORDED_VERCEL = "recorded: @ai-sdk/openai 3.0.141 with ai 6.0.326 (npm)"
_RECORDED_AGENTS = "recorded: openai-agents 0.20.0 (PyPI)"

CLIENT_REQUESTS = (
    ClientRequest(
        "curl",
        _RECORDED_CURL,
        {"messages": [{"role": "developer", "content": "Be brief."}, _USER_MESSAGE]},
        headers=_CURL_HEADERS,
    ),
    ClientRequest(
        "curl, responses",
        _RECORDED_CURL,
        {"input": [_user_message(part_type="input_text")], "store": False},
        headers=_CURL_HEADERS,
    ),
    ClientRequest(
        "OpenAI Go, chat completions",
        _RECORDED_GO,
        {"messages": [_USER_MESSAGE], "seed": 1, "stream": True},
        headers=_GO_HEADERS,
    ),
    ClientRequest("OpenAI Go, responses", _RECORDED_GO, {"input": QUESTION}, headers=_GO_HEADERS),
    ClientRequest(
        "OpenAI Go, responses as a stream", _RECORDED_GO, {"input": QUESTION, "stream": True}, headers=_GO_HEADERS
    ),
    ClientRequest(
        "LangChain, Python, with functions and a conversation",
        f"{_RECORDED_LANGCHAIN}, `stream_usage`, `bind_tools` with `tool_choice` and `parallel_tool_calls`",
        {
            "messages": [
                {"content": "And 2 + 2?", "role": "user"},
                {"content": "Four.", "role": "assistant"},
                _user_message(part_type="text"),
            ],
            "parallel_tool_calls": False,
            "stream": True,
            "stream_options": _STREAM_OPTIONS,
            "tool_choice": "auto",
            "tools": [_function(_WEATHER_PARAMETERS)],
        },
        headers=_PYTHON_HEADERS,
    ),
    ClientRequest(
        "LangChain, Python, responses",
        f"{_RECORDED_LANGCHAIN}, `use_responses_api`",
        {"input": [_SYSTEM_ITEM, _USER_ITEM], "stream": False},
        headers=_PYTHON_HEADERS,
    ),
    ClientRequest(
        "LangChain, Python, responses, a second turn",
        f"{_RECORDED_LANGCHAIN}, `use_responses_api`",
        {
            "input": [{"content": "And 2 + 2?", "role": "user", "type": "message"}, _answer_item(), _USER_ITEM],
            "stream": False,
        },
        headers=_PYTHON_HEADERS,
    ),
    ClientRequest(
        "LangChain, JavaScript, as a stream with functions",
        f"{_RECORDED_LANGCHAIN_JS}, `bindTools`",
        {
            "stream": True,
            "tools": [
                _function({**_STRICT_WEATHER_PARAMETERS, "$schema": "https://json-schema.org/draft/2020-12/schema"})
            ],
            "stream_options": _STREAM_OPTIONS,
            "messages": [
                {"role": "user", "content": "And 2 + 2?"},
                {"role": "assistant", "content": "Four."},
                _user_message(part_type="text"),
            ],
        },
        headers=_LANGCHAIN_JS_HEADERS,
    ),
    ClientRequest(
        "LangChain, JavaScript, responses",
        f"{_RECORDED_LANGCHAIN_JS}, `useResponsesApi`",
        {"input": [_SYSTEM_ITEM, _USER_ITEM], "stream": False, "text": {}},
        headers=_LANGCHAIN_JS_HEADERS,
    ),
    ClientRequest(
        "LiteLLM, with fields of the gateway",
        f"{_RECORDED_LITELLM}, `extra_body`",
        {"messages": [_USER_MESSAGE], "stream_progress": "content"},
        headers=_PYTHON_HEADERS,
    ),
    ClientRequest(
        "LiteLLM, a model of OpenAI's",
        f"{_RECORDED_LITELLM}, openai/gpt-4o-mini; LiteLLM does not forward `metadata`",
        {
            "messages": [_USER_MESSAGE],
            "max_tokens": 256,
            "stream": True,
            "stream_options": _STREAM_OPTIONS,
            "user": "ann",
        },
        headers=_PYTHON_HEADERS,
    ),
    ClientRequest(
        "Vercel AI SDK, compatible provider",
        _RECORDED_COMPATIBLE,
        {
            "max_tokens": 256,
            "temperature": 0,
            "messages": [_SYSTEM_MESSAGE, _USER_MESSAGE],
            "tools": [_function(_STRICT_WEATHER_PARAMETERS)],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": _STREAM_OPTIONS,
        },
        headers={"Accept": "*/*"},
    ),
    ClientRequest(
        "Vercel AI SDK, OpenAI provider",
        f"{_RECORDED_VERCEL}, a model that the SDK does not treat as a reasoning model",
        {"input": [_SYSTEM_MESSAGE, _user_message(part_type="input_text")], "max_output_tokens": 256, "stream": True},
        headers={"Accept": "*/*"},
    ),
    ClientRequest(
        "Vercel AI SDK, OpenAI provider, a second turn",
        f"{_RECORDED_VERCEL}; the request has only the ID of the earlier answer",
        {
            "input": [
                _user_message("And 2 + 2?", part_type="input_text"),
                {"type": "item_reference", "id": "msg_run-1"},
                _user_message(part_type="input_text"),
            ]
        },
        headers={"Accept": "*/*"},
    ),
    ClientRequest(
        "OpenAI Agents SDK",
        _RECORDED_AGENTS,
        {"include": [], "input": [_USER_MESSAGE], "instructions": "Be brief.", "tools": []},
        headers=_AGENTS_HEADERS,
    ),
    ClientRequest(
        "OpenAI Agents SDK, as a stream with functions",
        _RECORDED_AGENTS,
        {
            "include": [],
            "input": [_USER_MESSAGE],
            "instructions": "Be brief.",
            "stream": True,
            "tools": [
                {
                    "name": "weather",
                    "parameters": {**_WEATHER_PARAMETERS, "title": "weather_args", "additionalProperties": False},
                    "strict": True,
                    "type": "function",
                    "description": "It.",
                }
            ],
        },
        headers=_AGENTS_HEADERS,
    ),
    ClientRequest(
        "OpenAI Agents SDK, a second turn",
        f"{_RECORDED_AGENTS}, `to_input_list`",
        {
            "include": [],
            "input": [
                {"content": "And 2 + 2?", "role": "user"},
                _answer_item(status="completed", logprobs=True),
                _USER_MESSAGE,
            ],
            "instructions": "Be brief.",
            "tools": [],
        },
        headers=_AGENTS_HEADERS,
    ),
    ClientRequest(
        "Open WebUI",
        "read: open_webui 0.12.4 (PyPI) routers/openai.py, main.py, utils/payload.py, utils/headers.py; settings: "
        "usage of the model, a temperature, `ENABLE_FORWARD_USER_INFO_HEADERS`",
        {"stream": True, "messages": [_USER_MESSAGE], "stream_options": _STREAM_OPTIONS, "temperature": 0.8},
        headers={
            "Accept": "*/*",
            "X-OpenWebUI-User-Name": "Ann",
            "X-OpenWebUI-User-Id": "1",
            "X-OpenWebUI-User-Email": "ann@example.com",
            "X-OpenWebUI-User-Role": "user",
        },
    ),
)
