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


def _calculation(node_id: str, title: str, expression: str, **fields: Any) -> dict[str, Any]:
    node = {"id": node_id, "title": title, "tool": "calculator", "arguments": {"expression": expression}}
    return {**node, **fields}


PLAN: dict[str, Any] = {
    "plan": 1,
    "title": "Report of the quarter",
    "inputs": {"rate": {"type": "number"}},
    "nodes": [
        _calculation("north", "Sales in the north", "1200 * 3"),
        _calculation("south", "Sales in the south", "900 * 3"),
        _calculation("stock", "Count the stock", "50 / 0"),
        _calculation("total", "Add them up", "{{north.result}} + {{south.result}}"),
        _calculation("converted", "Convert to euros", "{{total.result}} * {{PLACEHOLDER_rate}}"),
        _calculation("value", "Value of the stock", "{{stock.result}} * {{PLACEHOLDER_rate}}"),
        _calculation("months", "Months", "{{item}} * 100", for_each=[1, 2, 3]),
        {
            "id": "release",
            "title": "Release the report",
            "depends_on": ["converted", "months"],
            "human": {"type": "APPROVAL", "prompt": "Is the report to be sent?"},
        },
        _calculation("send", "Send the report", "{{converted.result}}", depends_on=["release"]),
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
