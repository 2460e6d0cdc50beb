"""Parts of every page of the console: its name, its links, and explanations for new users."""

import asyncio
import json
import re
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.e2e.conftest import ConsolePage, Serve, calculation, plan_of
from tests.support.browser import accessibility_violations, open_page
from tests.support.eventually import eventually

pytestmark = [pytest.mark.server, pytest.mark.chromium]

expect.set_options(timeout=60_000)

FORM = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["letter", "parcel"]},
        "from": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
        "code": {"type": "string", "examples": ["AB-12"]},
    },
    "required": ["kind", "from"],
}
SENT = plan_of(
    {"id": "facts", "human": {"type": "INFORMATION", "prompt": "What is sent?", "schema": FORM}},
    title="Send something",
    output="{{facts.result}}",
)
TWO = {"plan": 1, "nodes": [calculation("one", "1 + 1")], "output": "{{one.result}}"}
NEEDS = """\
plan: 1
inputs:
  whose: {type: string}
  many: {type: integer, default: 3}
nodes:
  - {id: double, tool: calculator, arguments: {expression: "{{PLACEHOLDER_many}} * 2"}}
"""
TRIED_AGAIN = """async () => {
  const { Detail } = await import("/console/js/detail.js");
  const node = { node_id: "one", status: "running", attempts: 2, started_at: "2026-01-05T09:30:00Z" };
  const step = { node_id: "one", message: "waits: attempt 2 failed: no line", until: "2026-01-05T09:31:00Z" };
  const why = { message: "it is tried again", chain: [step] };
  const api = { get: async (path) => (path.includes("/explain") ? why : node) };
  const createCommands = () => document.createElement("span");
  const currentRun = () => ({ status: "running" });
  const detail = new Detail("run-1", { api, createCommands, currentRun, go() {}, onClose() {}, onNode() {} });
  document.body.append(detail.element);
  detail.show("one");
}"""
LEFT = """async () => {
  const { retryUntilSuccess } = await import("/console/js/events.js");
  const leaving = new AbortController();
  let attempts = 0;
  const once = async () => {
    attempts += 1;
    throw new TypeError("there is no line");
  };
  const asks = { signal: leaving.signal, mayRetry: () => true, onOffline: () => leaving.abort() };
  const errorName = await retryUntilSuccess(once, asks).catch((error) => error.name);
  return [errorName, attempts];
}"""
ASKED = """() => {
  import("/console/js/chat_stream.js").then(({ chatRequest, follow }) => {
    const on = { offline() {} };
    return follow(chatRequest({ model: "small", messages: [] }, "key-1"), { on, signal: new AbortController().signal });
  });
}"""
OLDER = """async () => {
  const { Model } = await import("/console/js/model.js");
  const model = new Model();
  const node = { node_id: "one", title: "One", group: "round 1" };
  const one = ({ at: cursor, ...facts }) => ({ nodes: [{ ...node, ...facts }], edges: [], cursor });
  model.load(one({ at: "1-5", status: "waiting", attempts: 1, reason: "waits for its turn" }));
  model.applyEvents([{ node_id: "one", title: "One again", status: "running", attempts: 2 }], "1-9");
  const rows = [];
  for (const at of ["1-7", "1-11"]) {
    model.load(one({ at, status: "waiting", attempts: 1, ...(at === "1-7" && { reason: "waits for its turn" }) }));
    const { title, status, attempts, reason = null, group } = model.find("one");
    rows.push([title, status, attempts, reason, group]);
  }
  return rows;
}"""
FORMATS = """async () => {
  const { formatText, inputOf } = await import("/console/js/formats.js");
  return ["constructor", "date", "uuid"].map((format) => [formatText(format), inputOf(format, "").type]);
}"""
CHOOSING = """async () => {
  const { requestCard } = await import("/console/js/answers.js");
  const options = ["by sea", "by air"];
  const request = { run_id: "run-1", request_id: "way", type: "SELECTION", options, allow_text: true };
  const sendAnswer = async ({ answer }) => {
    window.given = answer;
    return "It is answered.";
  };
  document.querySelector("main").replaceChildren(requestCard(request, { sendAnswer }).element);
}"""
PAGES = {"runs": "Runs", "inbox": "Inbox", "chat": "Chat", "plan": "Plan"}


