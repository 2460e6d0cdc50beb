"""The limits of a run are changed on the page of a node in the console, in a real browser."""

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.conftest import APPROVAL_NODE, Serve, plan_of, wait_node
from tests.support.browser import open_page
from tests.support.eventually import eventually

pytestmark = [pytest.mark.server, pytest.mark.chromium]

expect.set_options(timeout=60_000)

LIMITED_PLAN = plan_of(
    APPROVAL_NODE, wait_node("long", "1h", depends_on=["check"]), wait_node("next", "1h", depends_on=["check"])
)


async def test_limit_is_raised_on_the_page_of_a_node_that_waits_for_it(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        run_id = await gateway.start(LIMITED_PLAN)
        assert (await gateway.post(f"/v1/runs/{run_id}/limits", {"max_parallel": 1})).json()["ok"]

        async def answer_request() -> bool:
            answer = {"request_id": "check", "answer": "yes"}
            return (await gateway.post(f"/v1/runs/{run_id}/feedback", answer)).is_success

        await eventually(answer_request)
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{run_id}?node=next") as page:
            dialog = page.get_by_role("dialog")
            await expect(page.get_by_label("Node", exact=True)).to_contain_text("its `max_parallel` is 1")
            await page.get_by_role("group", name="Steer next").get_by_role("button", name="Raise a limit").click()
            await expect(dialog).to_contain_text("now 1 · at least 1, at most 500")
            await dialog.get_by_label("Deadline").fill("soon")
            await dialog.get_by_role("button", name="Set them").click()
            await expect(dialog.get_by_role("alert").last).to_contain_text("deadline: 'soon' is not a duration")
            await dialog.get_by_label("Deadline").fill("")
            await dialog.get_by_label("Running nodes").fill("2")
            await dialog.get_by_role("button", name="Set them").click()
            await expect(page.get_by_text("the run now has max_parallel 2")).to_be_attached()
            await expect(page.get_by_role("group", name="Steer next").get_by_text("Raise a limit")).to_have_count(0)
            next_node = (await gateway.http.get(f"/v1/runs/{run_id}/nodes/next")).json()
            await gateway.post(f"/v1/runs/{run_id}/cancel", {})
    assert next_node["status"] == "running"
