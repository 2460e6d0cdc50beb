"""A few typed tools for tests of plans that are built in Python."""

from dataclasses import dataclass

from dagwright.tools import tool


@dataclass
class Article:
    """An article of a shop."""

    name: str
    left: int
    is_new: bool = False


@tool(effects="read")
async def stock(item: str) -> Article:
    """Return the stock of an article."""
    return Article(item, 3)


@tool
async def order(item: str, amount: int, note: str = "") -> dict[str, int]:
    """Order an article."""
    return {item: amount}


@tool(effects="read")
def articles(shop: str) -> list[Article]:
    """List the articles of a shop."""
    return [Article(shop, 1)]


@tool(effects="read")
def fetch(url: str, timeout: int) -> str:
    """Read a page. The parameter `timeout` has the same name as an option of nodes."""
    return f"{url} {timeout}"
