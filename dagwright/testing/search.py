"""A scripted web search in the format of Serper, for tests and demos in which a real search would cost money.

    async with SearchServer({"age of Caesar": [search_answer("55", title="Julius Caesar")]}) as server:
        ...  # SERPER_BASE_URL is server.base_url, SERPER_API_KEY any text
    assert server.queries == ["age of Caesar"]

Like the model server, it is strict: the end of the block raises `ScriptNotFollowed` for a query that is not in the
script, an invalid request, or an unused response.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.testing.http import ReceivedRequest, ResponseSender, ScriptedServer
from dagwright.testing.scripted_answers import HttpError


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search."""

    snippet: str
    title: str = ""
    link: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result in Serper's format."""
        return {"title": self.title, "link": self.link, "snippet": self.snippet}


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Response of a search.

    Args:
        organic: the results, best first.
        answer: a direct answer before the results, if any.
        extra_fields: other top-level fields of the response, such as `knowledgeGraph`.
    """

    organic: tuple[SearchHit, ...] = ()
    answer: SearchHit | None = None
    extra_fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, request_body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to a query in Serper's format."""
        answer_box = {}
        if self.answer is not None:
            title, link, snippet = self.answer.title, self.answer.link, self.answer.snippet
            answer_box = {"answerBox": {"title": title, "link": link, "answer": snippet}}
        organic = [{**result.to_json(), "position": position} for position, result in enumerate(self.organic, 1)]
        parameters = {"type": "search", "engine": "google", **request_body}
        return {"searchParameters": parameters, **answer_box, **self.extra_fields, "organic": organic, "credits": 1}


def search_answer(*snippets: str, title: str = "", link: str = "") -> SearchAnswer:
    """Return a response with one result for each snippet."""
    return SearchAnswer(tuple(SearchHit(snippet, title, link) for snippet in snippets))


class SearchServer(ScriptedServer):
    """Responds to searches strictly according to a script, and records the queries.

    Args:
        script: query -> its responses, each used once, in order.
        api_keys: accepted keys; other keys get Serper's 403. By default, every key is accepted.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[SearchAnswer | HttpError]],
        *,
        api_keys: Sequence[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(host=host, port=port)
        self._unused_answers = {query: list(answers) for query, answers in script.items()}
        self._api_keys = api_keys
        self._queries: list[str] = []
        self._problems: list[str] = []

    @property
    def base_url(self) -> str:
        """Return the `SERPER_BASE_URL` of the server."""
        return f"http://{self._http.address}"

    @property
    def queries(self) -> Sequence[str]:
        """Return the queries in the order of arrival."""
        return self._queries

    def report(self) -> str:
        """Return a readable report of all deviations from the script; empty if there are none."""
        unused_lines = [
            f"{len(unused_answers)} unused responses to {query!r}"
            for query, unused_answers in self._unused_answers.items()
            if unused_answers
        ]
        lines = [*self._problems, *unused_lines]
        return "\n".join(["the script of the search server was not followed", *lines]) if lines else ""

    async def _answer(self, request: ReceivedRequest, sender: ResponseSender) -> None:
        request_body = _parse_body(request)
        if request.method != "POST" or request.target != "/search" or request_body is None:
            self._problems.append(f"invalid search request: {request.method} {request.target} {request.body[:200]!r}")
            await sender.send_json(400, {"message": "Bad request", "statusCode": 400})
            return
        key = request.headers.get("x-api-key", "")
        if not key or (self._api_keys is not None and key not in self._api_keys):
            await sender.send_json(403, {"message": "Unauthorized.", "statusCode": 403})
            return
        query = request_body["q"]
        self._queries.append(query)
        unused_answers = self._unused_answers.get(query)
        if not unused_answers:
            self._problems.append(f"the script has no response to {query!r}")
            await sender.send_json(400, {"message": f"no step of the script matches {query!r}", "statusCode": 400})
            return
        answer = unused_answers.pop(0)
        if isinstance(answer, SearchAnswer):
            await sender.send_json(200, answer.to_json(request_body))
            return
        retry_headers = {} if answer.retry_after is None else {"retry-after": f"{answer.retry_after}"}
        body = {"message": answer.message, "statusCode": answer.status}
        await sender.send_json(answer.status, body, {**retry_headers, **answer.headers})


def _parse_body(request: ReceivedRequest) -> dict[str, Any] | None:
    try:
        body = json.loads(request.body)
    except ValueError:
        return None
    return body if isinstance(body, dict) and isinstance(body.get("q"), str) and body["q"] else None
