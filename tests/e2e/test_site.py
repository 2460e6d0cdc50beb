"""The site of the documentation draws its diagrams and requests nothing from another host."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.browser import open_page
from tests.support.docs import ROOT, blocks_of
from tests.support.http_servers import serve_handler

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.chromium, pytest.mark.waits]

PAGE = ROOT / "docs/reference/states.md"


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Write no access log."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)], cwd=ROOT, check=True)
    with serve_handler(partial(_QuietHandler, directory=str(folder))) as address:
        yield address


async def test_diagrams_are_drawn_without_requests_to_other_hosts(site: str, chromium: "Browser") -> None:
    diagram_count = sum(block.language == "mermaid" for block in blocks_of(PAGE))
    assert diagram_count > 0
    hosts: set[str | None] = set()
    async with open_page(chromium, f"{site}/") as page:
        page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
        await page.goto(f"{site}/reference/states/")
        # The theme replaces the text of a diagram by an element. Scripts cannot read the picture in the element, so the
        # test reads the height of the element.
        await page.wait_for_function(f"document.querySelectorAll('div.mermaid').length === {diagram_count}")
        heights = await page.evaluate("[...document.querySelectorAll('div.mermaid')].map(each => each.clientHeight)")
        await page.wait_for_load_state("networkidle")
    assert min(heights) > 100
    assert hosts == {"127.0.0.1"}
