"""Requests as well-known clients send them, by what their documentation and sources say of the form.

Only the form is theirs; names, words and values are ours. Each stands with what it does to the answer, so that a change
of the gateway that one of them would not understand is found without installing them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WEATHER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
    "additionalProperties": False,
    "$schema": "http://json-schema.org/draft-07/schema#",
}
ASK = "What is 1 + 2?"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request.

    Args:
        client: who sends it so.
        body: without its model.
        headers: beside those of every request with JSON.
    """

    client: str
    body: Mapping[str, Any]
    path: str = "/v1/chat/completions"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_streamed(self) -> bool:
        """Tells whether the answer is to come as events."""
        return bool(self.body.get("stream"))


_STAINLESS = {
    "User-Agent": "OpenAI/Go 3.76.0",
    "X-Stainless-Lang": "go",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Timeout": "600",
}

SENT = (
    Sent(
        "curl",
        {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": ASK}]},
        headers={"User-Agent": "curl/8.5.0", "Accept": "*/*"},
    ),
    Sent(
        "curl with the newer API",
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": ASK}]}], "store": False},
        path="/v1/responses",
    ),
    Sent(
        "OpenAI Go, chat completions",
        {"messages": [{"content": ASK, "role": "user"}], "seed": 1, "stream": True},
        headers=_STAINLESS,
    ),
    Sent("OpenAI Go, responses", {"input": ASK}, path="/v1/responses", headers=_STAINLESS),
    Sent("OpenAI Go, responses as a stream", {"input": ASK, "stream": True}, path="/v1/responses", headers=_STAINLESS),
    Sent(
        "OpenAI .NET",
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                {"role": "user", "content": [{"type": "text", "text": ASK}]},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    Sent(
        "LangChain, Python",
        {
            "messages": [{"content": "Be brief.", "role": "system"}, {"content": ASK, "role": "user"}],
            "temperature": 0.7,
            "n": 1,
            "stream": False,
        },
    ),
    Sent(
        "LangChain, Python, with functions and a conversation",
        {
            "messages": [
                {"content": "And 2 + 2?", "role": "user"},
                {"content": "Four.", "role": "assistant"},
                {"content": [{"type": "text", "text": ASK}], "role": "user"},
            ],
            "parallel_tool_calls": False,
            "stop": None,
            "stream": True,
            "stream_options": {"include_usage": True},
            "tool_choice": "auto",
            "tools": [{"type": "function", "function": {"name": "weather", "description": "", "parameters": WEATHER}}],
        },
    ),
    Sent(
        "LangChain, JavaScript",
        {
            "temperature": 1,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "n": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": ASK}],
        },
    ),
    Sent(
        "LiteLLM",
        {
            "messages": [{"role": "user", "content": ASK}],
            "max_tokens": 256,
            "user": "ann",
            "metadata": {"tags": "test", "stream_progress": "content"},
            "extra_body": {},
        },
    ),
    Sent(
        "Vercel AI SDK, compatible provider",
        {
            "max_tokens": 256,
            "temperature": 0,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}],
            "tools": [
                {"type": "function", "function": {"name": "weather", "description": "It.", "parameters": WEATHER}}
            ],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    Sent(
        "Vercel AI SDK, OpenAI provider",
        {
            "input": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": ASK}]},
            ],
            "max_output_tokens": 256,
            "stream": True,
        },
        path="/v1/responses",
    ),
    Sent(
        "OpenAI Agents SDK",
        {
            "input": [{"content": ASK, "role": "user"}],
            "instructions": "Be brief.",
            "include": [],
            "tools": [],
            "store": None,
            "stream": False,
            "text": {"format": {"type": "text"}},
        },
        path="/v1/responses",
    ),
    Sent(
        "LlamaIndex",
        {"messages": [{"role": "user", "content": ASK}], "stream": True, "temperature": 0.1, "max_tokens": None},
    ),
    Sent(
        "Open WebUI",
        {
            "stream": True,
            "messages": [{"role": "user", "content": ASK}],
            "stream_options": {"include_usage": True},
            "temperature": 0.8,
        },
        headers={"Accept": "*/*", "X-OpenWebUI-User-Name": "Ann"},
    ),
    Sent(
        "Continue",
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": ASK}]}],
            "max_tokens": 4096,
            "stream": True,
        },
    ),
)
