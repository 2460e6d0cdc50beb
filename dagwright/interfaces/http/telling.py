"""The stream of the answer of a run, resumable from the client's cursor: no event is lost or sent twice."""

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
    """One answer stream. Every event is produced by one of its methods; afterwards `place` is the ID of the event.

    Args:
        seen: cursor of the client; `None` for a new stream.
        shown: content in addition to the answer.
        is_whole: whether the answer is sent in one piece at the end, since only a complete answer can be validated.
    """

    def __init__(self, kind: Kind, run: str, *, seen: Place | None, shown: Shown, is_whole: bool = False) -> None:
        self.place = seen if seen is not None else Place(kind, run)
        self._shown = shown
        self._is_whole = is_whole
        self._answer = AnswerTold(self.place.mark, total=self.place.total)
        self._progress = Progress(run, shown, standing=self.place.standing)
        self._last: RunMoment | None = None

    def beginning(self, events: Sequence[T]) -> Iterator[T]:
        """Yield the opening events that the client has not received.

        Args:
            events: the opening events from the first one on.
        """
        for each in events[self.place.begun :]:
            self.place = replace(self.place, begun=self.place.begun + 1)
            yield each

    async def coming(self, desk: Desk, *, answered: Collection[RequestKey]) -> AsyncGenerator[RunMoment | Piece, None]:
        """Yield the moments of the run and the pieces of its answer, up to the last moment; raises as `moments`."""
        run, after = self.place.run, self.place.after
        if after is not None and self._shown is not Shown.CONTENT:
            self._progress.started |= await desk.runs.feed(run).begun_at(after.offset)
        await self._answer.look_back(desk, run)
        following = (
            # The client has received the whole text.
            moments(desk, run, answered=answered, after=after)
            if self.place.end or self._is_whole
            else moments_and_pieces(desk, run, self._answer, answered=answered, after=after)
        )
        async with aclosing(following) as coming:
            async for each in coming:
                yield each
        # The text may have been abandoned while no client received its replacement.
        await self._answer.look_back(desk, run)

    def happened(self, moment: RunMoment) -> list[Event]:
        """Return the progress events of a moment, which are sent in one event; may be empty."""
        events = [*self._progress.events(moment)]
        self._last = moment if moment.is_last else None
        self.place = replace(self.place, told=moment.told, standing=self._progress.standing)
        return events

    def closing(self, wrong: ApiError | None = None) -> list[Event]:
        """Return the progress events of the run status after the answer, which are sent in one event; may be empty.

        Args:
            wrong: the error that replaces the answer. After a temporary error there are none: the client will resume.
        """
        if self._last is None or (wrong is not None and not _is_end(wrong)):
            return []
        events = [*self._progress.of_run(self._last)]
        self.place = replace(self.place, standing=self._progress.standing)
        return events

    def words(self, piece: Piece) -> str:
        """Return the text to send for a piece of the answer."""
        words = self._answer.words_of(piece)
        self._put_text()
        return words

    def rest(self, outcome: Outcome) -> str:
        """Return the text that the client has not received when the run has ended or asks for feedback."""
        check = check_word([outcome.text, [request_key(request) for request in outcome.requests]])
        if self.place.end and self.place.outcome in ("", check):
            self.place = replace(self.place, outcome=check)
            return ""
        words = self._answer.rest_of(outcome)
        self._put_text()
        # The text of questions is not part of the answer, so `mark` does not cover it.
        self.place = replace(self.place, end=1 if outcome.requests else 0, outcome=check)
        return words

    def end(self, events: Iterable[T]) -> Iterator[T]:
        """Yield the closing events that the client has not received.

        Args:
            events: all events after the text.
        """
        for number, each in enumerate(events, start=2):
            if number > self.place.end:
                self.place = replace(self.place, end=number)
                yield each

    def broken(self, error: ApiError, events: Iterable[T]) -> Iterator[T]:
        """Yield the events of an error. They are closing events only if the run has no answer.

        After any other error the client resumes from its cursor, so they do not count as received.
        """
        return self.end(events) if _is_end(error) else iter(events)

    def _put_text(self) -> None:
        self.place = replace(self.place, total=self._answer.total, mark=self._answer.told.mark)


async def unless_over(desk: Desk, events: Events, *, seen: Place | None) -> Events | None:
    """Return the events of a stream; `None` if the run has ended and the client has received all events.

    Args:
        seen: cursor of the client.
    """
    if seen is None or not seen.end or not (await desk.runs.feed(seen.run).read()).is_closed:
        return events
    texts = [each async for each in events]
    return _each_of(texts) if texts else None


async def _each_of(texts: Sequence[str]) -> Events:
    for text in texts:
        yield text


def _is_end(error: ApiError) -> bool:
    """Return whether an error means that the run has no answer, rather than that the stream failed."""
    return error.status == RUN_FAILED
