"""A scripted web search that answers in the format of Serper: what tests and demos use where a real one costs money.

    async with SearchServer({"age of Caesar": [found("55", title="Julius Caesar")]}) as server:
        ...  # SERPER_BASE_URL is server.base_url, SERPER_API_KEY any text
    assert server.queries == ["age of Caesar"]

It is as strict as the model server: a query that is not in the script, a request that is no search, and an answer that
nobody asked for each raise `ScriptNotFollowed` at the end of the block.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.testing.answers import Refused
from dagwright.testing.http import Exchange, Request, ScriptedServer


@dataclass(frozen=True, slots=True)
class Found:
    """One result of a search."""

    snippet: str
    title: str = ""
    link: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the result as Serper has it."""
        return {"title": self.title, "link": self.link, "snippet": self.snippet}


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a search finds.

    Args:
        organic: the results, best first.
        answer: a direct answer above them, if there is one.
        more: further parts of the answer, such as `knowledgeGraph`.
    """

    organic: tuple[Found, ...] = ()
    answer: Found | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a query as Serper has it."""
        box = {}
        if self.answer is not None:
            told = self.answer
            box = {"answerBox": {"title": told.title, "link": told.link, "answer": told.snippet}}
        organic = [{**each.to_json(), "position": place} for place, each in enumerate(self.organic, 1)]
        parameters = {"type": "search", "engine": "google", **asked}
        return {"searchParameters": parameters, **box, **self.more, "organic": organic, "credits": 1}


def found(*snippets: str, title: str = "", link: str = "") -> SearchAnswer:
    """Returns an answer of results with these snippets."""
    return SearchAnswer(tuple(Found(snippet, title, link) for snippet in snippets))


class SearchServer(ScriptedServer):
    """Answers searches as a script says, strictly, and keeps what it was asked.

    Args:
        script: query -> its answers, each of which is given once, in order.
        api_keys: keys that it takes; a search with another gets the 403 of Serper. Without it every key is taken.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[SearchAnswer | Refused]],
        *,
        api_keys: Sequence[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(host=host, port=port)
        self._left = {query: list(answers) for query, answers in script.items()}
        self._api_keys = api_keys
        self._queries: list[str] = []
        self._problems: list[str] = []

    @property
    def base_url(self) -> str:
        """Returns what `SERPER_BASE_URL` must be to reach the server."""
        return f"http://{self._http.address}"

    @property
    def queries(self) -> Sequence[str]:
        """Returns what was searched for, in the order in which it came."""
        return self._queries

    def report(self) -> str:
        """Returns everything that did not go as the script says, for a person to read; empty if all did."""
        unused = [f"nobody asked {len(left)} times for {query!r}" for query, left in self._left.items() if left]
        told = [*self._problems, *unused]
        return "\n".join(["the script of the search server was not followed", *told]) if told else ""

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        asked = _asked(request)
        if request.method != "POST" or request.target != "/search" or asked is None:
            self._problems.append(f"this is no search: {request.method} {request.target} {request.body[:200]!r}")
            await exchange.json(400, {"message": "Bad request", "statusCode": 400})
            return
        key = request.headers.get("x-api-key", "")
        if not key or (self._api_keys is not None and key not in self._api_keys):
            await exchange.json(403, {"message": "Unauthorized.", "statusCode": 403})
            return
        query = asked["q"]
        self._queries.append(query)
        left = self._left.get(query)
        if not left:
            self._problems.append(f"the script has no answer to {query!r}")
            await exchange.json(400, {"message": f"no step of the script answers {query!r}", "statusCode": 400})
            return
        answer = left.pop(0)
        if isinstance(answer, SearchAnswer):
            await exchange.json(200, answer.to_json(asked))
            return
        delay = {} if answer.retry_after is None else {"retry-after": f"{answer.retry_after}"}
        told = {"message": answer.message, "statusCode": answer.status}
        await exchange.json(answer.status, told, {**delay, **answer.headers})


def _asked(request: Request) -> dict[str, Any] | None:
    try:
        body = json.loads(request.body)
    except ValueError:
        return None
    return body if isinstance(body, dict) and isinstance(body.get("q"), str) and body["q"] else None
