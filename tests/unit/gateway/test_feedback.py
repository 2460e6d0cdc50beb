"""What a program is told of an answer that it gives a run."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.gateway import Desk
from dagwright.gateway.callers import Caller
from dagwright.gateway.feedback import answer_run
from dagwright.gateway.run_models import AnswerBody
from dagwright.people import Answer, OpenRequest, Place


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
    desk = SimpleNamespace(runs=SimpleNamespace(people=people), caller=Caller("ann", key="5f0c"))
    told = await answer_run(cast(Desk, desk), "run-1", AnswerBody(request="find", answer="Anna", by="bob"))
    assert told == {"run_id": "run-1", "ok": True, "message": f"'find' is answered{more}"}
    assert [each.by for each in people.answers] == ["ann"]
