"""What a program is told of an answer that it gives a run."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.feedback import Answer, OpenRequest, Place
from dagwright.history.run_reader import RunNotFound
from dagwright.interfaces.http import Desk
from dagwright.interfaces.http.callers import Caller, Scope
from dagwright.interfaces.http.conversation import GivenAnswer
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback import answer_run
from dagwright.interfaces.http.feedback_calls import call_id
from dagwright.interfaces.http.following import give_answers
from dagwright.interfaces.http.run_models import AnswerBody


class People:
    """Asks for a name, and once more if a lookup finds nobody by it."""

    def __init__(self, *, is_found: bool) -> None:
        self._is_found = is_found
        self.answers: list[Answer] = []

    async def requests_of(self, run: str) -> list[OpenRequest]:
        asked = {"id": "find", "type": "CLARIFICATION", "prompt": "Which Anna?"}
        return [OpenRequest(asked, Place(run, "find"), "find", "")]

    async def answer(self, place: Place, answer: Answer) -> str:
        self.answers.append(answer)
        return f"{place.request!r} is answered"

    async def asked_after(self, place: Place) -> dict[str, Any] | None:
        again = {"id": f"{place.request}#2", "prompt": "Nobody is called so. Which Anna?"}
        return None if self._is_found else again


@pytest.mark.parametrize(
    ("is_found", "more"),
    [(True, ""), (False, "; something is asked again: find#2: Nobody is called so. Which Anna?")],
)
async def test_answer_by_which_nobody_is_found_is_told_with_what_is_asked_again(*, is_found: bool, more: str) -> None:
    people = People(is_found=is_found)

    async def own(run: str) -> str:
        return run

    desk = SimpleNamespace(runs=SimpleNamespace(people=people), caller=Caller("ann", key="5f0c"), own=own)
    told = await answer_run(cast(Desk, desk), "run-1", AnswerBody(request="find", answer="Anna", by="bob"))
    assert told == {"run_id": "run-1", "ok": True, "message": f"'find' is answered{more}"}
    assert [each.by for each in people.answers] == ["ann"]


NODES = [{"id": "steal", "tool": "http", "arguments": {"url": "https://example.com"}}]
GUIDANCE = {"id": "hint", "type": "GUIDANCE", "prompt": "What next?", "assignee": "bob", "opened_at": "now"}


class Guided:
    """Asks bob for guidance in a run of ann."""

    async def requests_of(self, run: str) -> list[OpenRequest]:
        return [OpenRequest(GUIDANCE, Place(run, "hint"), "hint", "")]

    async def answer(self, place: Place, answer: Answer) -> str:
        raise AssertionError("nodes that may not be added reached the run")


def _desk_of(owner: str, *scopes: Scope) -> Desk:
    async def own(run: str) -> str:
        if owner != "ann":
            raise RunNotFound(run)
        return run

    caller = Caller(owner, frozenset(scopes), key="5f0c")
    return cast(Desk, SimpleNamespace(runs=SimpleNamespace(people=Guided()), caller=caller, own=own))


@pytest.mark.parametrize(
    ("owner", "scopes", "words"),
    [
        ("bob", (Scope.ANSWER,), "run of another owner"),
        ("bob", (*Scope,), "run of another owner"),
        ("ann", (Scope.RUN, Scope.ANSWER), "lacks the scope 'operate'"),
    ],
)
@pytest.mark.parametrize("request_name", [None, "hint"])
async def test_nodes_of_an_answer_need_the_right_to_operate_the_run(
    owner: str, scopes: tuple[Scope, ...], words: str, request_name: str | None
) -> None:
    body = AnswerBody(request=request_name, answer={"text": "see below", "nodes": NODES})
    with pytest.raises(ApiError, match=words) as refused:
        await answer_run(_desk_of(owner, *scopes), "run-1", body)
    assert (refused.value.status, refused.value.code, refused.value.param) == (403, "insufficient_scope", "answer")


async def test_nodes_in_the_result_of_a_call_need_the_scope_operate() -> None:
    text = json.dumps({"text": "see below", "nodes": NODES})
    given = GivenAnswer(call_id(GUIDANCE, run="run-1"), "run-1", text)
    with pytest.raises(ApiError, match="lacks the scope 'operate'") as refused:
        await give_answers(_desk_of("ann", Scope.RUN, Scope.ANSWER), [given], by="ann")
    assert (refused.value.status, refused.value.code) == (403, "insufficient_scope")
