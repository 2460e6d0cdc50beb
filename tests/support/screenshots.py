"""Take the screenshots of the console for the documentation: `make screenshots`."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import expect

from tests.support.browser import PHONE, browser, open_page
from tests.support.gateway import gateway
from tests.support.server import live_server

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = (1180, 640)
PLAN: dict[str, Any] = {
    "plan": 1,
    "title": "Report of the quarter",
    "inputs": {"rate": {"type": "number"}},
    "nodes": [
        {"id": "north", "title": "Sales in the north", "tool": "calculator", "arguments": {"expression": "1200 * 3"}},
        {"id": "south", "title": "Sales in the south", "tool": "calculator", "arguments": {"expression": "900 * 3"}},
        {"id": "stock", "title": "Count the stock", "tool": "calculator", "arguments": {"expression": "50 / 0"}},
        {
            "id": "total",
            "title": "Add them up",
            "tool": "calculator",
            "arguments": {"expression": "{{north.result}} + {{south.result}}"},
        },
        {
            "id": "converted",
            "title": "Convert to euros",
            "tool": "calculator",
            "arguments": {"expression": "{{total.result}} * {{PLACEHOLDER_rate}}"},
        },
        {
            "id": "value",
            "title": "Value of the stock",
            "tool": "calculator",
            "arguments": {"expression": "{{stock.result}} * {{PLACEHOLDER_rate}}"},
        },
        {
            "id": "months",
            "title": "Months",
            "tool": "calculator",
            "for_each": [1, 2, 3],
            "arguments": {"expression": "{{item}} * 100"},
        },
        {
            "id": "release",
            "title": "Release the report",
            "depends_on": ["converted", "months"],
            "human": {"type": "APPROVAL", "prompt": "Is the report to be sent?"},
        },
        {
            "id": "send",
            "title": "Send the report",
            "tool": "calculator",
            "depends_on": ["release"],
            "arguments": {"expression": "{{converted.result}}"},
        },
    ],
}


async def take_screenshots(folder: Path) -> None:
    with TemporaryDirectory() as temporary_folder:
        state_folder = Path(temporary_folder)
        async with (
            live_server(state_folder / "server") as server,
            gateway(server, folder=state_folder) as running_gateway,
            browser() as chromium,
        ):
            run = (await running_gateway.post("/v1/runs", {"plan": PLAN, "inputs": {"rate": 0.92}})).json()["run_id"]
            for colours in ("light", "dark"):
                address = f"{running_gateway.url}/console/#/runs/{run}?node=converted"
                async with open_page(chromium, address, size=SIZE, colours=colours) as page:
                    await expect(page.locator('.box[data-key="release"]')).to_have_attribute("data-state", "waiting")
                    await expect(page.get_by_role("region", name="Result")).to_be_visible()
                    await page.screenshot(path=folder / f"console-run-{colours}.png")
                address = f"{running_gateway.url}/console/#/inbox"
                async with open_page(chromium, address, size=PHONE, colours=colours) as page:
                    await expect(page.get_by_text("Is the report to be sent?")).to_be_visible()
                    await page.screenshot(path=folder / f"console-phone-{colours}.png")


def main(folder: Path = FOLDER) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_screenshots(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
