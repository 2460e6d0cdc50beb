"""Agents that are services, called over real HTTP: requests, responses and failures."""

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary.wire import HEADER_CHECKED_VERSION
from tests.support.agent_harness import SECRET, AgentHarness, card_of, service_registry
from tests.support.agent_service import agent_service
from tests.support.http_servers import ReceivedRequest, ServiceResponse

ARGUMENTS = {"objective": "Find it", "context": {"a": {"n": 1}}}


async def failure_and_requests(
    response: ServiceResponse, *, allow_private: bool = True, **card: Any
) -> tuple[ApplicationError, list[ReceivedRequest]]:
    with agent_service(response) as service:
        harness = AgentHarness(service_registry(service.url, **card), allow_private=allow_private)
        return await harness.failure(ARGUMENTS), service.requests


def is_signed(request: ReceivedRequest) -> bool:
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed_content = b".".join(
        [request.headers["webhook-id"].encode(), request.headers["webhook-timestamp"].encode(), request.body]
    )
    expected_signature = base64.b64encode(hmac.digest(key, signed_content, hashlib.sha256)).decode()
    return request.headers["webhook-signature"] == f"v1,{expected_signature}"


async def test_service_receives_a_signed_request_and_its_result_becomes_the_result_of_the_node() -> None:
    with agent_service(ServiceResponse(body={"result": {"found": [1, 2]}})) as service:
        harness = AgentHarness(service_registry(service.url, service_secret="DESK", effects="read"))
        payload = await harness.payload(ARGUMENTS)
    assert json.loads(payload.data) == {"found": [1, 2]}
    (request,) = service.requests
    call = {"run_id": "test", "node_id": "n1", "attempt": 2}
    assert request.json_body == {"agent": "helper", **ARGUMENTS, "call": call, "answers": [], "checkpoint": None}
    assert is_signed(request)
    assert request.headers["idempotency-key"] == request.headers["webhook-id"]
    assert request.headers["content-type"] == "application/json"


async def test_request_is_unsigned_without_service_secret_and_an_unset_secret_is_reported() -> None:
    with agent_service(ServiceResponse(body={"result": None})) as service:
        payload = await AgentHarness(service_registry(service.url)).payload(ARGUMENTS)
    (request,) = service.requests
    assert (json.loads(payload.data), [name for name in request.headers if name.startswith("webhook")]) == (None, [])
    failure, requests = await failure_and_requests(ServiceResponse(), service_secret="OTHER")
    assert (failure.type, failure.non_retryable, requests) == ("missing_secret", True, [])
    assert failure.message == "the agent 'helper' signs its requests: set DAGWRIGHT_SECRET_OTHER for the worker"


@pytest.mark.parametrize(
    ("effects", "response", "is_final", "delay_s"),
    [
        ("read", ServiceResponse(503, None, {"Retry-After": "9"}), False, 9),
        ("idempotent", ServiceResponse(500, b"oh"), False, None),
        ("write", ServiceResponse(503, None, {"Retry-After": "9"}), True, None),
        ("write", ServiceResponse(429, None, {"Retry-After": "9"}), False, 9),
        ("read", ServiceResponse(408, None), False, None),
        ("read", ServiceResponse(404, b"no such desk"), True, None),
        ("read", ServiceResponse(0), False, None),
        ("write", ServiceResponse(0), True, None),
    ],
)
async def test_status_and_effects_determine_whether_a_failed_request_is_retried(
    effects: str, response: ServiceResponse, is_final: bool, delay_s: int | None
) -> None:
    failure, requests = await failure_and_requests(response, effects=effects)
    delay = None if delay_s is None else timedelta(seconds=delay_s)
    assert (failure.type, failure.non_retryable, failure.next_retry_delay) == ("tool_failed", is_final, delay), failure
    # The query of the URL has the token `hidden`.
    assert (len(requests), "hidden" in failure.message) == (1, False)


