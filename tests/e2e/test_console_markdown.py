"""The console renders the Markdown of messages, but no scripts, no links to scripts and no files of other hosts."""

import pytest
from playwright.async_api import Page, expect

from tests.e2e.conftest import ServeConsole, plan_of
from tests.support.browser import accessibility_violations

pytestmark = [pytest.mark.server, pytest.mark.chromium]

expect.set_options(timeout=60_000)

ANSWER_MARKDOWN = """# Report

The total is **42**, see [the source](https://example.com/a?b=1&c=2).

| item | price |
|---|---:|
| tea | 3 |

```python
print("<b>42</b>")
```
"""
HOSTILE_MARKDOWN = """<script>window.hacked = 1</script>
<img src="https://tracker.example/a.gif" onerror="window.hacked = 2">
<a href="javascript:window.hacked = 3">one</a>

![pixel](https://tracker.example/b.gif) and ![inline](data:image/gif;base64,R0lGODlhAQABAAAAACw=)

[two](javascript:window.hacked=4) [three](JaVaScRiPt&colon;window.hacked=5) [four](data:text/html,x) [five](/v1/runs)

<https://example.com/"onmouseover="window.hacked=6> [six](https://example.com "a\\" onclick=\\"window.hacked=7")

<style>body { display: none }</style><iframe src="https://tracker.example/"></iframe><form action="https://x.example">
"""
ECHO_PLAN = plan_of(
    {"id": "check", "human": {"type": "CLARIFICATION", "prompt": "Is `this` **right**?\n\n{{PLACEHOLDER_words}}"}},
    title="Repeat a text",
    inputs={"words": {"type": "string"}},
    output="{{check.result.text}}",
)


async def _send_request(page: Page, request: str) -> None:
    await page.get_by_label("For", exact=True).select_option("plan/echo")
    await page.get_by_label("Request", exact=True).fill(request)
    await page.get_by_role("button", name="Send").click()


async def _assert_page_is_harmless(page: Page) -> None:
    assert await page.evaluate("window.hacked") is None
    main = page.locator("main")
    dangerous_elements = "script, img, iframe, style, form[action], [onerror], [onclick], [onmouseover], [style]"
    await expect(main.locator(dangerous_elements)).to_have_count(0)
    links = await main.locator(".markdown a").evaluate_all("all => all.map(a => [a.getAttribute('href'), a.rel])")
    assert {href for href, _ in links if href is not None} <= {
        *("https://tracker.example/b.gif", "https://example.com/%22onmouseover=%22window.hacked=6"),
        *("https://example.com", "https://tracker.example/a.gif", "https://tracker.example/", "https://x.example"),
    }
    assert all("noopener" in rel for href, rel in links if href is not None)


async def test_markdown_is_rendered_and_hostile_markdown_is_harmless(serve_console: ServeConsole) -> None:
    async with serve_console("chat", plans={"echo": ECHO_PLAN}) as (gateway, page):
        foreign_urls: list[str] = []
        page.on(
            "request", lambda request: None if request.url.startswith(gateway.url) else foreign_urls.append(request.url)
        )
        await _send_request(page, HOSTILE_MARKDOWN)
        card = page.locator('[data-request="check"]')
        await expect(card.get_by_role("heading")).to_have_text("Is this right?")
        await expect(card.get_by_role("heading").locator("strong")).to_have_text("right")
        await expect(card).to_contain_text("<script>window.hacked = 1</script>")
        await _assert_page_is_harmless(page)

        await card.get_by_label("Answer", exact=True).fill(HOSTILE_MARKDOWN)
        await card.get_by_role("button", name="Answer").click()
        answer = page.locator(".turn-answer .answer-text")
        await expect(answer).to_contain_text("<script>window.hacked = 1</script>")
        pixel = answer.get_by_role("link", name="pixel")
        await expect(pixel).to_have_attribute("href", "https://tracker.example/b.gif")
        await _assert_page_is_harmless(page)

        await expect(page.get_by_role("button", name="Send")).to_be_enabled()
        await _send_request(page, "What does it cost?")
        await card.last.get_by_label("Answer", exact=True).fill(ANSWER_MARKDOWN)
        await card.last.get_by_role("button", name="Answer").click()
        await expect(answer).to_have_count(2)
        last_answer = answer.last
        await expect(last_answer.get_by_role("heading", level=3)).to_have_text("Report")
        await expect(last_answer.locator("strong")).to_have_text("42")
        link = last_answer.get_by_role("link", name="the source")
        attributes = [await link.get_attribute(name) for name in ("href", "rel", "target")]
        assert attributes == ["https://example.com/a?b=1&c=2", "noopener noreferrer nofollow", "_blank"]
        await expect(last_answer.locator("td").last).to_have_attribute("align", "right")
        await expect(last_answer.locator("pre")).to_have_text('print("<b>42</b>")')
        assert await accessibility_violations(page) == []
        assert foreign_urls == []
