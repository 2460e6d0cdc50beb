"""`web_search` against the scripted search server, and that server itself."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.testing import Found, Refused, ScriptNotFollowed, SearchAnswer, SearchServer, found
from dagwright.tools import GiveUp, RetryLater
from dagwright.tools.builtin.web_search import web_search_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context


def tools(base_url: str, key: str | None = "key") -> list[Callable[..., Any]]:
    return web_search_tools(ToolEnvironment(Path(), serper_api_key=key, serper_base_url=base_url))


async def test_results_come_with_the_direct_answer_first() -> None:
    answer = SearchAnswer((Found("was 55", "Caesar", "https://a.example"),), Found("55 years", "Age"))
    async with SearchServer({"age of Caesar": [answer, answer]}) as server:
        for search in tools(server.base_url):
            with tool_context() as call:
                assert await search("age of Caesar") == [
                    {"title": "Age", "link": "", "snippet": "55 years"},
                    {"title": "Caesar", "link": "https://a.example", "snippet": "was 55"},
                ]
            assert call.places == ["https://a.example"]
    assert server.queries == ["age of Caesar", "age of Caesar"]


async def test_no_more_results_come_than_are_wanted() -> None:
    async with SearchServer({"many": [found("a", "b", "c")]}) as server:
        _, search = tools(server.base_url)
        assert [each["snippet"] for each in await search("many", limit=2)] == ["a", "b"]


@pytest.mark.parametrize(
    ("refused", "message", "kind"),
    [
        (Refused(403, "Unauthorized."), "403.*check SERPER_API_KEY", GiveUp),
        (Refused(400, "Not enough credits"), "Not enough credits.*add credit to the account", GiveUp),
        (Refused(404, "Not found"), "404.*check SERPER_BASE_URL, which is asked as http://.*/search", GiveUp),
        (Refused(400, "Bad query"), "400.*Bad query", GiveUp),
        (Refused(503, "Down"), "503.*Down", RetryLater),
    ],
)
async def test_what_the_service_refuses_comes_with_advice(
    refused: Refused, message: str, kind: type[Exception]
) -> None:
    async with SearchServer({"q": [refused]}) as server:
        with pytest.raises(kind, match=message):
            await tools(server.base_url)[1]("q")


async def test_a_busy_service_is_asked_again_when_it_said() -> None:
    async with SearchServer({"q": [Refused(429, "Too many", retry_after=9)]}) as server:
        with pytest.raises(RetryLater) as caught:
            await tools(server.base_url)[1]("q")
    assert caught.value.after == timedelta(seconds=9)


async def test_a_service_that_is_not_there_is_named() -> None:
    async with SearchServer({}) as server:
        gone = server.base_url
    with pytest.raises(RetryLater, match=f"The search service at {gone} does not answer: ConnectError"):
        await tools(gone)[1]("q")
    with pytest.raises(GiveUp, match="SERPER_BASE_URL of the worker is no address"):
        await tools("nowhere")[1]("q")


async def test_without_a_key_or_a_query_nothing_is_asked() -> None:
    async with SearchServer({}) as server:
        for place, name in enumerate(("serper_web_search", "web_search")):
            with pytest.raises(GiveUp, match=f"{name} needs a key: set SERPER_API_KEY"):
                await tools(server.base_url, None)[place]("q")
        with pytest.raises(ValueError, match="The query is empty"):
            await tools(server.base_url)[1](" ")


async def test_the_scripted_server_tells_all_that_went_another_way() -> None:
    server = SearchServer({"asked": [found("a")], "never": [found("b"), found("c")]})
    await server.__aenter__()
    async with httpx.AsyncClient(base_url=server.base_url, headers={"X-API-KEY": "k"}) as client:
        answer = await client.post("/search", json={"q": "asked", "num": 3})
        statuses = [(await client.post("/search", json={"q": query})).status_code for query in ("asked", "other")]
        statuses.append((await client.get("/search")).status_code)
    with pytest.raises(ScriptNotFollowed) as caught:
        await server.__aexit__(None, None, None)
    assert answer.json() == {
        "searchParameters": {"type": "search", "engine": "google", "q": "asked", "num": 3},
        "organic": [{"title": "", "link": "", "snippet": "a", "position": 1}],
        "credits": 1,
    }
    assert statuses == [400, 400, 400]
    assert str(caught.value).splitlines() == [
        "the script of the search server was not followed",
        "the script has no answer to 'asked'",
        "the script has no answer to 'other'",
        "this is no search: GET /search b''",
        "nobody asked 2 times for 'never'",
    ]


async def test_the_scripted_server_takes_the_keys_it_is_given() -> None:
    async with SearchServer({}, api_keys=["right"]) as server:
        with pytest.raises(GiveUp, match="check SERPER_API_KEY"):
            await tools(server.base_url, "wrong")[1]("q")
