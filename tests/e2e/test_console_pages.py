"""Pages of the console: titles, links, lists, forms, and explanations for new users."""

import asyncio
import json
import re
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.e2e.conftest import OpenConsolePage, Serve, calculation, plan_of
from tests.support.browser import accessibility_violations, open_page
from tests.support.eventually import eventually

pytestmark = [pytest.mark.server, pytest.mark.chromium]

expect.set_options(timeout=60_000)

FORM_SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["letter", "parcel"]},
        "from": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
        "code": {"type": "string", "examples": ["AB-12"]},
    },
    "required": ["kind", "from"],
}
FORM_PLAN = plan_of(
    {"id": "facts", "human": {"type": "INFORMATION", "prompt": "What is sent?", "schema": FORM_SCHEMA}},
    title="Send something",
    output="{{facts.result}}",
)
SUM_PLAN = {"plan": 1, "nodes": [calculation("one", "1 + 1")], "output": "{{one.result}}"}
PLAN_WITH_INPUTS = """\
plan: 1
inputs:
  owner: {type: string}
  count: {type: integer, default: 3}
nodes:
  - {id: double, tool: calculator, arguments: {expression: "{{PLACEHOLDER_count}} * 2"}}
"""
SHOW_RETRIED_NODE = """async () => {
  const { Detail } = await import("/console/js/detail.js");
  const node = { node_id: "one", status: "running", attempts: 2, started_at: "2026-01-05T09:30:00Z" };
  const step = { node_id: "one", message: "waits: attempt 2 failed: no connection", until: "2026-01-05T09:31:00Z" };
  const explanation = { message: "the node is retried", chain: [step] };
  const api = { get: async (path) => (path.includes("/explain") ? explanation : node) };
  const createCommands = () => document.createElement("span");
  const currentRun = () => ({ status: "running" });
  const detail = new Detail("run-1", { api, createCommands, currentRun, go() {}, onClose() {}, onNode() {} });
  document.body.append(detail.element);
  detail.show("one");
}"""
RETRY_AFTER_LEAVING = """async () => {
  const { retryUntilSuccess } = await import("/console/js/events.js");
  const controller = new AbortController();
  let attempts = 0;
  const request = async () => {
    attempts += 1;
    throw new TypeError("there is no connection");
  };
  const options = { signal: controller.signal, mayRetry: () => true, onOffline: () => controller.abort() };
  const errorName = await retryUntilSuccess(request, options).catch((error) => error.name);
  return [errorName, attempts];
}"""
SEND_CHAT_REQUEST = """() => {
  import("/console/js/chat_stream.js").then(({ chatRequest, followAnswer }) => {
    const handlers = { offline() {} };
    const { signal } = new AbortController();
    return followAnswer(chatRequest({ model: "small", messages: [] }, "key-1"), { handlers, signal });
  });
}"""
LOAD_OLDER_GRAPH = """async () => {
  const { RunGraph } = await import("/console/js/run_graph.js");
  const runGraph = new RunGraph();
  const node = { node_id: "one", title: "One", group: "round 1" };
  const snapshot = ({ at: cursor, ...facts }) => ({ nodes: [{ ...node, ...facts }], edges: [], cursor });
  runGraph.load(snapshot({ at: "1-5", status: "waiting", attempts: 1, reason: "waits for its turn" }));
  runGraph.applyEvents([{ node_id: "one", title: "One again", status: "running", attempts: 2 }], "1-9");
  const rows = [];
  for (const at of ["1-7", "1-11"]) {
    const reasonField = at === "1-7" ? { reason: "waits for its turn" } : {};
    runGraph.load(snapshot({ at, status: "waiting", attempts: 1, ...reasonField }));
    const { title, status, attempts, reason = null, group } = runGraph.find("one");
    rows.push([title, status, attempts, reason, group]);
  }
  return rows;
}"""
# `constructor` is not a known format, but each JavaScript object has a property with this name.
READ_FORMATS = """async () => {
  const { formatText, inputOf } = await import("/console/js/formats.js");
  return ["constructor", "date", "uuid"].map((format) => [formatText(format), inputOf(format, "").type]);
}"""
SHOW_SELECTION = """async () => {
  const { requestCard } = await import("/console/js/answers.js");
  const options = ["by sea", "by air"];
  const request = { run_id: "run-1", request_id: "way", type: "SELECTION", options, allow_text: true };
  const sendAnswer = async ({ answer }) => {
    window.sentAnswer = answer;
    return "It is answered.";
  };
  document.querySelector("main").replaceChildren(requestCard(request, { sendAnswer }).element);
}"""
PAGES = {"runs": "Runs", "inbox": "Inbox", "chat": "Chat", "plan": "Plan"}