async def test_redirect_is_not_followed() -> None:
    with agent_service(ServiceResponse(307, None, {"Location": "/there"})) as service:
        failure = await AgentHarness(service_registry(service.url)).failure(ARGUMENTS)
    advice = "redirects are not followed: set service_url to the target of the redirect"
    assert failure.message == f"{service.url.partition('?')[0]} answers 307: null; {advice}"
    assert (failure.type, failure.non_retryable, len(service.requests)) == ("tool_failed", True, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"fine", 'did not answer with a JSON object; expected {"result": …} or {"feedback": {"type", "prompt"}}'),
        ([1], "did not answer with a JSON object; "),
        ({"results": 1}, "answers with the unknown key 'results'; did you mean 'result'?"),
        ({}, "must answer with either a result or a question; "),
        ({"result": 1, "feedback": {}}, "must answer with either a result or a question; "),
    ],
)
async def test_invalid_response_fails_without_retry(body: Any, message: str) -> None:
    failure, _ = await failure_and_requests(ServiceResponse(body=body), effects="read")
    assert (failure.type, failure.non_retryable) == ("tool_failed", True)
    assert message in failure.message


async def test_service_asks_a_person_unless_the_card_forbids_it() -> None:
    body = {"feedback": {"type": "SELECTION", "prompt": "Which?", "options": ["a"]}, "checkpoint": {"seen": 1}}
    request_failure, _ = await failure_and_requests(ServiceResponse(body=body))
    policy_failure, _ = await failure_and_requests(ServiceResponse(body=body), feedback_policy="never")
    assert request_failure.type == "ask_person"
    assert policy_failure.message == "the agent 'helper' wants to ask a person, but its card has feedback_policy: never"


async def test_private_address_is_rejected_and_an_unreachable_address_is_retried() -> None:
    failure, requests = await failure_and_requests(ServiceResponse(body={"result": 1}), allow_private=False)
    assert (failure.type, failure.non_retryable, requests) == ("tool_failed", True, [])
    assert "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES=true" in failure.message
    for effects in ("read", "write"):
        failure = await AgentHarness(service_registry("http://127.0.0.1:1/", effects=effects)).failure(ARGUMENTS)
        assert (failure.type, failure.non_retryable) == ("not_started", False)


async def test_request_of_a_write_is_not_repeated_after_its_worker_died() -> None:
    with agent_service(ServiceResponse(body={"result": 1})) as service:
        harness = AgentHarness(service_registry(service.url))
        harness.set_info(heartbeat_details=[{"sent": True}])
        failure = await harness.failure(ARGUMENTS)
    assert (failure.non_retryable, service.requests) == (True, [])
    assert failure.message.endswith("was called by an attempt that died before the response; outcome unknown")


async def test_agent_is_called_with_the_card_of_the_checked_plan() -> None:
    with (
        agent_service(ServiceResponse(body={"result": "old"})) as old_service,
        agent_service(ServiceResponse(body={"result": "new"})) as new_service,
    ):
        old_card = card_of("service", service_url=old_service.url)
        class_card = card_of("class", class_name="ReasoningAgent")
        registry, old_version_header = service_registry(new_service.url), {HEADER_CHECKED_VERSION: old_card.version}
        harness = AgentHarness(registry, stored_cards=[old_card, class_card])
        payload = await harness.payload(ARGUMENTS, **old_version_header)
        class_agent_failure = await harness.failure(ARGUMENTS, **{HEADER_CHECKED_VERSION: class_card.version})
        unknown_card_failure = await AgentHarness(registry).failure(ARGUMENTS, **old_version_header)
    assert (json.loads(payload.data), len(old_service.requests), new_service.requests) == ("old", 1, [])
    assert (unknown_card_failure.type, unknown_card_failure.non_retryable) == ("tool_changed", True)
    # The class agent ran: it failed at its model call, since this worker has no model configured.
    assert (class_agent_failure.type or "").startswith("model_")
