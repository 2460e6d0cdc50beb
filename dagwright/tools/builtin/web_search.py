"""Web search through the Serper API (serper.dev), or any service with the same format."""

from collections.abc import Callable
from typing import Annotated, Any

import httpx
from pydantic import Field

from dagwright.tools.context import record_reads
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.retry_after import requested_delay, requesting_service
from dagwright.tools.spec import tool

TIMEOUT_S = 30.0
MAX_RESULTS = 100
"""Maximum number of results that the service returns for one query."""

_REJECTED_KEY_STATUSES = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)

Results = list[dict[str, str]]


def web_search_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Return `serper_web_search` and `web_search` for the key and URL of the environment."""

    @tool(effects="read", secrets=[])
    async def serper_web_search(query: str) -> Results:
        """Search the web and return the results as title, link and snippet, a direct answer first.

        Args:
            query: the search query, as typed into a search engine
        """
        return await _search(environment, query, "serper_web_search")

    @tool(effects="read", secrets=[])
    async def web_search(query: str, limit: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 10) -> Results:
        """Search the web and return the results as title, link and snippet, a direct answer first.

        Args:
            query: the search query, as typed into a search engine
            limit: maximum number of results
        """
        return (await _search(environment, query, "web_search", limit=limit))[:limit]

    return [serper_web_search, web_search]


async def _search(environment: ToolEnvironment, query: str, name: str, *, limit: int | None = None) -> Results:
    if not environment.serper_api_key:
        raise GiveUp(
            f"{name} needs a key: set SERPER_API_KEY for the worker, and SERPER_BASE_URL if the service is not Serper's"
        )
    if not query.strip():
        raise ValueError("The query is empty")
    request_url = environment.serper_base_url.rstrip("/") + "/search"
    query_body = {"q": query} if limit is None else {"q": query, "num": limit}
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.post(
                request_url, json=query_body, headers={"X-API-KEY": environment.serper_api_key}
            )
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise GiveUp(f"SERPER_BASE_URL of the worker is not a valid URL: {error}") from None
    except httpx.TransportError as error:
        message = (
            f"The search service at {environment.serper_base_url} does not respond: {type(error).__name__} {error}"
        )
        raise RetryLater(message.rstrip()) from None
    _raise_for_status(response)
    results = parse_results(response)
    # Each result is a source of the answer.
    record_reads(*(entry["link"] for entry in results[:limit] if entry["link"]))
    return results


def parse_results(response: httpx.Response) -> Results:
    """Return the answer box, if there is one, and the organic results, each as title, link and snippet.

    Raises:
        RetryLater: the response is not in Serper's format.
    """
    try:
        body = response.json()
        entries = [_entry(result, result.get("snippet")) for result in body.get("organic", [])]
        answer = body.get("answerBox")
        if answer:
            entries.insert(0, _entry(answer, answer.get("answer") or answer.get("snippet")))
    except (ValueError, AttributeError, TypeError) as error:
        raise RetryLater(f"Invalid response of the search service: {error}") from error
    return entries


def _entry(result: dict[str, Any], snippet: Any) -> dict[str, str]:
    return {
        "title": str(result.get("title") or ""),
        "link": str(result.get("link") or ""),
        "snippet": str(snippet or ""),
    }


def _raise_for_status(response: httpx.Response) -> None:
    if response.is_success:
        return
    message = f"The search service returned {response.status_code}: {' '.join(response.text[:300].split())}"
    if response.status_code in _REJECTED_KEY_STATUSES:
        raise GiveUp(f"{message}; check SERPER_API_KEY")
    if "credits" in response.text.lower():
        raise GiveUp(f"{message}; add credit to the account of SERPER_API_KEY, or set another key")
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
        requested_by = requesting_service(response.status_code, response.request.url.host)
        raise RetryLater(message, after=requested_delay(response.headers), requested_by=requested_by)
    if response.status_code == httpx.codes.NOT_FOUND:
        raise GiveUp(f"{message}; check SERPER_BASE_URL, which was called as {response.request.url}")
    raise GiveUp(message)