async def test_every_page_has_a_title_and_links_to_temporal(serve: Serve, chromium: Browser) -> None:
    async with serve(plans={"two": SUM_PLAN}) as gateway:
        run_id = await gateway.start(FORM_PLAN)
        await gateway.wait_for_requests(run_id)
        run_url = re.compile(rf"/namespaces/[^/]+/workflows/{run_id}$")
        async with open_page(chromium, f"{gateway.url}/console/") as page:
            header_link = page.get_by_role("banner").get_by_role("link", name="Temporal UI")
            for path, name in PAGES.items():
                await page.goto(f"{gateway.url}/console/#/{path}")
                await expect(page).to_have_title(f"{name} · Dagwright")
                await expect(header_link).to_have_attribute("href", re.compile("/namespaces/[^/]+/workflows$"))
            await page.goto(f"{gateway.url}/console/#/inbox")
            card = page.locator(f'[data-run="{run_id}"]')
            await expect(card.get_by_role("link", name="Send something")).to_be_visible()
            await expect(card.locator(".facts")).to_contain_text(run_id)
            await expect(card.get_by_role("link", name="Temporal UI")).to_have_attribute("href", run_url)
            await page.get_by_label("Find", exact=True).fill("send SOMETHING")
            await expect(card).to_be_visible()
            await page.goto(f"{gateway.url}/console/#/runs/{run_id}?node=facts")
            await expect(page).to_have_title("Send something · Dagwright")
            await expect(page.locator(".facts").get_by_role("link", name="asks 1 question")).to_be_visible()
            link = page.locator(".detail").get_by_role("link", name="Temporal UI")
            await expect(link).to_have_attribute("href", run_url)
            await page.goto(f"{gateway.url}/console/#/chat")
            await expect(page.get_by_text("Write a request below")).to_be_visible()
            await page.get_by_label("For", exact=True).select_option("plan/two")
            await page.get_by_role("button", name="Send").click()
            turn = page.locator(".turn-answer")
            await expect(turn.locator(".answer-text")).to_have_text("2")
            turn_url = re.compile("/workflows/[^/]+$")
            await expect(turn.get_by_role("link", name="Temporal UI")).to_have_attribute("href", turn_url)
            await expect(page.get_by_text("Write a request below")).to_have_count(0)


