"""Contracts of model calls: configs, messages, requests and responses, and invalid ones."""

import re
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from dagwright.llm import (
    CallLabels,
    Message,
    ModelCall,
    ModelConfig,
    ModelResponse,
    OfferedTool,
    OutputSchema,
    ToolCall,
    Usage,
    system,
    tool_result,
    user,
)
from dagwright.planning.model_calls.model_requests import (
    ModelRequest,
    NamedEndpoint,
    model_config_from_json,
    request_from_json,
    request_to_json,
    response_to_json,
)
from dagwright.planning.model_calls.response_summary import ResponseSummary, summarize_response

LOOK = ToolCall(id="c1", name="look.up", arguments="{")
ANSWERED = (system("s"), user("u"), Message(role="assistant", tool_calls=(LOOK,)), tool_result(LOOK, "r"))


FULL = ModelCall(
    ANSWERED,
    config=ModelConfig(model="m", temperature=0, reasoning_effort="low"),
    tools=(OfferedTool("look.up", "Looks.", {"type": "object"}),),
    tool_choice="required",
    output=OutputSchema("o", {"type": "object"}),
    labels=CallLabels("r", "n", "p"),
)


def test_requests_and_answers_survive_serialization() -> None:
    endpoint = NamedEndpoint("http://localhost/v1", "KEY")
    full = ModelRequest(FULL, before="sha256-x", is_continued=True, endpoint=endpoint)
    for request in (ModelRequest(ModelCall((user("u"),))), full):
        assert request_from_json(request_to_json(request)) == request
    usage = Usage(calls=1, prompt_tokens=3, money=Decimal("0.10"))
    answer = ModelResponse(ANSWERED[2], {"n": 1}, "tool_calls", "m", usage, conversation="sha256-x")
    result = summarize_response(response_to_json(answer))
    assert result == ResponseSummary("", {"n": 1}, (LOOK,), "tool_calls", "m", usage, "sha256-x")


NO_USAGE = "Usage: Input should be a valid dictionary or instance of Usage, got None"
WRONG_CALL = {"tool_calls": [{"id": 7, "name": "look", "arguments": "{}"}]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, NO_USAGE),
        ({"message": 7}, NO_USAGE),
        ({"usage": {"calls": -1}}, "Usage.calls: Input should be greater than or equal to 0, got -1"),
        ({"usage": {}, "message": WRONG_CALL}, "ToolCall.id: Input should be a valid string, got 7"),
    ],
)
def test_invalid_answer_is_refused_in_a_line(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        summarize_response(given)


def test_config_is_frozen_and_overrides_another() -> None:
    low, high = ModelConfig(model="a", temperature=1.0, seed=1), ModelConfig(model="b", seed=0)
    assert high.over(low) == ModelConfig(model="b", temperature=1.0, seed=0)
    with pytest.raises(ValidationError):
        low.model = "x"  # type: ignore[misc]


def test_fields_of_a_message_depend_on_its_role() -> None:
    message = {"role": "user", "content": "x"}
    for fields in ({**message, "tool_calls": (LOOK,)}, {**message, "role": "tool"}, {**message, "tool_call_id": "c1"}):
        with pytest.raises(ValidationError):
            Message(**fields)
    with pytest.raises(ValidationError):
        Message(role="robot", content="x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"temperature": 3}, "temperature: must be less than or equal to 2, got 3"),
        ({"temperature": "0.5"}, "temperature: must be a valid number, got '0.5'"),
        ({"temperature": float("nan")}, "temperature: must be"),
        ({"max_tokens": 0}, "max_tokens: must be greater than or equal to 1, got 0"),
        ({"max_tokens": True}, "max_tokens: must be a valid integer, got True"),
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"tempratur": 1}, "tempratur: there is no such field; did you mean 'temperature'?"),
        ({"reasoning_effort": "huge"}, "reasoning_effort: must be 'none', 'minimal', 'low'"),
        ({"top_p": 2, "seed": "x"}, "top_p: must be less than or equal to 1, got 2; seed: must be"),
        ([], "model config: must be"),
    ],
)
def test_a_wrong_config_is_refused_with_every_field(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        model_config_from_json(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "invalid request to a model: KeyError"),
        (None, "invalid request to a model: AttributeError"),
        ({"messages": [{"role": "robot"}]}, "role: must be 'system'"),
        ({"messages": [], "config": {"top_p": 7}}, "top_p: "),
        ({"messages": [], "labels": {"odd": "x"}}, "invalid request to a model: TypeError"),
    ],
)
def test_a_wrong_request_is_refused_with_words(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        request_from_json(given)
