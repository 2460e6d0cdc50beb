"""Answers that are given to runs by the id of a request: what is wrong with them, and in which field."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.feedback import AnswerRefused, OpenRequest, Place
from dagwright.interfaces.http import Desk
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback import answer_run
from dagwright.interfaces.http.run_models import AnswerBody

CHECK = {"id": "check", "node": "check", "type": "APPROVAL", "prompt": "Publish?"}


class People:
    """The requests of a run that refuses all answers."""

    async def requests_of(self, run: str) -> list[OpenRequest]:
        return [OpenRequest(CHECK, Place(run, "check"), "check")]

    async def place_of(self, run: str, request: str) -> Place:
        return Place(run, request)

    async def answer(self, place: Place, _: Any) -> str:
        raise AnswerRefused(f"{place.request!r} is refused")


@pytest.mark.parametrize(
    ("request_id", "answer", "param"),
    [
        ("check", {"approved": 1}, "answer"),
        ("chekc", {"approved": True}, "request"),
        ("chekc", "yes", "request"),
    ],
)
async def test_answer_is_refused_with_the_field_that_is_wrong(request_id: str, answer: Any, param: str) -> None:
    desk = SimpleNamespace(runs=SimpleNamespace(people=People()), caller=Caller())
    with pytest.raises(ApiError) as refused:
        await answer_run(cast(Desk, desk), "run-1", AnswerBody(request=request_id, answer=answer))
    assert (refused.value.status, refused.value.param) == (400, param)
