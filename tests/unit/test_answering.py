"""One answer for all that it is meant for."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from dagwright.answering import (
    AnswerUnclear,
    Given,
    Meant,
    NothingAsked,
    asked_again,
    chosen_of,
    give,
    meant_by,
    named_in,
    told_of,
)
from dagwright.feed import RunClosed
from dagwright.people import Answer, AnswerRefused, ItemNotNamed, OpenRequest, People, Place


def asked(id: str, *, run: str = "run-1", node: str | None = None, path: str = "") -> OpenRequest:
    return OpenRequest({"id": f"{path}{id}"}, Place(run, id), node or id, path)


class Answered:
    """People that take answers, and refuse those of which they are told why."""

    def __init__(self, **refusals: Exception) -> None:
        self._refusals = refusals
        self.taken: list[tuple[str, str, Any]] = []

    async def place_of(self, workflow_id: str, request: str) -> Place:
        if (wrong := self._refusals.get("place")) is not None:
            raise wrong
        return Place(workflow_id, request.rpartition("/")[2])

    async def answer(self, place: Place, answer: Answer) -> str:
        await asyncio.sleep(0)
        if (wrong := self._refusals.get(place.workflow_id.replace("-", "_"))) is not None:
            raise wrong
        self.taken.append((place.workflow_id, place.request, answer.content))
        return f"{place.request!r} is answered"

    async def asked_after(self, place: Place) -> dict[str, Any] | None:
        return {"id": f"{place.request}#2", "workflow_id": place.workflow_id} if "lookup" in place.request else None


async def given(people: Answered, meant: Meant, **more: Any) -> list[Given]:
    async def added(_: Place) -> Mapping[str, Any]:
        return more

    return await give(cast(People, people), meant, Answer({"approved": True}), more=added)


def test_name_means_one_request_or_all_of_its_node() -> None:
    items = [asked(f"check[{key}]", node="check") for key in "ab"]
    other = asked("other")
    assert named_in([*items, other], "check[a]", of_all=False) == [items[0]]
    assert named_in([*items, other], "check[a]", of_all=True) == items
    assert named_in([*items, other], "check", of_all=False) == items
    assert named_in([*items, other], "none", of_all=True) == []


def test_items_of_one_run_are_answered_in_one_message() -> None:
    items = [asked(f"check[{key}]", node="check") for key in "ab"]
    assert meant_by("run-1", items) == Meant("run-1", "check", [Place("run-1", "check")])
    assert meant_by("run-1", items[:1]) == Meant("run-1", "check[a]", [Place("run-1", "check[a]")])


async def test_answer_goes_to_each_place_with_what_it_holds_beside() -> None:
    people = Answered()
    meant = meant_by("run-1", [asked("check", run=f"run-{number}", path=f"sub[{number}]/") for number in (1, 2)])
    found = await given(people, meant, nodes=[1])
    assert [each.is_taken for each in found] == [True, True]
    assert sorted(people.taken) == [(f"run-{number}", "check", {"approved": True, "nodes": [1]}) for number in (1, 2)]


async def test_what_is_refused_in_one_run_counts_in_the_others() -> None:
    people = Answered(run_2=AnswerRefused("'check' was answered by ann"), run_3=RunClosed("it has ended"))
    meant = meant_by("run-1", [asked("check", run=f"run-{number}", path="sub/") for number in (1, 2, 3)])
    found = await given(people, meant)
    assert [each.is_taken for each in found] == [True, False, False]
    assert told_of(found) == (
        "answered in 1 of 3 sub-plans: 'sub/check' is answered; 'sub/check' was answered by ann; it has ended"
    )


async def test_request_that_nobody_looked_for_is_found_by_its_name() -> None:
    people = Answered()
    (found,) = await given(people, Meant("run-1", "sub/check"))
    assert (found, people.taken) == (Given(True, "'sub/check' is answered"), [("run-1", "check", {"approved": True})])
    (unclear,) = await given(Answered(place=ItemNotNamed("name one")), Meant("run-1", "sub/check"))
    assert unclear == Given(False, "name one", is_unclear=True)


async def test_what_is_asked_again_is_told_as_people_know_it() -> None:
    people, below = Answered(), Meant("run-1", "sub/lookup:person:J")
    [found] = await given(people, below)
    assert await asked_again(cast(People, people), [found], below) == {
        "id": "sub/lookup:person:J#2",
        "workflow_id": "run-1",
    }
    check = Meant("run-1", "check")
    assert await asked_again(cast(People, people), await given(people, check), check) is None
    refusing = Answered(run_1=AnswerRefused("no"))
    assert await asked_again(cast(People, people), await given(refusing, below), below) is None


def test_answer_that_names_nothing_is_for_what_alone_can_be_meant() -> None:
    one, two, other = asked("each[0]", node="each"), asked("each[1]", node="each"), asked("check")
    assert chosen_of([one], None, of_all=False) == [one]
    assert chosen_of([one, two], None, of_all=True) == [one, two]
    assert chosen_of([one, two, other], "each", of_all=False) == [one, two]
    assert chosen_of([one], "early", of_all=False) == []
    with pytest.raises(NothingAsked):
        chosen_of([], None, of_all=False)
    for requests, of_all in (([one, two], False), ([one, other], True)):
        with pytest.raises(AnswerUnclear, match=", ".join([requests[0].id, requests[1].id]).replace("[", r"\[")):
            chosen_of(requests, None, of_all=of_all)
