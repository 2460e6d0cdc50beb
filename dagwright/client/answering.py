"""Answer requests of runs: which requests an answer is for, and what became of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.client.feedback import (
    Answer,
    AnswerRefused,
    ItemNotNamed,
    OpenRequest,
    People,
    Place,
    by_run,
    of_node,
)
from dagwright.history.run_reader import RunClosed

_AT_ONCE = 8
"""Runs that are answered at the same time."""
_NAMES_TOLD = 20

More = Callable[[Place], Awaitable[Mapping[str, Any]]]
"""Returns what an answer holds beside its text, for the run that asks: nodes for its plan."""


class NothingAsked(Exception):
    """A run asks nothing of anyone now."""


class AnswerUnclear(Exception):
    """A run asks several things, and which one is answered was not said; the text has their names."""


@dataclass(frozen=True, slots=True)
class Meant:
    """What an answer is for.

    Args:
        run: the run that a person knows.
        name: what the person calls all that is answered.
        places: where it goes; none if nobody has looked: then the name is that of the request.
    """

    run: str
    name: str
    places: Sequence[Place] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """What became of an answer in one run.

    Args:
        is_taken: whether it counts.
        message: what the run says.
        is_unclear: it is one of several, and which was not said.
        place: where it went; `None` if that is not known.
    """

    is_taken: bool
    message: str
    is_unclear: bool = False
    place: Place | None = field(default=None, compare=False)


def meant_by(run: str, requests: Sequence[OpenRequest]) -> Meant:
    """Returns that an answer is for these requests, one or all of one node."""
    name = requests[0].id if len(requests) == 1 else requests[0].full_node
    return Meant(run, name, by_run(requests))


def named_in(requests: Sequence[OpenRequest], request: str, *, of_all: bool) -> Sequence[OpenRequest]:
    """Returns the open requests that a name means: one, or with its node or `of_all` all of that node."""
    named = [one for one in requests if one.id == request]
    of_one_node = of_node(requests, named[0].full_node if named else request)
    return of_one_node if of_all or not named else named


def chosen_of(asked: Sequence[OpenRequest], request: str | None, *, of_all: bool) -> Sequence[OpenRequest]:
    """Returns the open requests that an answer is for; none if the one that is named is not open.

    Args:
        asked: what the run asks now.
        request: what the answer names; `None` for what it asks, if that is one thing.
        of_all: the answer is for all requests of the same node.

    Raises:
        NothingAsked: none is named, and the run asks nothing.
        AnswerUnclear: none is named, and the run asks several.
    """
    if request is not None:
        return named_in(asked, request, of_all=of_all)
    if not asked:
        raise NothingAsked
    if len(asked) > 1 and not (of_all and len({one.full_node for one in asked}) == 1):
        raise AnswerUnclear(", ".join(one.id for one in asked[:_NAMES_TOLD]))
    return asked


async def give(people: People, meant: Meant, answer: Answer, *, more: More) -> list[Given]:
    """Gives an answer to each place, or to the request as it was named if nobody has looked for places."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def send(place: Place | None) -> Given:
        async with turns:
            there = place
            try:
                there = there or await people.place_of(meant.run, meant.name)
                given = replace(answer, content={**answer.content, **await more(there)})
                return Given(True, _with_path(await people.answer(there, given), there, meant.name), place=there)
            except ItemNotNamed as error:
                return Given(False, str(error), is_unclear=True)
            except (AnswerRefused, RunClosed) as error:
                return Given(False, _with_path(str(error), there, meant.name))

    places: Sequence[Place | None] = meant.places or [None]
    return list(await asyncio.gather(*map(send, places)))


async def asked_again(people: People, given: Sequence[Given], meant: Meant) -> Mapping[str, Any] | None:
    """Returns what a lookup asks next that got the one answer, as people know it; `None` if it asks nothing.

    Where it finds nobody by the answer, "is answered" would hide that the same is asked once more.
    """
    if len(given) != 1 or not given[0].is_taken or given[0].place is None:
        return None
    again = await people.asked_after(given[0].place)
    if again is None:
        return None
    path = "".join(meant.name.rpartition("/")[:2])
    return {**again, "id": f"{path}{again['id']}", "workflow_id": meant.run}


def told_of(given: Sequence[Given]) -> str:
    """Returns what became of an answer, in a sentence or some."""
    refused = [*dict.fromkeys(each.message for each in given if not each.is_taken)]
    told = "; ".join([*dict.fromkeys(each.message for each in given if each.is_taken), *refused])
    if len(given) > 1:
        taken = sum(each.is_taken for each in given)
        told = f"answered in {taken:,} of {len(given):,} sub-plans: {told}"
    return told


def _with_path(told: str, place: Place | None, name: str) -> str:
    """Returns what a run says of a request, which it calls by the last part of its name, with the whole name."""
    return told if place is None else told.replace(repr(place.request), repr(name), 1)
