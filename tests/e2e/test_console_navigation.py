"""Navigation in the console closes the dialogs and clears the status texts of the previous page."""

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.conftest import Serve, calculation, wait_node
from tests.support.browser import open_page

pytestmark = [pytest.mark.server, pytest.mark.chromium]

expect.set_options(timeout=60_000)

LONG_PLAN = {"plan": 1, "nodes": [wait_node("long", "1h")]}
SHORT_PLAN = {"plan": 1, "nodes": [calculation("sum", "1 + 1")]}


async def test_navigation_closes_dialogs_and_removes_status_texts(serve: Serve, chromium: Browser) -> None:
    async with serve() as gateway:
        first_run = await gateway.start({**LONG_PLAN, "title": "The first run"})
        second_run = await gateway.start({**LONG_PLAN, "title": "The second run"})
        ended_run = await gateway.start(SHORT_PLAN)
        async with open_page(chromium, f"{gateway.url}/console/#/runs/{first_run}") as page:
            dialog = page.get_by_role("dialog")
            heading = page.get_by_role("heading", level=1)
            cancel_button = page.get_by_role("button", name="Cancel the run")
            await expect(heading).to_have_text("The first run")
            await page.goto(f"{gateway.url}/console/#/runs/{second_run}")
            await expect(heading).to_have_text("The second run")
            await cancel_button.click()
            await expect(dialog).to_contain_text("The second run")
            await expect(dialog).to_contain_text(second_run)
            await page.go_back()
            await expect(heading).to_have_text("The first run")
            await expect(dialog).to_have_count(0)

            # A dialog that loads data before it opens must not open after the person has gone to another page.
            async with page.expect_response("**/limits"):
                await page.route("**/limits", lambda route: route.continue_())
                await page.get_by_role("button", name="Limits").click()
                await page.evaluate(f"location.hash = '#/runs/{second_run}'")
            await expect(heading).to_have_text("The second run")
            await cancel_button.click()
            await expect(dialog).to_have_count(1)
            await page.go_forward()
            await page.go_back()
            await expect(dialog).to_have_count(0)

            await page.goto(f"{gateway.url}/console/#/runs/{ended_run}")
            status_line = page.locator("#status-line")
            await page.get_by_role("button", name="Fork").click()
            await dialog.get_by_role("button", name="Show the difference").click()
            await expect(dialog.get_by_role("heading", level=3)).to_be_visible()
            await dialog.get_by_role("button", name="Start the fork").click()
            await page.wait_for_url("**/#/runs/*-fork-*")
            await expect(status_line).to_contain_text("The run is completed")
            await page.get_by_role("link", name="Chat").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("New chat")
            await expect(status_line).to_be_empty()
        statuses = [
            (await gateway.http.get(f"/v1/runs/{run_id}")).json()["status"] for run_id in (first_run, second_run)
        ]
    assert statuses == ["running", "running"]
