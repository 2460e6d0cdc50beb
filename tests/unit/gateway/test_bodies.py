"""The gateway's own fields: where they may stand, which counts first, and what a service gets of a request."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers

from dagwright.interfaces.http.bodies import (
    ChatBody,
    RoutingMode,
    Shown,
    Wishes,
    json_of,
    passed_on,
    wishes_of,
)
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.response_items import ResponseBody


def test_request_without_own_fields_wishes_nothing() -> None:
    assert wishes_of({"model": "small"}, {}) == Wishes()


def test_header_counts_before_the_body_and_the_body_before_what_is_inside_of_it() -> None:
    body = {
        "session_id": "b",
        "metadata": {"session_id": "d", "routing_mode": "auto"},
        "extra_body": {"run_model": "m"},
    }
    assert wishes_of(body, {}) == Wishes(mode=RoutingMode.AUTO, session="b", run_model="m")
    headers = {"x-session-id": "h", "x-routing-mode": "direct", "idempotency-key": "k"}
    assert wishes_of(body, headers) == Wishes(mode=RoutingMode.DIRECT, session="h", run_model="m", key="k")
    assert wishes_of({"extra_body": {"session_id": "c"}, "metadata": {"session_id": "d"}}, {}).session == "c"


@pytest.mark.parametrize(
    ("sent", "session"),
    [
        ("\u00fcmlaut".encode(), "\u00fcmlaut"),
        ("\u8239".encode(), "\u8239"),
        (b"\xfcmlaut", "\u00fcmlaut"),
        (b"main", "main"),
    ],
)
def test_session_of_a_header_is_that_of_the_same_name_in_a_body(sent: bytes, session: str) -> None:
    headers = Headers(raw=[(b"x-session-id", sent)])
    assert wishes_of({}, headers) == wishes_of({"session_id": session}, {})


def test_metadata_says_everything_as_text() -> None:
    said = {"stream_progress": "full", "cancel_on_disconnect": "true", "inputs": '{"a": 1}'}
    assert wishes_of({"metadata": said}, {}) == Wishes(shown=Shown.FULL, cancels=True, inputs={"a": 1})


def test_question_says_how_many_rounds_and_how_long() -> None:
    said = {"deadline": "20m", "worker_timeout": "2m"}
    wished = Wishes(deadline_s=1_200.0, max_rounds=4, worker_timeout_s=120.0)
    assert (
        wishes_of({"max_rounds": 4, **said}, {}) == wishes_of({"metadata": {"max_rounds": "4", **said}}, {}) == wished
    )
    assert passed_on({"model": "m", "max_rounds": 4, **said}) == {"model": "m"}


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
        ({"metadata": {"max_rounds": "many"}}, "max_rounds"),
        ({"metadata": {"max_rounds": "9" * 5_000}}, "max_rounds"),
        ({"worker_timeout": 60}, "worker_timeout"),
        ({"deadline": "soon"}, "deadline"),
        ({"metadata": {"inputs": "{"}}, "inputs"),
        ({"metadata": {"inputs": "[1]"}}, "inputs"),
    ],
)
def test_field_that_holds_what_it_cannot_is_named(body: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        wishes_of(body, {})
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("value", [True, 2.0, [], {"a": 1}])
@pytest.mark.parametrize("kind", [ChatBody, ResponseBody])
def test_rounds_are_no_truth_and_no_fraction(kind: type[BaseModel], value: Any) -> None:
    asked = {"messages": [{"role": "user", "content": "a"}]} if kind is ChatBody else {"input": "a"}
    body = kind.model_validate({**asked, "max_rounds": value})
    with pytest.raises(ApiError, match="max_rounds: expected a whole number from 1 to "):
        wishes_of(body.model_dump(exclude_unset=True), {})
    assert wishes_of(kind.model_validate({**asked, "max_rounds": 2}).model_dump(), {}).max_rounds == 2


@pytest.mark.parametrize("kind", [ChatBody, ResponseBody])
def test_model_name_is_limited(kind: type[BaseModel]) -> None:
    asked = {"messages": [{"role": "user", "content": "a"}]} if kind is ChatBody else {"input": "a"}
    kind.model_validate({**asked, "model": "m" * 200})
    with pytest.raises(ValidationError, match="model\n  String should have at most 200 characters"):
        kind.model_validate({**asked, "model": "m" * 201})


def test_service_gets_a_request_without_own_fields() -> None:
    body = {"model": "m", "logprobs": True, "session_id": "s", "extra_body": {"a": 1}, "metadata": {"inputs": "{}"}}
    assert passed_on(body) == {"model": "m", "logprobs": True}
    assert passed_on({"metadata": {"run_model": "m", "trace": "1"}}) == {"metadata": {"trace": "1"}}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_text_may_nest_as_deep() -> None:
    assert json_of("[" * 100 + "1" + "]" * 100) == nested(100)


@pytest.mark.parametrize("text", ["[" * 20_000, "[" * 101 + "]" * 101, "{"])
def test_text_that_nests_too_deep_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        json_of(text)
