"""Models, routes and answers of the gateway, mostly with the official client of OpenAI."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest

from dagwright.testing import json_text
from tests.e2e.conftest import APPROVAL_NODE, Serve, calculation, plan_of
from tests.support.gateway import CHAT, chat_body
from tests.support.goals import call_node, plan_text

pytestmark = pytest.mark.server

SUM_PLAN = plan_text(call_node("sum", "calculator", expression="1 + 2"))
DOUBLE_PLAN = plan_of(
    calculation("double", "{{PLACEHOLDER_number}} * 2"),
    title="Double a number",
    metadata={"description": "Doubles a number."},
    inputs={"number": {"type": "integer", "prompt": "Which number?"}},
    output="{{double.result}}",
)
APPROVAL_PLAN = plan_of(APPROVAL_NODE, output="{{check.result}}")


async def test_models_plans_and_profiles_are_listed(serve: Serve) -> None:
    async with serve(plans={"double": DOUBLE_PLAN}, models=["small", "large"]) as gateway:
        model_ids = [each.id async for each in await gateway.openai.models.list()]
        plan = (await gateway.openai.models.retrieve("plan/double")).model_dump()
        large_model = await gateway.openai.models.retrieve("large")
        with pytest.raises(openai.NotFoundError, match="GET /v1/models lists all models"):
            await gateway.openai.models.retrieve("plan/triple")
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await gateway.openai.models.retrieve("huge")
    assert model_ids == ["small", "large", "plan/double", "profile/plan", "profile/intents"]
    details = plan["dagwright"]
    assert (plan["owned_by"], details["kind"], details["title"]) == ("dagwright", "plan", "Double a number")
    assert (details["description"], details["input_schema"]["required"]) == ("Doubles a number.", ["number"])
    assert large_model.owned_by == "service"


async def test_configured_models_are_listed_if_the_service_does_not_respond(serve: Serve) -> None:
    async with serve(provider_url="http://127.0.0.1:9/v1", has_worker=False) as gateway:
        model_ids = [each.id async for each in await gateway.openai.models.list()]
    assert model_ids == ["small", "profile/plan", "profile/intents"]


async def test_model_of_the_service_answers_without_a_run(serve: Serve) -> None:
    async with serve("It is 3.") as gateway:
        raw_response = await gateway.openai.chat.completions.with_raw_response.create(
            model="small",
            messages=[{"role": "user", "content": "1 + 2?"}],
            temperature=0.5,
            metadata={"routing_mode": "direct", "trace": "7"},
        )
        completion = raw_response.parse()
        (call,) = gateway.model_server.calls
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("It is 3.", "stop")
    assert (raw_response.headers["x-routing-mode"], "x-run-id" in raw_response.headers) == ("direct", False)
    assert completion.usage is not None
    assert completion.usage.total_tokens > 0
    assert (call.body["temperature"], call.body["metadata"]) == (0.5, {"trace": "7"})


async def test_run_answers_a_request_to_a_model_in_routing_mode_orchestration(serve: Serve) -> None:
    async with serve(SUM_PLAN, "It is 3.") as gateway:
        raw_response = await gateway.openai.chat.completions.with_raw_response.create(
            model="large",
            messages=[{"role": "user", "content": "1 + 2?"}],
            extra_body={"routing_mode": "orchestration"},
        )
        completion = raw_response.parse()
        view = await gateway.context.runs.reader(raw_response.headers["x-run-id"]).read()
        called_models = {call.model for call in gateway.model_server.calls}
    run_details: Any = completion.model_dump()["dagwright"]
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("It is 3.", "stop")
    assert (completion.model, called_models) == ("large", {"large"})
    assert run_details["run_id"] == view.run_id
    assert run_details["status"] == "completed"
    assert run_details["session_id"] is None
    assert (view.status, raw_response.headers["x-routing-mode"]) == ("completed", "orchestration")
    assert completion.usage is not None
    assert view.scheduler is not None
    assert completion.usage.total_tokens == view.scheduler.state.totals.usage.total.tokens > 0


@pytest.mark.parametrize(("route", "answer", "call_count"), [("direct", "Hello.", 2), ("orchestration", "It is 3.", 3)])
async def test_routing_mode_auto_lets_the_model_choose_the_route(
    serve: Serve, route: str, answer: str, call_count: int
) -> None:
    script = {"direct": ["Hello."], "orchestration": [SUM_PLAN, "It is 3."]}[route]
    async with serve(json_text({"route": route}), *script) as gateway:
        response = await gateway.post(CHAT, chat_body("small", "Do it."), X_Routing_Mode="auto")
        purposes = [call.metadata.get("purpose") for call in gateway.model_server.calls]
    assert response.json()["choices"][0]["message"]["content"] == answer
    assert (response.headers["x-routing-mode"], purposes[0], len(purposes)) == (route, "route", call_count)


async def test_picture_is_passed_to_the_model_and_rejected_for_a_run(serve: Serve) -> None:
    picture = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    body = chat_body("small") | {"messages": [{"role": "user", "content": picture}]}
    async with serve("A cat.", "A cat.") as gateway:
        default_response = await gateway.post(CHAT, body)
        auto_response = await gateway.post(CHAT, {**body, "routing_mode": "auto"})
        run_response = await gateway.post(CHAT, {**body, "routing_mode": "orchestration"})
        content = gateway.model_server.calls[0].body["messages"][0]["content"]
    assert (default_response.status_code, auto_response.status_code, content) == (200, 200, picture)
    assert (run_response.status_code, run_response.json()["error"]["code"]) == (400, "unsupported_content")


async def test_plan_called_as_a_model_takes_its_inputs_from_the_message_or_the_metadata(serve: Serve) -> None:
    async with serve(plans={"double": DOUBLE_PLAN}) as gateway:

        async def create(text: str, **fields: Any) -> Any:
            return await gateway.openai.chat.completions.create(**chat_body("plan/double", text), **fields)

        message_completion = await create('{"number": 21}')
        metadata_completion = await create("Please.", metadata={"inputs": '{"number": 4}'})
        with pytest.raises(openai.BadRequestError, match="takes its inputs"):
            await create("Please.")
        with pytest.raises(openai.BadRequestError, match="the plan has no input 'numbr'"):
            await create('{"numbr": 21}')
        with pytest.raises(openai.BadRequestError, match="always answered by a run"):
            await create("{}", extra_body={"routing_mode": "direct"})
    assert message_completion.choices[0].message.content == "42"
    assert metadata_completion.choices[0].message.content == "8"


async def test_agent_called_as_a_model_gets_the_conversation(serve: Serve, tmp_path: Path) -> None:
    writer = {"description": "Writes", "objective_template": "Write {what}", "type": "llm"}
    cards = {"agents": {"writer": {**writer, "prompt": "You write. {{x}}"}}}
    (tmp_path / "agents.json").write_text(json.dumps(cards), encoding="utf-8")
    file = f"agents:{tmp_path / 'agents.json'}"
    async with serve("Dear tea.", references=[file]) as gateway:
        completion = await gateway.openai.chat.completions.create(
            model="agent/writer",
            messages=[
                {"role": "user", "content": "Do you write?"},
                {"role": "assistant", "content": "I do."},
                {"role": "user", "content": "Write to {{tea.result}}."},
            ],
        )
        (call,) = gateway.model_server.calls
    assert completion.choices[0].message.content == "Dear tea."
    prompt = call.messages[-1]["content"]
    assert "Assistant: I do." in prompt
    assert "Write to {{tea.result}}." in prompt


async def test_concurrent_turns_of_a_session_run_in_sequence(serve: Serve) -> None:
    async with serve(SUM_PLAN, "It is 3.", SUM_PLAN, "Still 3.") as gateway:
        responses = await asyncio.gather(
            *(gateway.chat("profile/plan", request, session_id="gateway-turns") for request in ("1 + 2?", "And again?"))
        )
        session = (await gateway.context.sessions.read("gateway-turns")).session
        plan_calls = [call for call in gateway.model_server.calls if call.metadata["purpose"] == "plan"]
    assert sorted(each.json()["choices"][0]["message"]["content"] for each in responses) == ["It is 3.", "Still 3."]
    assert {each.headers["x-session-id"] for each in responses} == {"gateway-turns"}
    assert {turn.run_id for turn in session.turns} == {each.headers["x-run-id"] for each in responses}
    assert [turn.status for turn in session.turns] == ["completed", "completed"]
    # The second turn was planned with the answer of the first turn.
    assert "It is 3." in plan_calls[1].text


async def test_repeated_idempotency_key_returns_the_same_run(serve: Serve) -> None:
    async with serve(SUM_PLAN, "It is 3.") as gateway:
        first_response, repeated_response, different_response = [
            await gateway.post(CHAT, chat_body("profile/plan", request), Idempotency_Key="gateway-key-1")
            for request in ("1 + 2?", "1 + 2?", "2 + 2?")
        ]
        call_count = len(gateway.model_server.calls)
    assert first_response.json()["choices"] == repeated_response.json()["choices"]
    assert (first_response.headers["x-run-id"], call_count) == (repeated_response.headers["x-run-id"], 2)
    assert different_response.status_code == 409
    assert different_response.json()["error"]["code"] == "idempotency_key_in_use"
    assert different_response.headers["x-should-retry"] == "false"


async def test_idempotency_key_in_two_concurrent_sessions_starts_one_run(serve: Serve) -> None:
    session_ids, key = [f"{uuid4().hex[:8]}-{each}" for each in "pq"], uuid4().hex
    async with serve(plans={"ask": APPROVAL_PLAN}) as gateway:

        async def ask(session_id: str) -> httpx.Response:
            return await gateway.post(CHAT, chat_body("plan/ask", session_id=session_id), Idempotency_Key=key)

        responses = await asyncio.gather(*map(ask, session_ids))
        accepted_response, rejected_response = sorted(responses, key=lambda each: each.status_code)
        run_id = accepted_response.headers["x-run-id"]
        rejected_session_id = session_ids[responses.index(rejected_response)]
        cancel_response = await gateway.post(f"/v1/sessions/{rejected_session_id}/cancel", {})
        session_response = await gateway.http.get(f"/v1/sessions/{rejected_session_id}")
        status = (await gateway.http.get(f"/v1/runs/{run_id}")).json()["status"]
    assert accepted_response.status_code == 200
    assert rejected_response.status_code == 409
    assert cancel_response.status_code == 404
    assert (session_response.json().get("turns", []), status) == ([], "waiting")


def chat_json(model: str = "small", **fields: Any) -> str:
    return json.dumps(chat_body(model, "x", **fields))


async def test_errors_have_the_documented_status_code_and_fields(serve: Serve) -> None:
    expected_errors = {
        ("GET", "/v2", None): (404, "unknown_url"),
        ("DELETE", "/v1/models", None): (405, "method_not_allowed"),
        ("POST", CHAT, None): (400, "invalid_json"),
        ("POST", CHAT, "[1]"): (400, "invalid_json"),
        ("POST", CHAT, "{"): (400, "invalid_json"),
        ("POST", CHAT, "{}"): (400, "invalid_value"),
        ("POST", CHAT, '{"messages": []}'): (400, "invalid_value"),
        ("POST", CHAT, '{"messages": [{"role": "robot"}]}'): (400, "invalid_value"),
        ("POST", CHAT, chat_json(routing_mode="best")): (400, "invalid_value"),
        ("POST", CHAT, chat_json(model="agent/none")): (404, "model_not_found"),
        ("POST", CHAT, json.dumps(chat_body("profile/plan", " "))): (400, "empty_request"),
        ("POST", CHAT, chat_json(model="profile/plan", session_id="\0")): (400, "invalid_session_id"),
    }
    json_headers = {"content-type": "application/json"}
    form_headers = {"content-type": "application/x-www-form-urlencoded"}
    async with serve(has_worker=False) as gateway:
        responses = [
            await gateway.http.request(method, path, content=body, headers=json_headers if body else {})
            for method, path, body in expected_errors
        ]
        form_response = await gateway.http.post(CHAT, content='{"messages": []}', headers=form_headers)
    errors = [response.json()["error"] for response in responses]
    actual = [(response.status_code, error["code"]) for response, error in zip(responses, errors, strict=True)]
    assert actual == [*expected_errors.values()]
    assert all(set(error) == {"message", "type", "param", "code"} and error["message"] for error in errors)
    for response in (responses[2], responses[3], form_response):
        assert "Content-Type: application/json" in response.json()["error"]["message"]


async def test_health_endpoints_and_api_document_are_served(serve: Serve) -> None:
    async with serve(has_worker=False) as gateway:
        livez, readyz = await gateway.http.get("/livez"), await gateway.http.get("/readyz")
        document = (await gateway.http.get("/openapi.json")).json()
    assert (livez.status_code, livez.json()) == (200, {"status": "ok"})
    assert (readyz.status_code, readyz.json()) == (200, {"status": "ok", "checks": {"temporal": "ok", "store": "ok"}})
    assert {"/v1/models", "/v1/chat/completions", "/livez", "/readyz"} <= set(document["paths"])
