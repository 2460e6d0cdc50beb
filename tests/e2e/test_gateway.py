"""The gateway with the official client of OpenAI: models, routes, and answers of runs."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest

from dagwright.testing import json_text
from tests.e2e.conftest import CHECK, Serve, calculation, plan_of
from tests.support.gateway import CHAT, chat_body
from tests.support.goals import call, plan_text

pytestmark = pytest.mark.server

SUM = plan_text(call("sum", "calculator", expression="1 + 2"))
DOUBLE = plan_of(
    calculation("double", "{{PLACEHOLDER_number}} * 2"),
    title="Double a number",
    metadata={"description": "Doubles a number."},
    inputs={"number": {"type": "integer", "prompt": "Which number?"}},
    output="{{double.result}}",
)
ASKING = plan_of(CHECK, output="{{check.result}}")


async def test_models_are_those_of_the_service_and_plans_agents_and_profiles(serve: Serve) -> None:
    async with serve(plans={"double": DOUBLE}, models=["small", "large"]) as live:
        listed = [each.id async for each in await live.openai.models.list()]
        plan = (await live.openai.models.retrieve("plan/double")).model_dump()
        large = await live.openai.models.retrieve("large")
        with pytest.raises(openai.NotFoundError, match="GET /v1/models lists all models"):
            await live.openai.models.retrieve("plan/triple")
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await live.openai.models.retrieve("huge")
    assert listed == ["small", "large", "plan/double", "profile/plan", "profile/intents"]
    about = plan["dagwright"]
    assert (plan["owned_by"], about["kind"], about["title"]) == ("dagwright", "plan", "Double a number")
    assert plan["dagwright"]["description"] == "Doubles a number."
    assert plan["dagwright"]["inputs"]["required"] == ["number"]
    assert large.owned_by == "service"


async def test_own_models_are_listed_while_the_service_does_not_answer(serve: Serve) -> None:
    async with serve(provider_url="http://127.0.0.1:9/v1", has_worker=False) as live:
        listed = [each.id async for each in await live.openai.models.list()]
    assert listed == ["small", "profile/plan", "profile/intents"]


async def test_model_of_the_service_answers_itself(serve: Serve) -> None:
    async with serve("It is 3.") as live:
        raw = await live.openai.chat.completions.with_raw_response.create(
            model="small",
            messages=[{"role": "user", "content": "1 + 2?"}],
            temperature=0.5,
            metadata={"routing_mode": "direct", "trace": "7"},
        )
        answer = raw.parse()
        (call,) = live.models.calls
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("It is 3.", "stop")
    assert (raw.headers["x-routing-mode"], "x-run-id" in raw.headers) == ("direct", False)
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0
    assert (call.body["temperature"], call.body["metadata"]) == (0.5, {"trace": "7"})


async def test_run_answers_a_model_of_the_service_with_routing_mode_orchestration(serve: Serve) -> None:
    async with serve(SUM, "It is 3.") as live:
        raw = await live.openai.chat.completions.with_raw_response.create(
            model="large",
            messages=[{"role": "user", "content": "1 + 2?"}],
            extra_body={"routing_mode": "orchestration"},
        )
        answer = raw.parse()
        view = await live.context.runs.reader(raw.headers["x-run-id"]).read()
        call = {call.model for call in live.models.calls}
    about: Any = answer.model_dump()["dagwright"]
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("It is 3.", "stop")
    assert (answer.model, call) == ("large", {"large"})
    assert (about["run_id"], about["status"], about["session_id"]) == (view.workflow_id, "completed", None)
    assert (view.status, raw.headers["x-routing-mode"]) == ("completed", "orchestration")
    assert answer.usage is not None
    assert view.scheduler is not None
    assert answer.usage.total_tokens == view.scheduler.state.totals.usage.total.tokens > 0


@pytest.mark.parametrize(("route", "answer", "calls"), [("direct", "Hello.", 2), ("orchestration", "It is 3.", 3)])
async def test_auto_asks_the_model_who_answers(serve: Serve, route: str, answer: str, calls: int) -> None:
    script = {"direct": ["Hello."], "orchestration": [SUM, "It is 3."]}[route]
    async with serve(json_text({"route": route}), *script) as live:
        response = await live.post(CHAT, chat_body("small", "Do it."), X_Routing_Mode="auto")
        call = [call.metadata.get("purpose") for call in live.models.calls]
    assert response.json()["choices"][0]["message"]["content"] == answer
    assert (response.headers["x-routing-mode"], call[0], len(call)) == (route, "route", calls)


async def test_picture_is_passed_on_where_a_run_could_not_take_it(serve: Serve) -> None:
    picture = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    body = chat_body("small") | {"messages": [{"role": "user", "content": picture}]}
    async with serve("A cat.", "A cat.") as live:
        plain = await live.post(CHAT, body)
        auto = await live.post(CHAT, {**body, "routing_mode": "auto"})
        run = await live.post(CHAT, {**body, "routing_mode": "orchestration"})
        call = live.models.calls[0].body["messages"][0]["content"]
    assert (plain.status_code, auto.status_code, call) == (200, 200, picture)
    assert (run.status_code, run.json()["error"]["code"]) == (400, "unsupported_content")


async def test_plan_is_a_model_with_inputs_in_the_message_or_apart(serve: Serve) -> None:
    async with serve(plans={"double": DOUBLE}) as live:
        create = live.openai.chat.completions.create
        text = await create(model="plan/double", messages=[{"role": "user", "content": '{"number": 21}'}])
        apart = await create(
            model="plan/double", messages=[{"role": "user", "content": "Please."}], metadata={"inputs": '{"number": 4}'}
        )
        with pytest.raises(openai.BadRequestError, match="takes its inputs"):
            await create(model="plan/double", messages=[{"role": "user", "content": "Please."}])
        with pytest.raises(openai.BadRequestError, match="the plan has no input 'numbr'"):
            await create(model="plan/double", messages=[{"role": "user", "content": '{"numbr": 21}'}])
        with pytest.raises(openai.BadRequestError, match="always answered by a run"):
            await create(
                model="plan/double", messages=[{"role": "user", "content": "{}"}], extra_body={"routing_mode": "direct"}
            )
    assert (text.choices[0].message.content, apart.choices[0].message.content) == ("42", "8")


async def test_agent_is_a_model_that_gets_the_conversation(serve: Serve, tmp_path: Path) -> None:
    writer = {"description": "Writes", "objective_template": "Write {what}", "type": "llm"}
    cards = {"agents": {"writer": {**writer, "prompt": "You write. {{x}}"}}}
    (tmp_path / "agents.json").write_text(json.dumps(cards), encoding="utf-8")
    file = f"agents:{tmp_path / 'agents.json'}"
    async with serve("Dear tea.", references=[file]) as live:
        answer = await live.openai.chat.completions.create(
            model="agent/writer",
            messages=[
                {"role": "user", "content": "Do you write?"},
                {"role": "assistant", "content": "I do."},
                {"role": "user", "content": "Write to {{tea.result}}."},
            ],
        )
        (call,) = live.models.calls
    assert answer.choices[0].message.content == "Dear tea."
    result = call.messages[-1]["content"]
    assert "Assistant: I do." in result
    assert "Write to {{tea.result}}." in result


async def test_turns_of_a_session_follow_each_other(serve: Serve) -> None:
    async with serve(SUM, "It is 3.", SUM, "Still 3.") as live:
        both = await asyncio.gather(
            *(live.chat("profile/plan", words, session_id="gateway-turns") for words in ("1 + 2?", "And again?"))
        )
        session = (await live.context.sessions.read("gateway-turns")).session
        planned = [call for call in live.models.calls if call.metadata["purpose"] == "plan"]
    assert sorted(each.json()["choices"][0]["message"]["content"] for each in both) == ["It is 3.", "Still 3."]
    assert {each.headers["x-session-id"] for each in both} == {"gateway-turns"}
    assert {turn.run for turn in session.turns} == {each.headers["x-run-id"] for each in both}
    assert [turn.status for turn in session.turns] == ["completed", "completed"]
    # The plan of the second one used the answer of the first one.
    assert "It is 3." in planned[1].text


async def test_idempotency_key_gives_the_same_run(serve: Serve) -> None:
    async with serve(SUM, "It is 3.") as live:
        first, again, other = [
            await live.post(CHAT, chat_body("profile/plan", words), Idempotency_Key="gateway-key-1")
            for words in ("1 + 2?", "1 + 2?", "2 + 2?")
        ]
        calls = len(live.models.calls)
    assert first.json()["choices"] == again.json()["choices"]
    assert (first.headers["x-run-id"], calls) == (again.headers["x-run-id"], 2)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_in_use")
    assert other.headers["x-should-retry"] == "false"


async def test_one_key_in_two_concurrent_sessions_is_the_run_of_one(serve: Serve) -> None:
    names, key = [f"{uuid4().hex[:8]}-{each}" for each in "pq"], uuid4().hex
    async with serve(plans={"ask": ASKING}) as live:

        async def ask(session: str) -> httpx.Response:
            return await live.post(CHAT, chat_body("plan/ask", session_id=session), Idempotency_Key=key)

        answers = await asyncio.gather(*map(ask, names))
        taken, refused = sorted(answers, key=lambda each: each.status_code)
        run = taken.headers["x-run-id"]
        other = names[answers.index(refused)]
        cancel = await live.post(f"/v1/sessions/{other}/cancel", {})
        left = await live.http.get(f"/v1/sessions/{other}")
        status = (await live.http.get(f"/v1/runs/{run}")).json()["status"]
    assert (taken.status_code, refused.status_code, cancel.status_code) == (200, 409, 404)
    assert (left.json().get("turns", []), status) == ([], "waiting")


def message(model: str = "small", **fields: Any) -> str:
    return json.dumps(chat_body(model, "x", **fields))


async def test_errors_have_the_shape_that_openai_documents(serve: Serve) -> None:
    rows = {
        ("GET", "/v2", None): (404, "unknown_url"),
        ("DELETE", "/v1/models", None): (405, "method_not_allowed"),
        ("POST", CHAT, None): (400, "invalid_json"),
        ("POST", CHAT, "[1]"): (400, "invalid_json"),
        ("POST", CHAT, "{"): (400, "invalid_json"),
        ("POST", CHAT, "{}"): (400, "invalid_value"),
        ("POST", CHAT, '{"messages": []}'): (400, "invalid_value"),
        ("POST", CHAT, '{"messages": [{"role": "robot"}]}'): (400, "invalid_value"),
        ("POST", CHAT, message(routing_mode="best")): (400, "invalid_value"),
        ("POST", CHAT, message(model="agent/none")): (404, "model_not_found"),
        ("POST", CHAT, json.dumps(chat_body("profile/plan", " "))): (400, "empty_goal"),
        ("POST", CHAT, message(model="profile/plan", session_id="\0")): (400, "invalid_session_id"),
    }
    as_json, form = {"content-type": "application/json"}, {"content-type": "application/x-www-form-urlencoded"}
    async with serve(has_worker=False) as live:
        answers = [
            await live.http.request(method, path, content=body, headers=as_json if body else {})
            for method, path, body in rows
        ]
        not_json = [answers[2], answers[3], await live.http.post(CHAT, content='{"messages": []}', headers=form)]
    errors = [answer.json()["error"] for answer in answers]
    actual = [(answer.status_code, error["code"]) for answer, error in zip(answers, errors, strict=True)]
    assert actual == [*rows.values()]
    assert all(set(error) == {"message", "type", "param", "code"} and error["message"] for error in errors)
    assert all("Content-Type: application/json" in answer.json()["error"]["message"] for answer in not_json)


async def test_health_and_document_of_the_api(serve: Serve) -> None:
    async with serve(has_worker=False) as live:
        alive = await live.http.get("/livez")
        ready = await live.http.get("/readyz")
        document = (await live.http.get("/openapi.json")).json()
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "checks": {"temporal": "ok", "store": "ok"}})
    assert {"/v1/models", "/v1/chat/completions", "/livez", "/readyz"} <= set(document["paths"])