async def test_unknown_address_is_reported(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("blah") as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("No such page")
        await expect(page).to_have_title("No such page · Dagwright")
        assert await accessibility_violations(page) == []
        await page.get_by_role("main").get_by_role("link", name="Inbox").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")


async def test_empty_list_explains_how_to_start(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("plan") as page:
        empty_list: dict[str, Any] = {"object": "list", "data": [], "cursor": None, "ui_url": None}
        await page.route("**/v1/runs?*", lambda route: route.fulfill(json=empty_list))
        await page.goto(page.url.replace("#/plan", "#/runs"))
        table = page.get_by_role("table", name="Runs")
        await expect(table.get_by_role("link", name="Chat")).to_be_visible()
        await expect(page.get_by_role("button", name="Older")).to_be_hidden()
        await page.get_by_label("State").select_option("failed")
        await expect(table).to_contain_text("No run matches.")


async def test_form_describes_its_fields(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(FORM_PLAN)
        await gateway.wait_for_requests(run_id)
        async with open_page(chromium, f"{gateway.url}/console/#/inbox") as page:
            card = page.locator(f'[data-run="{run_id}"]')
            await card.get_by_role("radiogroup", name="kind").get_by_label("parcel").check()
            await expect(card).to_contain_text("such as AB-12")
            await expect(card).to_contain_text("an address such as ann@example.com")
            await expect(card).not_to_contain_text("date-time")
            assert await accessibility_violations(page) == []
            await card.get_by_label("from").fill("2026-01-05T09:30")
            expected_time = await page.evaluate("new Date('2026-01-05T09:30').toISOString()")
            await card.get_by_role("button", name="Answer").click()
            await expect(card.locator(".confirmation")).to_contain_text("facts")
            data = (await gateway.wait_for_end(run_id))["output"]["data"]
            sent_time = await page.evaluate("text => new Date(text).toISOString()", data["from"])
    assert data["kind"] == "parcel"
    assert re.fullmatch(r"2026-01-05T09:30:00[+-]\d\d:\d\d", data["from"])
    assert sent_time == expected_time


async def test_form_marks_optional_inputs_and_inputs_that_the_run_asks_for(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("plan") as page:
        await page.get_by_label("Plan, as YAML or JSON").fill(PLAN_WITH_INPUTS)
        form = page.get_by_role("form", name="Start")
        owner_label = form.locator("label").filter(has_text="owner")
        await expect(owner_label).to_have_text("owner (the run asks for it if empty)")
        await expect(form.locator("label").filter(has_text="count")).to_have_text("count (optional)")


async def test_inbox_filter_reports_that_it_searches_loaded_requests_only(open_console_page: OpenConsolePage) -> None:
    request = {"run_id": "run-1", "request_id": "way", "node_id": "way", "type": "CLARIFICATION", "title": "Trip"}
    more_fields = {"prompt": "Which way?", "opened_at": "2026-01-05T09:30:00.000Z", "answer_schema": {}}
    document: dict[str, Any] = {**request, **more_fields, "assignee": None}
    async with open_console_page("plan") as page:

        async def send_inbox(route: Route) -> None:
            is_first_page = "after" not in route.request.url
            more_requests = [{**document, "request_id": f"way-{number}"} for number in range(50)]
            requests = [document] if is_first_page else more_requests
            inbox = {"object": "list", "data": requests, "cursor": "1", "has_more": True, "omitted": []}
            await route.fulfill(json=inbox)

        await page.route("**/v1/inbox?*", send_inbox)
        await page.goto(page.url.replace("#/plan", "#/inbox"))
        state = page.locator("#inbox-state")
        await expect(state).to_have_text("51+ open")
        await page.get_by_label("Find", exact=True).fill("way-7")
        await expect(state).to_have_text("1 found in 51 loaded requests; “Show more” loads and searches more requests")
        await expect(page.get_by_role("button", name="Show more")).to_be_visible()


async def test_detail_shows_when_and_why_a_node_is_retried(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("inbox") as page:
        await page.evaluate(SHOW_RETRIED_NODE)
        detail = page.get_by_role("region", name="Node")
        await expect(detail).to_contain_text("Last attempt started")
        await expect(detail).to_contain_text(re.compile(r"attempt 2 failed: no connection, until .*:31:00"))


async def test_request_is_not_retried_after_the_page_was_left(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("inbox") as page:
        assert await page.evaluate(RETRY_AFTER_LEAVING) == ["AbortError", 1]


async def test_slow_model_is_called_once(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("inbox") as page:
        routes: list[Route] = []
        await page.clock.install()
        # The route is never fulfilled, so the request stays open.
        await page.route("**/v1/chat/completions", lambda route: routes.append(route))  # noqa: PLW0108 - Playwright marks the handler
        await page.evaluate(SEND_CHAT_REQUEST)
        await eventually(lambda: len(routes) == 1)
        for _ in range(10):
            await page.clock.run_for(10_000)
        assert len(routes) == 1
        # Playwright waits for the end of each open request, even after the page was closed.
        await routes[0].abort()


async def test_graph_that_is_older_than_the_events_does_not_change_a_node(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("inbox") as page:
        result = await page.evaluate(LOAD_OLDER_GRAPH)
    assert result == [["One again", "running", 2, None, "round 1"], ["One", "waiting", 1, None, "round 1"]]


async def test_form_field_has_the_input_type_and_the_hint_of_its_format(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("inbox") as page:
        result = await page.evaluate(READ_FORMATS)
    assert result == [["constructor", "text"], ["", "date"], ["such as 123e4567-e89b-42d3-a456-426614174000", "text"]]


async def test_option_or_text_that_was_entered_last_is_the_answer(open_console_page: OpenConsolePage) -> None:
    async with open_console_page("plan") as page:
        await page.evaluate(SHOW_SELECTION)
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
        assert await page.evaluate("window.sentAnswer") == {"selected": ["by air"]}


async def test_node_of_an_ended_run_offers_only_a_fork(serve: Serve, chromium: Browser) -> None:
    approval_node = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Continue?"}}
    plan = {"plan": 1, "nodes": [calculation("broken", "1 / 0", on_error="skip"), approval_node]}
    async with serve() as gateway:
        run_id = await gateway.start(plan)
        async with open_page(chromium, f"{gateway.url}/console/#/inbox") as page:
            end_event = {"run_id": run_id, "status": "completed_with_failures", "error": None, "output": None}
            release_event = asyncio.Event()

            async def fulfill_end(route: Route) -> None:
                await release_event.wait()
                message = f"event: run.completed\ndata: {json.dumps(end_event)}\n\n"
                await route.fulfill(body=message, content_type="text/event-stream")

            await page.route(f"**/v1/runs/{run_id}/events", fulfill_end)
            await page.goto(f"{gateway.url}/console/#/runs/{run_id}?node=broken")
            actions = page.locator(".detail .actions")
            await expect(actions.get_by_role("button", name="Set its result")).to_be_visible()

            await gateway.wait_for_requests(run_id)
            await gateway.post(f"/v1/runs/{run_id}/feedback", {"answer": "yes"})
            await gateway.wait_for_end(run_id)
            release_event.set()
            await expect(page.locator("header.run + .facts")).to_contain_text("completed")
            await expect(actions.get_by_role("button")).to_have_text(["Fork from here"])


OPTIONAL_FIELDS = {
    "name": {"type": "string"},
    "address": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]},
    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "several": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1},
}
SCHEMAS_AND_VALUES: list[tuple[Any, Any]] = [
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
    ({"type": "object", "properties": OPTIONAL_FIELDS, "required": ["name"]}, {"name": "Ann"}),
    ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a", "c"]),
    ({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}, [{"n": 1}, {"n": 2}]),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, ["x", {"y": 1}]),
    ({"type": "object"}, {"anything": [1, None]}),
    ({"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}, {"day": "2026-01-05"}),
    ({"type": "string", "format": "date-time"}, "2026-01-05T09:30:00.5Z"),
    ({"enum": [1, "1", None, {"x": 1}]}, {"x": 1}),
    ({"type": "string", "maxLength": 500}, "two\nlines"),
]
READ_FORM = """async ([schema, value]) => {
  const { schemaForm } = await import("/console/js/forms.js");
  const form = schemaForm(schema, { value });
  document.body.append(form.element);
  const read = form.read();
  const marked = [...form.element.querySelectorAll(".problem")].filter((each) => !each.hidden);
  form.element.remove();
  return { ...read, marked: marked.map((each) => each.textContent) };
}"""


async def test_form_returns_its_initial_value_and_the_problems_of_the_value(open_console_page: OpenConsolePage) -> None:
    properties = {"a": {"type": "integer", "maximum": 3}, "b": {}, "c": {"type": "number", "default": "12,5"}}
    limited_schema = {"type": "object", "properties": properties, "required": ["a", "b"]}
    async with open_console_page("plan") as page:
        actual = [await page.evaluate(READ_FORM, [schema, value]) for schema, value in SCHEMAS_AND_VALUES]
        invalid_result = await page.evaluate(READ_FORM, [limited_schema, {"a": 4}])
    assert actual == [{"value": value, "problems": [], "marked": []} for _, value in SCHEMAS_AND_VALUES]
    assert invalid_result["problems"] == [
        {"path": ["a"], "message": "write 3 or less"},
        {"path": ["b"], "message": "this field is required"},
        {"path": ["c"], "message": "write a number, such as 12.5"},
    ]
