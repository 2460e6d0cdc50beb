"""Actions of a person in the console, in a real browser: answers, steering, forks, chats and plans."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from dagwright.interfaces.http import direct
from dagwright.testing import HttpError, busy, json_text
from tests.e2e.conftest import Serve, ServeConsole, calculation, plan_of, wait_node
from tests.support.answer_texts import held_model_answer
from tests.support.browser import DESKTOP, PHONE, accessibility_violations, open_page
from tests.support.eventually import eventually

pytestmark = [pytest.mark.server, pytest.mark.chromium]

expect.set_options(timeout=60_000)

FORM_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "amount": {"type": "integer", "minimum": 1},
        "urgent": {"type": "boolean"},
        "kind": {"enum": ["letter", "parcel"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "amount", "urgent"],
}
APPROVAL_NODE = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Publish <b>this</b>?"}}
REQUESTS_PLAN = plan_of(
    APPROVAL_NODE,
    {"id": "facts", "human": {"type": "INFORMATION", "prompt": "What is sent?", "schema": FORM_SCHEMA}},
    {"id": "way", "human": {"type": "SELECTION", "prompt": "Which way?", "options": ["by sea", "by air"]}},
    {"id": "sender", "human": {"type": "CLARIFICATION", "prompt": "Under which name?"}},
    title="Ask about everything",
    output={name: f"{{{{{name}.result}}}}" for name in ("check", "facts", "way", "sender")},
)


def request_card(page: Page, run_id: str, request_id: str) -> Locator:
    return page.locator(f'[data-run="{run_id}"][data-request="{request_id}"]')


async def test_requests_of_all_types_are_answered_in_the_inbox(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(REQUESTS_PLAN)
        await gateway.start({"plan": 1, "nodes": [APPROVAL_NODE]})
        await gateway.wait_for_requests(run_id)
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{run_id}") as page:
            await page.get_by_role("link", name="asks 4").click()
            await expect(page.get_by_label("Find", exact=True)).to_have_value(run_id)
            await expect(page.locator("[data-run]:visible")).to_have_count(4)
            await page.get_by_label("Your name").fill("ann")
            check_card = request_card(page, run_id, "check")
            await expect(check_card.get_by_role("heading")).to_have_text("Publish <b>this</b>?")
            await check_card.get_by_role("button", name="Reject").click()
            await expect(check_card.get_by_text("enter a reason")).to_be_visible()
            await check_card.get_by_label("Reason").fill("it is late")
            await check_card.get_by_role("button", name="Reject").click()
            await expect(check_card.locator(".confirmation")).to_contain_text("check")

            facts_card = request_card(page, run_id, "facts")
            await facts_card.get_by_label("Name").fill("Grace")
            await facts_card.get_by_label("amount").fill("many")
            await facts_card.get_by_role("button", name="Answer").click()
            await expect(facts_card.get_by_text("write a whole number")).to_be_visible()
            await expect(facts_card.get_by_text("this field is required")).to_be_visible()
            await facts_card.get_by_label("amount").fill("3")
            await facts_card.get_by_label("yes").check()
            await facts_card.get_by_label("kind").select_option("parcel")
            await facts_card.get_by_role("button", name="Add an item").click()
            await facts_card.get_by_label("Item", exact=True).fill("fragile")
            await facts_card.get_by_role("button", name="Answer").click()
            await expect(facts_card.locator(".confirmation")).to_contain_text("facts")

            way_card = request_card(page, run_id, "way")
            await way_card.get_by_label("by air").check()
            await way_card.get_by_role("button", name="Answer").click()
            sender_card = request_card(page, run_id, "sender")
            await sender_card.get_by_label("Answer", exact=True).fill("Hopper")
            await sender_card.get_by_role("button", name="Answer").click()
            await expect(sender_card.locator(".confirmation")).to_contain_text("sender")
            result = await gateway.wait_for_end(run_id)
    assert result["nodes"]["check"]["result"] == {"approved": False, "reason": "it is late"}
    parcel = {"name": "Grace", "amount": 3, "urgent": True, "kind": "parcel", "tags": ["fragile"]}
    assert result["nodes"]["facts"]["result"]["data"] == parcel
    assert result["nodes"]["way"]["result"] == {"selected": ["by air"]}
    assert result["nodes"]["sender"]["result"] == {"text": "Hopper"}
    assert result["nodes"]["sender"]["lineage"]["answers"][0]["by"] == "ann"


APPROVAL_AND_FAILURES_PLAN = plan_of(
    calculation("broken", "1 / 0", on_error="ask"),
    calculation("gated", "2 * 3", approval="required"),
    calculation("again", "1 / 0", on_error="ask"),
    output=["{{broken.result}}", "{{gated.result}}", "{{again.result}}"],
)


async def test_calls_are_approved_and_failures_resolved_in_the_inbox(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(APPROVAL_AND_FAILURES_PLAN)
        async with open_page(chromium, f"{gateway.url}/console/#/inbox") as page:
            broken_card = request_card(page, run_id, "broken")
            await expect(broken_card.locator("form textarea:visible")).to_have_count(0)
            await broken_card.get_by_label("Set its result", exact=True).check()
            await broken_card.get_by_role("button", name="Answer").click()
            await expect(broken_card.get_by_text("this field is required")).to_be_visible()
            await broken_card.get_by_label("The result").fill("5")
            await broken_card.get_by_role("button", name="Answer").click()
            await expect(broken_card.locator("form")).to_have_count(0)
            gated_card = request_card(page, run_id, "gated")
            await expect(gated_card.get_by_role("region", name="Arguments")).to_contain_text("2 * 3")
            await gated_card.get_by_text("Approve with other arguments").click()
            await gated_card.get_by_label("Arguments to approve instead").fill('{"expression": "2 * 4"}')
            await gated_card.get_by_role("button", name="Approve").click()
            await expect(gated_card.locator("form")).to_have_count(0)
            again_card = request_card(page, run_id, "again")
            await again_card.get_by_label("Retry", exact=True).check()
            await again_card.get_by_label("Other arguments").fill('{"expression": "2 + 4"}')
            await again_card.get_by_role("button", name="Answer").click()
            await expect(again_card.locator("form")).to_have_count(0)
            result = await gateway.wait_for_end(run_id)
    assert (result["status"], result["output"]) == ("completed", [5, 8, 6])


_ITEM_APPROVAL = {"type": "APPROVAL", "prompt": "Is {{item}} right?"}
ITEMS_PLAN = {"plan": 1, "nodes": [{"id": "each", "for_each": [1, 2, 3], "human": _ITEM_APPROVAL}]}


async def test_one_form_answers_all_items_and_a_closed_request_keeps_the_typed_text(
    serve: Serve, chromium: Browser
) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(ITEMS_PLAN)
        other_run_id = await gateway.start({"plan": 1, "nodes": [APPROVAL_NODE]})
        async with open_page(chromium, f"{gateway.url}/console/#/inbox") as page:
            cards = page.locator(f'[data-run="{run_id}"]')
            await expect(cards).to_have_count(3)
            other_card = page.locator(f'[data-run="{other_run_id}"]')
            await other_card.get_by_label("Reason").fill("I am still writing")
            await gateway.post(f"/v1/runs/{other_run_id}/feedback", {"answer": "yes"})
            await expect(other_card.get_by_text("is closed")).to_be_visible()
            await expect(other_card.get_by_label("Reason")).to_have_value("I am still writing")
            await expect(other_card.get_by_role("button", name="Approve")).to_have_count(0)
            await other_card.get_by_role("button", name="Close").click()
            await expect(other_card).to_have_count(0)
            await cards.first.get_by_label("Answer all 3").check()
            await cards.first.get_by_role("button", name="Approve").click()
            await expect(page.locator(f'[data-run="{run_id}"] form')).to_have_count(0)
            result = await gateway.wait_for_end(run_id)
    assert (result["status"], len(result["nodes"]["each"]["result"])) == ("completed", 3)


_NUMBER_INPUT = {"number": {"type": "integer"}}
_DOUBLE_NODE = calculation("double", "{{PLACEHOLDER_number}} * 2")
LONG_PLAN = plan_of(_DOUBLE_NODE, wait_node("long", "1h"), title="Something long", inputs=_NUMBER_INPUT)


async def test_run_is_paused_resumed_extended_and_cancelled(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(LONG_PLAN, inputs={"number": 2})
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{run_id}") as page:
            dialog = page.get_by_role("dialog")
            await page.get_by_role("button", name="Pause").click()
            await dialog.get_by_label("Reason").fill("too early")
            await dialog.get_by_role("button", name="Pause").click()
            await page.get_by_role("button", name="Resume").click()
            await expect(page.get_by_role("button", name="Pause")).to_be_visible()
            await page.get_by_role("button", name="Add nodes").click()
            nodes_field = dialog.get_by_label("Nodes (a JSON list, as in a plan)")
            await nodes_field.fill('[{"id": "more", "tool": "calculater", "arguments": {}}]')
            await dialog.get_by_role("button", name="Add").click()
            await expect(dialog.get_by_role("alert").last).to_contain_text("calculator")
            await nodes_field.fill(json.dumps(calculation("more", "{{double.result}} + 1")))
            await dialog.get_by_role("button", name="Add").click()
            await expect(dialog).to_have_count(0)
            await page.get_by_role("button", name="Cancel the run").click()
            await dialog.get_by_role("button", name="Cancel the run").click()
            result = await gateway.wait_for_end(run_id)
            await expect(page.get_by_role("button", name="Cancel the run")).to_have_count(0)
    assert (result["status"], result["nodes"]["more"]["result"]) == ("cancelled", 5)
    assert any("too early" in note["message"] for note in result["notes"])


FAILING_PLAN = plan_of(
    calculation("broken", "1 / 0"),
    calculation("failing", "2 / 0"),
    calculation("sum", "{{broken.result}} + {{failing.result}}"),
    wait_node("long", "1h"),
    calculation("dependent", "1 + 1", depends_on=["long"]),
)


async def test_nodes_are_retried_overridden_and_cancelled(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(FAILING_PLAN)

        async def have_both_failed() -> bool:
            nodes = (await gateway.document(run_id))["nodes"]
            return bool(nodes) and nodes["broken"]["status"] == nodes["failing"]["status"] == "failed"

        await eventually(have_both_failed)
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{run_id}?node=broken") as page:
            dialog = page.get_by_role("dialog")
            await page.get_by_role("group", name="Steer broken").get_by_role("button", name="Try again").click()
            await dialog.get_by_label("Other arguments").fill('{"expression": "1 + 1"}')
            await dialog.get_by_role("button", name="Try again").click()
            await expect(dialog).to_have_count(0)
            await page.goto(f"{gateway.url}/console/#/runs/{run_id}?node=failing")
            await page.get_by_role("group", name="Steer failing").get_by_role("button", name="Set its result").click()
            await dialog.get_by_label("Result").fill("five")
            await dialog.get_by_role("button", name="Set it").click()
            await expect(dialog.get_by_text("invalid JSON")).to_be_visible()
            await dialog.get_by_label("Result").fill("5")
            await dialog.get_by_role("button", name="Set it").click()
            await expect(dialog).to_have_count(0)
            await page.goto(f"{gateway.url}/console/#/runs/{run_id}?node=long")
            await page.get_by_role("group", name="Steer long").get_by_role("button", name="Cancel").click()
            await dialog.get_by_label("Cancel its dependents as well").check()
            await dialog.get_by_role("button", name="Cancel it").click()
            nodes = (await gateway.wait_for_end(run_id))["nodes"]
    assert (nodes["sum"]["result"], nodes["broken"]["status"]) == (7, "superseded")
    assert (nodes["long"]["status"], nodes["dependent"]["status"]) == ("cancelled", "cancelled")


DOUBLE_PLAN = plan_of(
    calculation("one", "1 + 1"),
    calculation("double", "{{PLACEHOLDER_number}} * {{one.result}}"),
    title="Double a number",
    inputs={"number": {"type": "integer"}},
    output="{{double.result}}",
)


async def test_fork_shows_its_difference_before_it_starts(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(DOUBLE_PLAN, inputs={"number": 2})
        await gateway.wait_for_end(run_id)
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{run_id}") as page:
            await page.get_by_role("button", name="Fork").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("number").fill("5")
            await dialog.get_by_role("button", name="Show the difference").click()
            await expect(dialog.get_by_role("row", name="double")).to_contain_text("reads something that has changed")
            await expect(dialog.get_by_text("Reused (1)")).to_be_visible()
            await dialog.get_by_label("Nodes to execute again").fill("one")
            await expect(dialog.get_by_text("The options have changed")).to_be_visible()
            # After a change of the options, the button first shows the difference instead of starting the fork.
            await dialog.get_by_role("button", name="Start the fork").click()
            await expect(dialog.get_by_role("row", name="one")).to_contain_text("again")
            await dialog.get_by_role("button", name="Start the fork").click()
            await page.wait_for_url("**/#/runs/*-fork-*")
            fork_run_id = page.url.rpartition("/")[2]
            result = await gateway.wait_for_end(fork_run_id)
    assert (result["status"], result["output"]) == ("completed", 10)
    assert "reused" not in result["nodes"]["one"]["lineage"]


async def test_fork_shows_the_nodes_that_a_model_replans(serve: Serve, chromium: Browser) -> None:
    no_changes: dict[str, list[str]] = {"executed": [], "reused_if_unchanged": [], "decided_later": []}
    difference = {**no_changes, "reused": ["one"], "planned_again": ["search", "tell"]}
    async with serve() as gateway:
        run_id = await gateway.start(DOUBLE_PLAN, inputs={"number": 2})
        await gateway.wait_for_end(run_id)
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{run_id}") as page:
            document = {"run_id": run_id, "fork_run_id": f"{run_id}-fork", "started": False, "difference": difference}
            await page.route("**/fork", lambda route: route.fulfill(json=document))
            await page.get_by_role("button", name="Fork").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_role("button", name="Show the difference").click()
            await expect(dialog).to_contain_text(f"The fork is {run_id}-fork")
            await expect(dialog).to_contain_text("search, tell")
            await expect(dialog).not_to_contain_text("Nothing is executed again")


GREETING_PLAN = plan_of(
    calculation("sum", "1 + 2"),
    {"id": "check", "depends_on": ["sum"], "human": {"type": "CLARIFICATION", "prompt": "In which language?"}},
    title="Greet a person",
    inputs={"name": {"type": "string"}},
    output="Hello {{PLACEHOLDER_name}}, in {{check.result.text}}.",
)


ANSWER_TEXT = "Oslo has rain today, and Bergen has more of it."


async def test_chat_shows_progress_questions_and_answers(serve_console: ServeConsole) -> None:
    async with serve_console("chat", plans={"greet": GREETING_PLAN}) as (gateway, page):
        await page.get_by_label("For", exact=True).select_option("plan/greet")
        await page.get_by_label("Request", exact=True).fill("Ada")
        await page.keyboard.press("Enter")
        await expect(page.locator(".steps").get_by_text("sum")).to_be_visible()
        card = page.locator('[data-request="check"]')
        await expect(card.get_by_label("Answer", exact=True)).to_be_focused()
        await card.get_by_label("Answer", exact=True).fill("Latin")
        await card.get_by_role("button", name="Answer").click()
        answer = page.locator(".turn-answer .answer-text")
        await expect(answer).to_have_text("Hello Ada, in Latin.")
        await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        session_id = page.url.rpartition("/")[2]
        await expect(page.locator(".sessions")).to_contain_text(session_id)
        # A turn continues after a reload of the page.
        await page.get_by_label("Request", exact=True).fill("Grace")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".turn-answer .answer-text")).to_have_count(2)
        await expect(page.locator('[data-request="check"] form')).to_have_count(1)
        await page.reload()
        await expect(answer.first).to_have_text("Hello Ada, in Latin.")
        run_id = (await gateway.http.get(f"/v1/sessions/{session_id}")).json()["run"]["run_id"]
        await gateway.wait_for_requests(run_id)
        await expect(card.get_by_label("Answer", exact=True)).to_be_visible()
        await gateway.post(f"/v1/runs/{run_id}/feedback", {"answer": {"text": "Greek"}})
        await expect(answer.last).to_have_text("Hello Grace, in Greek.")


async def test_chat_has_a_form_for_the_inputs_of_a_plan(serve_console: ServeConsole) -> None:
    plan_without_inputs = {"plan": 1, "nodes": [calculation("one", "1 + 1")], "output": "{{one.result}}"}
    async with serve_console("chat", plans={"double": DOUBLE_PLAN, "bare": plan_without_inputs}) as (_, page):
        answers = page.locator(".turn-answer .answer-text")
        await page.get_by_label("For", exact=True).select_option("plan/double")
        await page.get_by_label("number").fill("21")
        await page.get_by_role("button", name="Send").click()
        await expect(answers).to_have_text("42")
        await page.get_by_label("For", exact=True).select_option("plan/bare")
        await page.get_by_role("button", name="Send").click()
        await expect(answers.last).to_have_text("2")


async def test_chat_with_a_model_sends_the_earlier_messages(serve_console: ServeConsole) -> None:
    direct_route = json_text({"route": "direct"})
    async with serve_console("chat", direct_route, "Hello.", direct_route, "Ada.") as (gateway, page):
        await page.get_by_label("For", exact=True).select_option("small")
        for request, answer in (("I am Ada.", "Hello."), ("Who am I?", "Ada.")):
            await page.get_by_label("Request", exact=True).fill(request)
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".turn-answer .answer-text").last).to_have_text(answer)
            await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        messages = [
            (message["role"], message["content"]) for message in gateway.model_server.calls[-1].body["messages"]
        ]
        await page.reload()
        await expect(page.get_by_text("There is no session with this ID")).to_be_visible()
    assert messages == [("user", "I am Ada."), ("assistant", "Hello."), ("user", "Who am I?")]


async def test_chat_shows_errors_of_a_model_and_retries_after_a_rate_limit(
    serve_console: ServeConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "START_WAIT_S", 0.01)
    direct_route = json_text({"route": "direct"})
    script = (
        HttpError(401, "No.", code="invalid_api_key"),
        *(busy(), direct_route, "Hello."),
        *(direct_route, HttpError(429, "The month is spent.", code="insufficient_quota", first_byte_delay_s=0.3)),
    )
    async with serve_console("chat", *script) as (gateway, page):
        turn = page.locator(".turn").last

        async def send() -> None:
            await page.get_by_label("Request", exact=True).fill("Hi.")
            await page.get_by_role("button", name="Send").click()

        await page.get_by_label("For", exact=True).select_option("small")
        await send()
        await expect(turn.get_by_role("alert")).to_contain_text("key")
        await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        assert len(gateway.model_server.calls) == 1
        retry_notice = page.get_by_text("This page tries again by itself.")
        await send()
        await expect(retry_notice).to_contain_text("Rate limit reached")
        await expect(turn.locator(".turn-answer .answer-text")).to_have_text("Hello.")
        await expect(retry_notice).to_be_hidden()
        await send()
        await expect(turn.get_by_role("alert")).to_contain_text("The month is spent")
        assert len(gateway.model_server.calls) == len(script)


async def test_chat_continues_after_its_gateway_stopped(serve: Serve, chromium: Browser) -> None:
    queue = f"gateway-{uuid4().hex[:8]}"
    release_event = asyncio.Event()
    plan = json_text({"nodes": [calculation("sum", "1 + 2")]})
    answer = held_model_answer(ANSWER_TEXT, release_event)
    async with AsyncExitStack() as stack, AsyncExitStack() as gateway_stack:
        # The worker belongs to another gateway, which keeps running.
        worker_gateway = await stack.enter_async_context(serve(plan, answer, queue=queue))
        gateway = await gateway_stack.enter_async_context(serve(queue=queue, has_worker=False))
        page = await stack.enter_async_context(open_page(chromium, f"{gateway.url}/console/#/chat"))
        await page.get_by_label("For", exact=True).select_option("profile/plan")
        await page.get_by_label("Request", exact=True).fill("What is the weather?")
        await page.get_by_role("button", name="Send").click()
        answer_text = page.locator(".turn-answer .answer-text")
        # The page shows the answer while the model writes it.
        await expect(answer_text).to_have_text(ANSWER_TEXT[:28])
        await gateway_stack.aclose()
        await expect(page.get_by_text("The gateway does not respond")).to_be_visible()
        release_event.set()
        port = int(gateway.url.rpartition(":")[2])
        await stack.enter_async_context(serve(queue=queue, has_worker=False, port=port))
        await expect(answer_text).to_have_text(ANSWER_TEXT)
        session_id = page.url.rpartition("/")[2]
        turns = (await worker_gateway.http.get(f"/v1/sessions/{session_id}")).json()["turns"]
    # The page sent the request a second time, to the restarted gateway, and the session still has only one turn.
    assert [turn["request"] for turn in turns] == ["What is the weather?"]


MISSPELLED_PLAN = """\
plan: 1
nodes:
  - id: sum
    tool: calculater
    arguments: {expression: 1 + 2}
