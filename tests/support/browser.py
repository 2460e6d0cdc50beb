"""A real Chromium for tests of the console: pages of any size, and checks for errors.

Playwright is imported only when a test opens a browser, because every test process imports this module.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

PHONE = (360, 740)
DESKTOP = (1280, 800)
TIMEOUT_MS = 60_000
"""Timeout for a change of the page, on a busy machine."""


@asynccontextmanager
async def browser() -> AsyncIterator["Browser"]:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - see the docstring of the module

    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed; scripts/test-needs installs it"
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def open_page(
    browser: "Browser", address: str, *, size: tuple[int, int] = DESKTOP, colours: Literal["light", "dark"] = "light"
) -> AsyncIterator["Page"]:
    """Open a page inside the block and assert that it reports no error."""
    context = await browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=colours)
    context.set_default_timeout(TIMEOUT_MS)
    errors: list[str] = []
    try:
        page = await context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: errors.append(message.text) if "Content Security Policy" in message.text else None,
        )
        await page.goto(address)
        yield page
    finally:
        await context.close()
    assert not errors, errors


async def accessibility_violations(page: "Page") -> list[str]:
    # Axe has no types.
    from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]  # noqa: PLC0415

    report = await Axe().run(page)
    return [
        f"{violation['id']}: {[node['html'][:120] for node in violation['nodes']]}"
        for violation in report.response["violations"]
    ]
