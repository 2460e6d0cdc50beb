"""Agents that are services, asked of a real HTTP server: what is sent, what comes back, and what each failure means."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary.wire import HEADER_CHECKED_VERSION
from tests.support.agent_bench import SECRET, AgentBench, card_of, service_registry
from tests.support.agent_service import Asked, Reply, agent_service

OBJECTIVE = {"objective": "Find it", "context": {"a": {"n": 1}}}


async def failure_of(reply: Reply, *, allow_private: bool = True, **card: Any) -> tuple[ApplicationError, list[Asked]]:
    """Returns how the call of a service fails that replies so, and what it was asked."""
    with agent_service(reply) as service:
        bench = AgentBench(service_registry(service.url, **card), allow_private=allow_private)
        return await bench.failure(OBJECTIVE), service.asked


def is_signed(asked: Asked) -> bool:
    """Tells whether the signature is that of Standard Webhooks, version 1."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = b".".join([asked.headers["webhook-id"].encode(), asked.headers["webhook-timestamp"].encode(), asked.body])
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return asked.headers["webhook-signature"] == f"v1,{expected}"


async def test_service_is_sent_objective_and_context_signed_and_its_result_is_that_of_the_node() -> None:
    with agent_service(Reply(body={"result": {"found": [1, 2]}})) as service:
        payload = await AgentBench(service_registry(service.url, service_secret="DESK", effects="read")).payload(
            OBJECTIVE
        )
    assert json.loads(payload.data) == {"found": [1, 2]}
    (asked,) = service.asked
    assert asked.told == {
        "agent": "helper",
        "objective": "Find it",
        "context": {"a": {"n": 1}},
        "call": {"workflow_id": "test", "node": "n1", "attempt": 2},
        "answers": [],
        "checkpoint": None,
    }
    assert is_signed(asked)
    assert asked.headers["idempotency-key"] == asked.headers["webhook-id"]
    assert asked.headers["content-type"] == "application/json"


async def test_nothing_is_signed_without_a_secret_and_a_missing_one_is_named() -> None:
    with agent_service(Reply(body={"result": None})) as service:
        payload = await AgentBench(service_registry(service.url)).payload(OBJECTIVE)
        missing = await AgentBench(service_registry(service.url, service_secret="OTHER")).failure(OBJECTIVE)
    assert json.loads(payload.data) is None
    assert [name for name in service.asked[0].headers if name.startswith("webhook")] == []
    assert len(service.asked) == 1
    assert (missing.type, missing.non_retryable, missing.message) == (
        "missing_secret",
        True,
        "the agent 'helper' signs what it sends: set DAGWRIGHT_SECRET_OTHER for the worker",
    )


@pytest.mark.parametrize(
    ("effects", "reply", "ends"),
    [
        ("read", Reply(503, headers={"Retry-After": "9"}), ("tool_failed", False, 9)),
        ("idempotent", Reply(500, b"oh"), ("tool_failed", False, None)),
        ("write", Reply(503, headers={"Retry-After": "9"}), ("tool_failed", True, None)),
        ("write", Reply(429, headers={"Retry-After": "9"}), ("tool_failed", False, 9)),
        ("read", Reply(408), ("tool_failed", False, None)),
        ("read", Reply(404, b"no such desk"), ("tool_failed", True, None)),
        ("read", Reply(302, headers={"Location": "http://127.0.0.1:1/"}), ("tool_failed", True, None)),
        ("read", Reply(0), ("tool_failed", False, None)),
        ("write", Reply(0), ("tool_failed", True, None)),
    ],
)
async def test_status_says_whether_the_service_is_asked_again(
    effects: str, reply: Reply, ends: tuple[str, bool, int | None]
) -> None:
    failure, asked = await failure_of(reply, effects=effects)
    delay = None if ends[2] is None else timedelta(seconds=ends[2])
    assert (failure.type, failure.non_retryable, failure.next_retry_delay) == (*ends[:2], delay), failure
    assert len(asked) == 1
    assert "hidden" not in failure.message


