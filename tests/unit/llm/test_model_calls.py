"""Types of model calls: valid and invalid configs, messages, requests and responses, and prices."""

import re
from decimal import Decimal
from pathlib import Path
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
    PricesUnreadable,
    PriceTable,
    ToolCall,
    Usage,
    read_prices,
    shipped_prices,
    system,
    tool_result,
    user,
)
from dagwright.llm.prices import Price
from dagwright.planning.model_calls.model_requests import (
    ModelRequest,
    NamedEndpoint,
    model_config_from_json,
    request_from_json,
    request_to_json,
    response_to_json,
)
from dagwright.planning.model_calls.response_summary import ResponseSummary, summarize_response

LOOK_CALL = ToolCall(id="c1", name="look.up", arguments="{")
CONVERSATION = (system("s"), user("u"), Message(role="assistant", tool_calls=(LOOK_CALL,)), tool_result(LOOK_CALL, "r"))


FULL_CALL = ModelCall(
    CONVERSATION,
    config=ModelConfig(model="m", temperature=0, reasoning_effort="low"),
    tools=(OfferedTool("look.up", "Looks.", {"type": "object"}),),
    tool_choice="required",
    output=OutputSchema("o", {"type": "object"}),
    labels=CallLabels("r", "n", "p"),
)


def test_requests_and_responses_survive_serialization() -> None:
    endpoint = NamedEndpoint("http://localhost/v1", "KEY")
    full_request = ModelRequest(
        FULL_CALL, previous_conversation="sha256-x", stores_conversation=True, endpoint=endpoint
    )
    for request in (ModelRequest(ModelCall((user("u"),))), full_request):
        assert request_from_json(request_to_json(request)) == request
    usage = Usage(calls=1, prompt_tokens=3, money=Decimal("0.10"))
    response = ModelResponse(CONVERSATION[2], {"n": 1}, "tool_calls", "m", usage, conversation="sha256-x")
    summary = summarize_response(response_to_json(response))
    assert summary == ResponseSummary("", {"n": 1}, (LOOK_CALL,), "tool_calls", "m", usage, "sha256-x")


NO_USAGE = "Usage: Input should be a valid dictionary or instance of Usage, got None"
MESSAGE_WITH_INVALID_CALL = {"tool_calls": [{"id": 7, "name": "look", "arguments": "{}"}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, NO_USAGE),
        ({"message": 7}, NO_USAGE),
        ({"usage": {"calls": -1}}, "Usage.calls: Input should be greater than or equal to 0, got -1"),
        ({"usage": {}, "message": MESSAGE_WITH_INVALID_CALL}, "ToolCall.id: Input should be a valid string, got 7"),
    ],
)
def test_invalid_response_is_rejected_with_a_message_of_one_line(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        summarize_response(value)


def test_fields_of_a_message_depend_on_its_role() -> None:
    invalid_fields: tuple[dict[str, Any], ...] = (
        {"role": "user", "tool_calls": (LOOK_CALL,)},
        {"role": "user", "tool_call_id": "c1"},
        {"role": "tool"},
        {"role": "robot"},
    )
    for fields in invalid_fields:
        with pytest.raises(ValidationError):
            Message(content="x", **fields)


@pytest.mark.parametrize(
    ("value", "message"),
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
def test_message_about_an_invalid_config_names_every_invalid_field(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        model_config_from_json(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "invalid request to a model: KeyError"),
        (None, "invalid request to a model: AttributeError"),
        ({"messages": [{"role": "robot"}]}, "role: must be 'system'"),
        ({"messages": [], "config": {"top_p": 7}}, "top_p: "),
        ({"messages": [], "labels": {"odd": "x"}}, "invalid request to a model: TypeError"),
    ],
)
def test_invalid_request_is_rejected_with_a_message(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        request_from_json(value)


USAGE = Usage(calls=1, prompt_tokens=1_000_000, completion_tokens=100_000, cached_tokens=400_000)


def save_prices(folder: Path, content: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def test_shipped_price_table_is_valid() -> None:
    assert shipped_prices().price("gpt-4o-2024-08-06", "x") == Price(Decimal("2.50"), Decimal("1.25"), Decimal("10.00"))
    assert shipped_prices().price("unknown-model") is None


@pytest.mark.parametrize(
    "content", ["models: {m: {prompt: 0.1, completion: 2}}", '{"models": {"m": {"prompt": 0.1, "completion": 2}}}']
)
def test_cost_is_exact_and_cached_tokens_cost_as_much_as_other_prompt_tokens_by_default(
    content: str, tmp_path: Path
) -> None:
    usage = read_prices(save_prices(tmp_path, content)).add_cost(USAGE, "m")
    assert (usage.money, usage.cost) == (Decimal("0.3"), Decimal("0.3"))


def test_user_prices_override_shipped_prices(tmp_path: Path) -> None:
    content = "models: {gpt-4o: {prompt: 1, completion: 1}, mine: {prompt: 0, completion: 0}}"
    table = read_prices(save_prices(tmp_path, content)).with_defaults(shipped_prices())
    assert (table.price("gpt-4o"), table.add_cost(USAGE, "mine").cost) == (Price(*[Decimal(1)] * 3), Decimal(0))
    assert table.price("gpt-4o-mini") is not None


def test_sum_of_usages_has_no_cost_if_the_cost_of_one_call_is_unknown() -> None:
    table = PriceTable({"m": Price(Decimal(1), Decimal("0.5"), Decimal(2))})
    priced_usage, unpriced_usage = table.add_cost(USAGE, "m"), table.add_cost(USAGE, "other")
    uncounted_usage = table.add_cost(Usage(calls=1, uncounted_calls=1), "m")
    assert (priced_usage.cost, unpriced_usage.cost, uncounted_usage.cost) == (Decimal("1.0"), None, None)
    total = sum([priced_usage, unpriced_usage, uncounted_usage, priced_usage], Usage())
    tokens = {"prompt_tokens": 3_000_000, "completion_tokens": 300_000, "cached_tokens": 1_200_000}
    assert total == Usage(calls=4, money=Decimal("2.0"), unpriced_calls=1, uncounted_calls=1, **tokens)
    assert (total.cost, total.tokens, total.to_json()["money"]) == (None, 3_300_000, "2.0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "a price table has models"),
        ("models: {m: 3}", "models/m: a price has prompt, completion and perhaps cached"),
        ("models: {m: {prompt: 1}}", "models/m: a price has prompt"),
        ("models: {m: {prompt: 1, completion: 1, extra: 2}}", "models/m: a price has prompt"),
        ("models: {m: {prompt: cheap, completion: 1}}", "models/m: 'cheap' is not a price; write a number from 0"),
        ("models: {m: {prompt: -1, completion: 1}}", "models/m: '-1' is not a price"),
        ("models: {m: {prompt: NaN, completion: 1}}", "models/m: 'NaN' is not a price"),
        ("models: [", "while parsing"),
        (None, "No such file"),
    ],
)
def test_invalid_price_table_is_rejected_with_its_file_and_key(
    content: str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "none.yaml" if content is None else save_prices(tmp_path, content)
    with pytest.raises(PricesUnreadable) as error_info:
        read_prices(path)
    assert str(error_info.value).replace("\n", " ").startswith(f"{path}: {message}")
