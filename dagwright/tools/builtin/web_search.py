"""Web search through the Serper API (serper.dev)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.retry_after import retry_after
from dagwright.tools.spec import tool

TIMEOUT_S = 30.0

_KEY_REFUSED = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


def web_search_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Returns `serper_web_search` for the key and address of the environment."""

    @tool(effects="read")
    async def serper_web_search(query: str) -> list[dict[str, str]]:
        """Searches the web and returns the results as title, link and snippet, a direct answer first.

        Args:
            query: what to search for, as one types it into a search engine
        """
        if not environment.serper_api_key:
            raise GiveUp("serper_web_search needs a key: set SERPER_API_KEY for the worker")
        address = environment.serper_base_url.rstrip("/") + "/search"
        headers = {"X-API-KEY": environment.serper_api_key}
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.post(address, json={"q": query}, headers=headers)
        _check(response)
        return results_of(response)

    return [serper_web_search]


def results_of(response: httpx.Response) -> list[dict[str, str]]:
    """Returns the answer box, if there is one, and the organic results, each as title, link and snippet.

    Raises:
        RetryLater: the answer is not in Serper's format.
    """
    try:
        found = response.json()
        entries = [_entry(one, one.get("snippet")) for one in found.get("organic", [])]
        answer = found.get("answerBox")
        if answer:
            entries.insert(0, _entry(answer, answer.get("answer") or answer.get("snippet")))
    except (ValueError, AttributeError, TypeError) as error:
        raise RetryLater(f"The search service answered in another format: {error}") from error
    return entries


def _entry(found: dict[str, Any], snippet: Any) -> dict[str, str]:
    return {
        "title": str(found.get("title") or ""),
        "link": str(found.get("link") or ""),
        "snippet": str(snippet or ""),
    }


def _check(response: httpx.Response) -> None:
    if response.is_success:
        return
    said = f"The search service answered {response.status_code}: {' '.join(response.text[:300].split())}"
    if response.status_code in _KEY_REFUSED:
        raise GiveUp(f"{said}; check SERPER_API_KEY")
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
        raise RetryLater(said, after=retry_after(response.headers.get("Retry-After"), datetime.now(UTC)))
    raise GiveUp(said)