"""


async def test_plan_is_checked_while_it_is_typed_and_started_with_inputs(serve_console: ServeConsole) -> None:
    async with serve_console("plan", plans={"double": DOUBLE_PLAN}) as (gateway, page):
        plan_field = page.get_by_label("Plan, as YAML or JSON")
        await expect(page.get_by_role("status").first).to_contain_text("Valid")
        await plan_field.fill(MISSPELLED_PLAN)
        problem = page.get_by_role("list", name="Problems").get_by_role("listitem")
        await expect(problem).to_contain_text("calculator")
        await expect(page.locator(".gutter strong")).to_have_text("✗ 4")
        await expect(page.get_by_role("button", name="Start the plan")).to_be_disabled()
        await problem.get_by_role("button", name="Line 4").click()
        selected_text = await plan_field.evaluate("text => text.value.slice(text.selectionStart, text.selectionEnd)")
        assert selected_text == "    tool: calculater"
        await plan_field.fill("plan: [1")
        await expect(problem).to_contain_text("not valid YAML")
        await page.get_by_label("Open a published plan").select_option("double")
        await expect(page.get_by_role("status").first).to_contain_text("Valid: 2 nodes")
        await page.get_by_label("number").fill("4.5")
        await page.get_by_role("button", name="Start the plan").click()
        await expect(page.get_by_text("write a whole number")).to_be_visible()
        await page.get_by_label("number").fill("21")
        await page.get_by_role("button", name="Start the plan").click()
        await page.wait_for_url("**/#/runs/*")
        result = await gateway.wait_for_end(page.url.rpartition("/")[2])
    assert result["output"] == 42


@pytest.mark.parametrize(("size", "colours"), [(PHONE, "dark"), (DESKTOP, "light")])
async def test_views_fit_the_window_and_are_accessible(
    serve: Serve, chromium: Browser, size: tuple[int, int], colours: Any
) -> None:
    widths: dict[str, int] = {}
    errors: list[str] = []

    async def check_view(page: Page, name: str) -> None:
        widths[name] = await page.evaluate("document.documentElement.scrollWidth")
        errors.extend(f"{name}: {violation}" for violation in await accessibility_violations(page))

    async with serve(plans={"greet": GREETING_PLAN}) as gateway:
        run_id = await gateway.start(REQUESTS_PLAN)
        await gateway.wait_for_requests(run_id)
        async with open_page(chromium, f"{gateway.url}/console/#/inbox", size=size, colours=colours) as page:
            cards = page.locator(f'[data-run="{run_id}"]')
            await expect(cards).to_have_count(4)
            await cards.first.get_by_role("button", name="Reject").click()
            await cards.nth(1).get_by_role("button", name="Add an item").click()
            await cards.nth(1).get_by_role("button", name="Answer").click()
            await check_view(page, "inbox")
            await page.goto(f"{gateway.url}/console/#/chat")
            await page.get_by_label("For", exact=True).select_option("plan/greet")
            await page.get_by_label("Request", exact=True).fill("Ada")
            await page.keyboard.press("Enter")
            await expect(page.locator('[data-request="check"]')).to_be_visible()
            await check_view(page, "chat")
            await page.goto(f"{gateway.url}/console/#/plan")
            await page.get_by_label("Plan, as YAML or JSON").fill(MISSPELLED_PLAN)
            await expect(page.locator(".gutter strong")).to_be_visible()
            await check_view(page, "plan")
            await page.goto(f"{gateway.url}/console/#/runs/{run_id}")
            await page.get_by_role("group", name="Steer the run").get_by_role("button", name="Fork").click()
            await page.get_by_role("button", name="Show the difference").click()
            await expect(page.get_by_role("dialog").get_by_role("table")).to_be_visible()
            await check_view(page, "fork")
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            await expect(page.get_by_role("button", name="Fork")).to_be_focused()
            background = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        await gateway.post(f"/v1/runs/{run_id}/cancel", {})
    assert widths == dict.fromkeys(widths, size[0])
    assert errors == []
    brightest = max(map(int, background.removeprefix("rgb(").rstrip(")").split(",")))
    assert brightest < 60 if colours == "dark" else brightest > 200
