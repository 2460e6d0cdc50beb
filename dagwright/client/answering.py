"""Answer requests of runs: which requests an answer is for, and what became of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dagwright.client.feedback import (
    Answer,
    FeedbackRejected,
    ItemNotNamed,
    OpenRequest,
    People,
    Place,
    by_run,
    of_node,
)
from dagwright.core.errors import DagwrightError
from dagwright.history.run_reader import RunClosed

_AT_ONCE = 8
"""Runs that are answered at the same time."""
_NAMES_LISTED = 20

Extras = Callable[[Place], Awaitable[Mapping[str, Any]]]
"""Returns further parts of the answer for the run that asks, such as nodes for its plan."""


class NothingAsked(DagwrightError):
    """The run has no open request."""


class AnswerUnclear(DagwrightError):
    """The run has several open requests, and none of them was named; the text has their names."""


@dataclass(frozen=True, slots=True)
class AnswerTarget:
    """What an answer is for.

    Args:
        run: the run that the user knows.
        name: request or node, as the user names it.
        requests: the open requests that are meant; none if no open request has that name.
    """

    run: str
    name: str
    requests: Sequence[OpenRequest] = ()

    @classmethod
    def of(cls, run: str, requests: Sequence[OpenRequest]) -> Self:
        """Return the target of an answer to open requests: one, or all of one node."""
        return cls(run, requests[0].id if len(requests) == 1 else requests[0].full_node, requests)


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """What became of an answer in one run.

    Args:
        is_accepted: whether it counts.
        message: what the run reports.
        is_ambiguous: it is for one of several requests, and none of them was named.
        place: where it went; `None` if that is not known.
    """

    is_accepted: bool
    message: str
    is_ambiguous: bool = False
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """What became of an answer in all runs that it was for."""

    target: AnswerTarget
    results: Sequence[AnswerResult]

    @property
    def is_accepted(self) -> bool:
        """Whether it counts in every run."""
        return all(each.is_accepted for each in self.results)

    @property
    def is_refused(self) -> bool:
        """Whether it counts in no run."""
        return not any(each.is_accepted for each in self.results)

    @property
    def is_ambiguous(self) -> bool:
        """Whether a run has several requests that the answer may be for."""
        return any(each.is_ambiguous for each in self.results)

    @property
    def message(self) -> str:
        """A sentence or some for the user."""
        refused = [*dict.fromkeys(each.message for each in self.results if not each.is_accepted)]
        words = "; ".join([*dict.fromkeys(each.message for each in self.results if each.is_accepted), *refused])
        if len(self.results) > 1:
            accepted = sum(each.is_accepted for each in self.results)
            words = f"answered in {accepted:,} of {len(self.results):,} sub-plans: {words}"
        return words


def requests_named(requests: Sequence[OpenRequest], request: str, *, of_all: bool) -> Sequence[OpenRequest]:
    """Return the open requests with a name: one, or all of its node if a node is named or `of_all` is set."""
    named = [one for one in requests if one.id == request]
    of_one_node = of_node(requests, named[0].full_node if named else request)
    return of_one_node if of_all or not named else named


def choose_requests(asked: Sequence[OpenRequest], request: str | None, *, of_all: bool) -> Sequence[OpenRequest]:
    """Return the open requests that an answer is for; none if the named one is not open.

    Args:
        asked: the open requests of the run.
        request: the name; `None` if the run has a single open request.
        of_all: the answer is for all requests of the same node.

    Raises:
        NothingAsked: none is named, and the run has no open request.
        AnswerUnclear: none is named, and the run has several.
    """
    if request is not None:
        return requests_named(asked, request, of_all=of_all)
    if not asked:
        raise NothingAsked
    if len(asked) > 1 and not (of_all and len({one.full_node for one in asked}) == 1):
        raise AnswerUnclear(", ".join(one.id for one in asked[:_NAMES_LISTED]))
    return asked


def find_target(run: str, asked: Sequence[OpenRequest], request: str | None, *, of_all: bool) -> AnswerTarget:
    """Return what an answer is for; arguments and errors as `choose_requests`.

    A request that is not open has no requests in its target: it may have been answered, or be opened later.
    """
    chosen = choose_requests(asked, request, of_all=of_all)
    return AnswerTarget.of(run, chosen) if chosen else AnswerTarget(run, str(request))


async def no_extras(_: Place) -> Mapping[str, Any]:
    """Return nothing beside the answer."""
    return {}


async def send_answer(
    people: People, target: AnswerTarget, answer: Answer, *, extras: Extras = no_extras
) -> AnswerOutcome:
    """Send an answer to each run that it is for, or to the request with that name if none is open."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def send(place: Place | None) -> AnswerResult:
        async with turns:
            there = place
            try:
                there = there or await people.place_of(target.run, target.name)
                full = replace(answer, content={**answer.content, **await extras(there)})
                told = await people.answer(there, full)
                return AnswerResult(True, _with_path(told, there, target.name), place=there)
            except ItemNotNamed as error:
                return AnswerResult(False, str(error), is_ambiguous=True)
            except (FeedbackRejected, RunClosed) as error:
                return AnswerResult(False, _with_path(str(error), there, target.name))

    places: Sequence[Place | None] = by_run(target.requests) or [None]
    return AnswerOutcome(target, await asyncio.gather(*map(send, places)))


async def answer_request(people: People, run: str, request: str, answer: Answer) -> str:
    """Answer one request of a run or its sub-plans; return what the run reports.

    Raises:
        FeedbackRejected, RunNotFound, RunClosed: as `People.answer`.
    """
    return await people.answer(await people.place_of(run, request), answer)


async def next_request(people: People, outcome: AnswerOutcome) -> Mapping[str, Any] | None:
    """Return the request that a lookup opens after the answer; `None` if there is none.

    A lookup that finds no match asks again, which "is answered" would hide.
    """
    target, results = outcome.target, outcome.results
    if len(results) != 1 or not results[0].is_accepted or results[0].place is None:
        return None
    again = await people.asked_after(results[0].place)
    if again is None:
        return None
    path = "".join(target.name.rpartition("/")[:2])
    return {**again, "request_id": f"{path}{again['request_id']}", "run_id": target.run}


def _with_path(message: str, place: Place | None, name: str) -> str:
    """Return a message of a run with the full name of the request: the run knows only the last part of it."""
    return message if place is None else message.replace(repr(place.request), repr(name), 1)