async def test_every_page_has_its_name_and_leads_to_temporal(serve: Serve, chromium: Browser) -> None:
    async with serve(plans={"two": TWO}) as live:
        run = await live.start(SENT)
        await live.wait_for_requests(run)
        of_run = re.compile(rf"/namespaces/[^/]+/workflows/{run}$")
        async with open_page(chromium, f"{live.url}/console/") as page:
            head = page.get_by_role("banner").get_by_role("link", name="Temporal UI")
            for path, name in PAGES.items():
                await page.goto(f"{live.url}/console/#/{path}")
                await expect(page).to_have_title(f"{name} · Dagwright")
                await expect(head).to_have_attribute("href", re.compile("/namespaces/[^/]+/workflows$"))
            await page.goto(f"{live.url}/console/#/inbox")
            card = page.locator(f'[data-run="{run}"]')
            await expect(card.get_by_role("link", name="Send something")).to_be_visible()
            await expect(card.locator(".facts")).to_contain_text(run)
            await expect(card.get_by_role("link", name="Temporal UI")).to_have_attribute("href", of_run)
            await page.get_by_label("Find", exact=True).fill("send SOMETHING")
            await expect(card).to_be_visible()
            await page.goto(f"{live.url}/console/#/runs/{run}?node=facts")
            await expect(page).to_have_title("Send something · Dagwright")
            await expect(page.locator(".facts").get_by_role("link", name="asks 1 question")).to_be_visible()
            link = page.locator(".detail").get_by_role("link", name="Temporal UI")
            await expect(link).to_have_attribute("href", of_run)
            await page.goto(f"{live.url}/console/#/chat")
            await expect(page.get_by_text("Write a request below")).to_be_visible()
            await page.get_by_label("For", exact=True).select_option("plan/two")
            await page.get_by_role("button", name="Send").click()
            turn = page.locator(".turn-answer")
            await expect(turn.locator(".answer-text")).to_have_text("2")
            of_turn = re.compile("/workflows/[^/]+$")
            await expect(turn.get_by_role("link", name="Temporal UI")).to_have_attribute("href", of_turn)
            await expect(page.get_by_text("Write a request below")).to_have_count(0)


async def test_unknown_address_is_reported(console_page: ConsolePage) -> None:
    async with console_page("blah") as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("No such page")
        await expect(page).to_have_title("No such page · Dagwright")
        assert await accessibility_violations(page) == []
        await page.get_by_role("main").get_by_role("link", name="Inbox").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")


async def test_empty_list_explains_how_to_start(serve: Serve, chromium: Browser) -> None:
    async with serve(has_worker=False) as live, open_page(chromium, f"{live.url}/console/#/plan") as page:
        nothing: dict[str, Any] = {"object": "list", "data": [], "next": None, "ui_url": None}
        await page.route("**/v1/runs?*", lambda route: route.fulfill(json=nothing))
        await page.goto(f"{live.url}/console/#/runs")
        table = page.get_by_role("table", name="Runs")
        await expect(table.get_by_role("link", name="Chat")).to_be_visible()
        await expect(page.get_by_role("button", name="Older")).to_be_hidden()
        await page.get_by_label("State").select_option("failed")
        await expect(table).to_contain_text("No run matches.")


async def test_form_describes_its_fields(serve: Serve, chromium: Browser) -> None:
    async with serve() as live:
        run = await live.start(SENT)
        await live.wait_for_requests(run)
        async with open_page(chromium, f"{live.url}/console/#/inbox") as page:
            card = page.locator(f'[data-run="{run}"]')
            await card.get_by_role("radiogroup", name="kind").get_by_label("parcel").check()
            await expect(card).to_contain_text("such as AB-12")
            await expect(card).to_contain_text("an address such as ann@example.com")
            await expect(card).not_to_contain_text("date-time")
            assert await accessibility_violations(page) == []
            await card.get_by_label("from").fill("2026-01-05T09:30")
            zone = await page.evaluate("new Date('2026-01-05T09:30').toISOString()")
            await card.get_by_role("button", name="Answer").click()
            await expect(card.locator(".confirmation")).to_contain_text("facts")
            data = (await live.wait_for_end(run))["output"]["data"]
            same = await page.evaluate("text => new Date(text).toISOString()", data["from"])
    assert data["kind"] == "parcel"
    assert re.fullmatch(r"2026-01-05T09:30:00[+-]\d\d:\d\d", data["from"])
    assert same == zone


