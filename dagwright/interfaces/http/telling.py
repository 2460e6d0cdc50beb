"""Tells a client what happens in a run and what it writes, from where it was told last: nothing lost or doubled."""

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from dagwright.client.following import RequestKey, RunMoment, request_key
from dagwright.history.text_stream import Piece
from dagwright.interfaces.http.answering import AnswerTold, moments_and_pieces
from dagwright.interfaces.http.bodies import Shown
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.following import RUN_FAILED, Outcome, moments
from dagwright.interfaces.http.places import Kind, Place, check_word
from dagwright.interfaces.http.progress import Event, Progress
from dagwright.interfaces.http.streams import Events

T = TypeVar("T")


class Telling:
    """One stream of the answer of a run; every event is told by one of its methods, and then `place` is its id.

    Args:
        seen: where the client stopped; `None` if it begins.
        shown: what is told beside the answer.
        is_whole: whether the answer comes in one piece at the end, since only all of it can be checked.
    """

    def __init__(self, kind: Kind, run: str, *, seen: Place | None, shown: Shown, is_whole: bool = False) -> None:
        self.place = seen if seen is not None else Place(kind, run)
        self._shown = shown
        self._is_whole = is_whole
        self._answer = AnswerTold(self.place.mark, total=self.place.total)
        self._progress = Progress(run, shown, standing=self.place.standing)
        self._last: RunMoment | None = None

    def beginning(self, events: Sequence[T]) -> Iterator[T]:
        """Yields those events of the beginning of a stream that were not told.

        Args:
            events: from the first one on.
        """
        for each in events[self.place.begun :]:
            self.place = replace(self.place, begun=self.place.begun + 1)
            yield each

    async def coming(self, desk: Desk, *, answered: Collection[RequestKey]) -> AsyncGenerator[RunMoment | Piece, None]:
        """Yields the run at its moments and its answer in pieces, up to its last moment; raises as `moments`."""
        run, after = self.place.run, self.place.after
        if after is not None and self._shown is not Shown.CONTENT:
            self._progress.started |= await desk.runs.feed(run).begun_at(after.offset)
        await self._answer.look_back(desk, run)
        following = (
            # The text was told to its end.
            moments(desk, run, answered=answered, after=after)
            if self.place.end or self._is_whole
            else moments_and_pieces(desk, run, self._answer, answered=answered, after=after)
        )
        async with aclosing(following) as coming:
            async for each in coming:
                yield each
        # It may have been given up while nobody saw what was written instead.
        await self._answer.look_back(desk, run)

    def happened(self, moment: RunMoment) -> list[Event]:
        """Returns what a client is told of a moment, which is one event of its stream; may be nothing."""
        events = [*self._progress.events(moment)]
        self._last = moment if moment.is_last else None
        self.place = replace(self.place, told=moment.told, standing=self._progress.standing)
        return events

    def closing(self, wrong: ApiError | None = None) -> list[Event]:
        """Returns what a client is told behind the answer of the run as a whole, as one event; may be nothing.

        Args:
            wrong: what is told in place of the answer; behind what passes comes the answer, and this behind that.
        """
        if self._last is None or (wrong is not None and not _is_end(wrong)):
            return []
        events = [*self._progress.of_run(self._last)]
        self.place = replace(self.place, standing=self._progress.standing)
        return events

    def words(self, piece: Piece) -> str:
        """Returns what a client is told of a piece of the answer."""
        words = self._answer.words_of(piece)
        self._put_text()
        return words

    def rest(self, outcome: Outcome) -> str:
        """Returns what of the text was not told when the run has come to its end, or to a question."""
        check = check_word([outcome.text, [request_key(request) for request in outcome.requests]])
        if self.place.end and self.place.outcome in ("", check):
            self.place = replace(self.place, outcome=check)
            return ""
        words = self._answer.rest_of(outcome)
        self._put_text()
        # The words of a question are no part of an answer, so nothing else would say that they were told.
        self.place = replace(self.place, end=1 if outcome.requests else 0, outcome=check)
        return words

    def end(self, events: Iterable[T]) -> Iterator[T]:
        """Yields those events of the end that were not told.

        Args:
            events: all that follow the text.
        """
        for number, each in enumerate(events, start=2):
            if number > self.place.end:
                self.place = replace(self.place, end=number)
                yield each

    def broken(self, error: ApiError, events: Iterable[T]) -> Iterator[T]:
        """Yields what a client is told in place of the rest: that is the end only of a run that gives no answer.

        After anything else the client comes back to where it is, and nothing of what follows counts as told.
        """
        return self.end(events) if _is_end(error) else iter(events)

    def _put_text(self) -> None:
        self.place = replace(self.place, total=self._answer.total, mark=self._answer.told.mark)


async def unless_over(desk: Desk, events: Events, *, seen: Place | None) -> Events | None:
    """Returns the events of a stream; `None` if its client was told all of them, and the run has ended.

    Args:
        seen: what the client says that it was told, by the id of an event.
    """
    if seen is None or not seen.end or not (await desk.runs.feed(seen.run).read()).is_closed:
        return events
    texts = [each async for each in events]
    return _each_of(texts) if texts else None


async def _each_of(texts: Sequence[str]) -> Events:
    for text in texts:
        yield text


def _is_end(error: ApiError) -> bool:
    """Tells whether a run gives no answer, and not only this stream of it."""
    return error.status == RUN_FAILED
