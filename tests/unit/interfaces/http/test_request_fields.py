"""Fields of the gateway: location, precedence, and removal from requests to the model service."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers

from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.request_fields import (
    ChatBody,
    GatewayOptions,
    RoutingMode,
    StreamProgress,
    gateway_options,
    parse_json,
    service_body,
)
from dagwright.interfaces.http.response_items import CreateResponseBody


def test_header_takes_precedence_over_body_extra_body_and_metadata() -> None:
    assert gateway_options({"model": "small"}, {}) == GatewayOptions()
    metadata = {"session_id": "d", "routing_mode": "auto"}
    body = {"session_id": "b", "metadata": metadata, "extra_body": {"run_model": "m"}}
    assert gateway_options(body, {}) == GatewayOptions(routing_mode=RoutingMode.AUTO, session_id="b", run_model="m")
    headers = {"x-session-id": "h", "x-routing-mode": "direct", "idempotency-key": "k"}
    assert gateway_options(body, headers) == GatewayOptions(
        routing_mode=RoutingMode.DIRECT, session_id="h", run_model="m", idempotency_key="k"
    )
    assert gateway_options({"extra_body": {"session_id": "c"}, "metadata": {"session_id": "d"}}, {}).session_id == "c"


@pytest.mark.parametrize(
    ("raw_header", "session_id"), [("\u8239".encode(), "\u8239"), (b"\xfcmlaut", "\u00fcmlaut"), (b"main", "main")]
)
def test_session_header_is_decoded_as_utf_8_or_latin_1(raw_header: bytes, session_id: str) -> None:
    headers = Headers(raw=[(b"x-session-id", raw_header)])
    assert gateway_options({}, headers) == gateway_options({"session_id": session_id}, {})


def test_metadata_may_have_every_field_as_text() -> None:
    fields = {"stream_progress": "full", "cancel_on_disconnect": "true", "inputs": '{"a": 1}'}
    assert gateway_options({"metadata": fields}, {}) == GatewayOptions(
        stream_progress=StreamProgress.FULL, cancel_on_disconnect=True, inputs={"a": 1}
    )
    durations = {"deadline": "20m", "worker_timeout": "2m"}
    expected = GatewayOptions(deadline_s=1_200.0, max_rounds=4, worker_timeout_s=120.0)
    assert gateway_options({"max_rounds": 4, **durations}, {}) == expected
    assert gateway_options({"metadata": {"max_rounds": "4", **durations}}, {}) == expected


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"routing_mode": "best"}, "routing_mode"),
        ({"routing_mode": 1}, "routing_mode"),
        ({"stream_progress": "all"}, "stream_progress"),
        ({"cancel_on_disconnect": "perhaps"}, "cancel_on_disconnect"),
        ({"metadata": {"session_id": 1}}, "session_id"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"max_rounds": True}, "max_rounds"),
        ({"metadata": {"max_rounds": "9" * 5_000}}, "max_rounds"),
        ({"worker_timeout": 60}, "worker_timeout"),
        ({"deadline": "soon"}, "deadline"),
        ({"metadata": {"inputs": "{"}}, "inputs"),
        ({"metadata": {"inputs": "[1]"}}, "inputs"),
    ],
)
def test_invalid_field_is_named(body: Any, param: str) -> None:
    with pytest.raises(ApiError) as error:
        gateway_options(body, {})
    assert (error.value.status, error.value.param) == (400, param)


@pytest.mark.parametrize("body_type", [ChatBody, CreateResponseBody])
def test_max_rounds_is_an_integer_and_model_names_have_at_most_200_characters(body_type: type[BaseModel]) -> None:
    message = {"messages": [{"role": "user", "content": "a"}]} if body_type is ChatBody else {"input": "a"}
    invalid_values: Any = (True, 2.0, [], {"a": 1})
    for value in invalid_values:
        body = body_type.model_validate({**message, "max_rounds": value})
        with pytest.raises(ApiError, match="max_rounds: expected a whole number from 1 to "):
            gateway_options(body.model_dump(exclude_unset=True), {})
    assert gateway_options(body_type.model_validate({**message, "max_rounds": 2}).model_dump(), {}).max_rounds == 2
    body_type.model_validate({**message, "model": "m" * 200})
    with pytest.raises(ValidationError, match="model\n  String should have at most 200 characters"):
        body_type.model_validate({**message, "model": "m" * 201})


def test_gateway_fields_are_not_sent_to_the_model_service() -> None:
    gateway_fields: dict[str, Any] = {"session_id": "s", "extra_body": {"a": 1}, "metadata": {"inputs": "{}"}}
    gateway_fields |= {"max_rounds": 4, "deadline": "20m", "worker_timeout": "2m"}
    assert service_body({"model": "m", "logprobs": True, **gateway_fields}) == {"model": "m", "logprobs": True}
    assert service_body({"metadata": {"run_model": "m", "trace": "1"}}) == {"metadata": {"trace": "1"}}


def test_json_may_have_at_most_100_levels() -> None:
    assert parse_json("[" * 100 + "1" + "]" * 100) == json.loads("[" * 100 + "1" + "]" * 100)
    for text in ("[" * 20_000, "[" * 101 + "]" * 101, "{"):
        with pytest.raises(ValueError, match=r".*"):
            parse_json(text)