async def test_form_of_a_plan_marks_what_the_run_asks_for(console_page: ConsolePage) -> None:
    async with console_page("plan") as page:
        await page.get_by_label("Plan, as YAML or JSON").fill(NEEDS)
        form = page.get_by_role("form", name="Start")
        whose = form.locator("label").filter(has_text="whose")
        await expect(whose).to_have_text("whose (the run asks for it if empty)")
        await expect(form.locator("label").filter(has_text="many")).to_have_text("many (optional)")


async def test_inbox_filter_reports_that_it_knows_loaded_requests_only(console_page: ConsolePage) -> None:
    asked = {"run_id": "run-1", "request_id": "way", "node_id": "way", "type": "CLARIFICATION", "prompt": "Which way?"}
    document: dict[str, Any] = {
        **asked,
        "title": "Trip",
        "assignee": None,
        "opened_at": "2026-01-05T09:30:00.000Z",
        "answer_schema": {},
    }
    async with console_page("plan") as page:

        async def answer(route: Route) -> None:
            is_first = "cursor" not in route.request.url
            requests = [document] if is_first else [{**document, "request_id": f"way-{number}"} for number in range(50)]
            listed = {"object": "list", "data": requests, "next": "1", "has_more": True, "omitted": []}
            await route.fulfill(json=listed)

        await page.route("**/v1/inbox?*", answer)
        await page.goto(page.url.replace("#/plan", "#/inbox"))
        state = page.locator("#inbox-state")
        await expect(state).to_have_text("51+ open")
        await page.get_by_label("Find", exact=True).fill("way-7")
        await expect(state).to_have_text("1 found in 51 loaded requests; “Show more” loads and searches others")
        await expect(page.get_by_role("button", name="Show more")).to_be_visible()


async def test_retried_node_reports_when_and_why(console_page: ConsolePage) -> None:
    async with console_page("inbox") as page:
        await page.evaluate(TRIED_AGAIN)
        detail = page.get_by_role("region", name="Node")
        await expect(detail).to_contain_text("Last attempt started")
        await expect(detail).to_contain_text(re.compile(r"attempt 2 failed: no line, until .*:31:00"))


async def test_nothing_is_sent_for_a_page_that_was_left(console_page: ConsolePage) -> None:
    async with console_page("inbox") as page:
        assert await page.evaluate(LEFT) == ["AbortError", 1]


async def test_model_that_thinks_for_long_is_asked_once(console_page: ConsolePage) -> None:
    async with console_page("inbox") as page:
        asked: list[Route] = []
        await page.clock.install()
        # The request stays open.
        await page.route("**/v1/chat/completions", lambda route: asked.append(route))  # noqa: PLW0108 - it marks what it is given
        await page.evaluate(ASKED)
        await eventually(lambda: len(asked) == 1)
        for _ in range(10):
            await page.clock.run_for(10_000)
        assert len(asked) == 1
        # The browser's library waits for the end of each held request, even after its page was closed.
        await asked[0].abort()


async def test_older_graph_does_not_revert_newer_events(console_page: ConsolePage) -> None:
    async with console_page("inbox") as page:
        result = await page.evaluate(OLDER)
    assert result == [["One again", "running", 2, None, "round 1"], ["One", "waiting", 1, None, "round 1"]]


async def test_unknown_format_is_a_text(console_page: ConsolePage) -> None:
    async with console_page("inbox") as page:
        result = await page.evaluate(FORMATS)
    assert result == [["constructor", "text"], ["", "date"], ["such as 123e4567-e89b-42d3-a456-426614174000", "text"]]