async def test_redirect_is_not_followed_and_the_advice_says_what_to_write() -> None:
    with agent_service(Reply(307, headers={"Location": "/there"})) as service:
        failure = await AgentBench(service_registry(service.url)).failure(OBJECTIVE)
    address = service.url.partition("?")[0]
    assert failure.message == (
        f"{address} answers 307: null; redirects are not followed: write the address itself as service_url"
    )
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"fine", 'answers no JSON object; expected {"result": …} or {"feedback": {"type", "prompt"}}'),
        ([1], "answers no JSON object; "),
        ({"results": 1}, "answers with the unknown key 'results'; did you mean 'result'?"),
        ({}, "answers neither a result nor a question, or both; "),
        ({"result": 1, "feedback": {}}, "answers neither a result nor a question, or both; "),
    ],
)
async def test_answer_of_another_form_is_final_and_told(body: Any, said: str) -> None:
    failure, _ = await failure_of(Reply(body=body), effects="read")
    assert (failure.type, failure.non_retryable) == ("tool_failed", True)
    assert said in failure.message


async def test_service_asks_a_person_unless_the_card_says_never() -> None:
    body = {"feedback": {"type": "SELECTION", "prompt": "Which?", "options": ["a"]}, "checkpoint": {"seen": 1}}
    asked, _ = await failure_of(Reply(body=body))
    never, _ = await failure_of(Reply(body=body), feedback_policy="never")
    assert asked.type == "ask_person"
    assert never.message == "the agent 'helper' wants to ask a person, and its card says feedback_policy: never"


async def test_private_address_is_refused_unless_the_settings_allow_it() -> None:
    failure, asked = await failure_of(Reply(body={"result": 1}), allow_private=False)
    assert (failure.type, failure.non_retryable, asked) == ("tool_failed", True, [])
    assert "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES=true" in failure.message


@pytest.mark.parametrize(("effects", "ends"), [("read", ("not_started", False)), ("write", ("not_started", False))])
async def test_service_that_is_not_there_is_asked_again(effects: str, ends: tuple[str, bool]) -> None:
    failure = await AgentBench(service_registry("http://127.0.0.1:1/", effects=effects)).failure(OBJECTIVE)
    assert (failure.type, failure.non_retryable) == ends


async def test_write_whose_worker_died_is_not_sent_again() -> None:
    with agent_service(Reply(body={"result": 1})) as service:
        bench = AgentBench(service_registry(service.url))
        bench.temporal.info = replace(bench.temporal.info, heartbeat_details=[{"sent": True}])
        failure = await bench.failure(OBJECTIVE)
    assert (failure.non_retryable, service.asked) == (True, [])
    assert failure.message.endswith("was asked by an attempt that died before the answer came; outcome unknown")


async def test_card_that_a_plan_was_checked_with_counts_and_not_the_one_that_the_worker_has() -> None:
    with agent_service(Reply(body={"result": "old"})) as old, agent_service(Reply(body={"result": "new"})) as new:
        before = card_of("service", service_url=old.url)
        as_class = card_of("class", class_name="ReasoningAgent")
        bench = AgentBench(service_registry(new.url), others=[before, as_class])
        payload = await bench.payload(OBJECTIVE, **{HEADER_CHECKED_VERSION: before.version})
        other = await AgentBench(service_registry(new.url)).failure(
            OBJECTIVE, **{HEADER_CHECKED_VERSION: before.version}
        )
        asked = await AgentBench(service_registry(new.url), others=[as_class]).failure(
            OBJECTIVE, **{HEADER_CHECKED_VERSION: as_class.version}
        )
    assert (json.loads(payload.data), len(old.asked), new.asked) == ("old", 1, [])
    assert (other.type, other.non_retryable) == ("tool_changed", True)
    # It did ask a model, of whom this worker knows no address.
    assert (asked.type or "").startswith("model_")