async def test_option_and_own_text_decide_which_is_the_answer(console_page: ConsolePage) -> None:
    async with console_page("plan") as page:
        await page.evaluate(CHOOSING)
        card = page.locator('[data-request="way"]')
        await card.get_by_role("button", name="Answer").click()
        await expect(card.get_by_role("alert")).to_have_text("choose one")
        await card.get_by_label("by sea").check()
        await expect(card.get_by_role("alert")).to_have_count(0)
        await card.get_by_label("Or something else").fill("by land")
        await expect(card.get_by_role("status")).to_contain_text("The text is the answer")
        await expect(card.get_by_label("by sea")).not_to_be_checked()
        await card.get_by_label("by air").check()
        await expect(card.get_by_role("status")).to_contain_text("The chosen option is the answer")
        await card.get_by_role("button", name="Answer").click()
        await expect(card).to_contain_text("It is answered.")
        assert await page.evaluate("window.given") == {"selected": ["by air"]}


async def test_node_offers_no_more_than_a_fork_once_its_run_has_ended(serve: Serve, chromium: Browser) -> None:
    asks = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Go on?"}}
    plan = {"plan": 1, "nodes": [calculation("broken", "1 / 0", on_error="skip"), asks]}
    async with serve() as live:
        run = await live.start(plan)
        async with open_page(chromium, f"{live.url}/console/#/inbox") as page:
            last = {"run_id": run, "status": "completed_with_failures", "error": None, "output": None}
            final_event = asyncio.Event()

            async def fulfill_end(route: Route) -> None:
                await final_event.wait()
                message = f"event: run.completed\ndata: {json.dumps(last)}\n\n"
                await route.fulfill(body=message, content_type="text/event-stream")

            await page.route(f"**/v1/runs/{run}/events", fulfill_end)
            await page.goto(f"{live.url}/console/#/runs/{run}?node=broken")
            actions = page.locator(".detail .actions")
            await expect(actions.get_by_role("button", name="Set its result")).to_be_visible()

            await live.wait_for_requests(run)
            await live.post(f"/v1/runs/{run}/feedback", {"answer": "yes"})
            await live.wait_for_end(run)
            final_event.set()
            await expect(page.locator("header.run + .facts")).to_contain_text("completed")
            await expect(actions.get_by_role("button")).to_have_text(["Fork from here"])


MAY_BE_LEFT_OUT = {
    "name": {"type": "string"},
    "address": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]},
    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "several": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1},
}
ROUND: list[tuple[Any, Any]] = [
    (
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["number", "null"]}}},
        {"a": "x", "b": 1.5},
    ),
    ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}}, {"b": False}),
    (
        {
            "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
            "type": "object",
            "properties": {"from": {"$ref": "#/$defs/place"}, "to": {"$ref": "#/$defs/place"}},
            "required": ["from"],
        },
        {"from": {"city": "Oslo"}},
    ),
    ({"type": "object", "properties": MAY_BE_LEFT_OUT, "required": ["name"]}, {"name": "Ann"}),
    ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a", "c"]),
    ({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}, [{"n": 1}, {"n": 2}]),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, ["x", {"y": 1}]),
    ({"type": "object"}, {"anything": [1, None]}),
    ({"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}, {"day": "2026-01-05"}),
    ({"type": "string", "format": "date-time"}, "2026-01-05T09:30:00.5Z"),
    ({"enum": [1, "1", None, {"x": 1}]}, {"x": 1}),
    ({"type": "string", "maxLength": 500}, "two\nlines"),
]
READ = """async ([schema, value]) => {
  const { schemaForm } = await import("/console/js/forms.js");
  const form = schemaForm(schema, { value });
  document.body.append(form.element);
  const read = form.read();
  const marked = [...form.element.querySelectorAll(".problem")].filter((each) => !each.hidden);
  form.element.remove();
  return { ...read, marked: marked.map((each) => each.textContent) };
}"""


async def test_form_reads_what_it_was_given(console_page: ConsolePage) -> None:
    parts = {"a": {"type": "integer", "maximum": 3}, "b": {}, "c": {"type": "number", "default": "12,5"}}
    wrong = {"type": "object", "properties": parts, "required": ["a", "b"]}
    async with console_page("plan") as page:
        actual = [await page.evaluate(READ, [schema, value]) for schema, value in ROUND]
        result = await page.evaluate(READ, [wrong, {"a": 4}])
    assert actual == [{"value": value, "problems": [], "marked": []} for _, value in ROUND]
    assert result["problems"] == [
        {"path": ["a"], "message": "write 3 or less"},
        {"path": ["b"], "message": "this field is required"},
        {"path": ["c"], "message": "write a number, such as 12.5"},
    ]
