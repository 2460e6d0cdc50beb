"""The stream of events of one run, from any cursor: without a gap, and without repeating durable events."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from dagwright.client.event_mapping import EventMapper, EventMoment, moment_at, reported_state_at
from dagwright.client.events import AnyRunEvent, CursorInvalid, EventCursor, TextDelta
from dagwright.client.feedback.feedback_request import Answerable
from dagwright.client.run_follower import RunMoment, follow, interleave
from dagwright.core.model.states import RunStatus
from dagwright.history.executions import START
from dagwright.history.run_reader import RunReader
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.run_view import HistorySnapshot, RunView
from dagwright.history.text_stream import DeliveredText, TextPart

if TYPE_CHECKING:
    from dagwright.client.event_mapping import MomentEvents
    from dagwright.client.runs import Runs


_STATUSES_WITH_ANSWER = (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES)


class EventStream:
    """Events of one run.

    Args:
        runs: runs of the namespace.
        run: run that receives the answers if the client answers a request of an event; `None` if the client cannot
            answer.
        after: cursor of the last event that the client has.
        has_text: whether the response of a model is also streamed, as `text.delta` events.
    """

    def __init__(
        self, runs: "Runs", run_id: str, *, run: Answerable | None, after: EventCursor, has_text: bool = False
    ) -> None:
        self._runs = runs
        self._run_id = run_id
        self._run = run
        self._cursor = after
        self._has_text = has_text
        self._text = DeliveredText(after.text)

    async def events(self) -> AsyncGenerator[AnyRunEvent, None]:
        """Yield the events until the run has ended; close the generator to stop early.

        Raises:
            RunNotFound: there is no such run.
            CursorInvalid: the run has no such cursor.
            RPCError: the server has not responded for a minute.
        """
        reader = self._runs.reader(self._run_id)
        complete_position = self._cursor.complete_position
        await self._check_cursor(reader)
        reported_state = reported_state_at(
            await _snapshot(reader, complete_position), may_have_waited=complete_position.has_waiting_marks
        )
        mapper = EventMapper(self._run_id, self._run, reported_state)
        if self._cursor.partial_position is not None:
            for event in await self._rest_of_moment(reader, mapper, self._cursor.partial_position):
                yield event
        after = None if self._cursor.complete_position.cursor == START else self._cursor.complete_position
        async with aclosing(self._updates(after)) as updates:
            async for update in updates:
                if isinstance(update, TextPart):
                    yield self._delta(update)
                    continue
                view = update.view
                is_end = view.is_closed and not reported_state.has_ended
                if is_end and self._has_text and (text_part := await self._rest_of_text(view)) is not None:
                    yield self._delta(text_part)
                moment = EventMoment(view, update.states, update.facts, update.requests)
                for event in self._with_cursors(mapper.events(moment, is_closed=view.is_closed), update.cursor):
                    yield event

    async def _check_cursor(self, reader: RunReader) -> None:
        """Check that the run has the events received by the client.

        Raises:
            CursorInvalid: the cursor was modified, or belongs to another run.
        """
        last_cursor = (self._cursor.partial_position or self._cursor.complete_position).cursor
        if last_cursor != START and (end := (await reader.read()).cursor) < last_cursor:
            raise CursorInvalid(
                f"{str(self._cursor)!r} is not a cursor of the run {self._run_id!r}: its history ends at {end}"
            )

    def _updates(self, after: SubscriptionCursor | None) -> AsyncGenerator[RunMoment | TextPart, None]:
        moments = follow(self._runs, self._run_id, after=after)
        if not self._has_text:
            return _without_text(moments)
        return interleave(moments, self._runs.token_streams.parts(self._run_id, self._text))

    async def _rest_of_moment(
        self, reader: RunReader, mapper: EventMapper, cursor: SubscriptionCursor
    ) -> list[AnyRunEvent]:
        """Return the events of the moment at which the client stopped, except the durable events that it received."""
        snapshot, view = await reader.snapshot_at(cursor.cursor), await reader.read()
        moment_events = mapper.events(moment_at(view, snapshot), is_closed=snapshot.is_closed)
        return [*self._with_cursors(moment_events, cursor, skipped_count=self._cursor.partial_count)]

    def _with_cursors(
        self, moment_events: "MomentEvents", cursor: SubscriptionCursor, *, skipped_count: int = 0
    ) -> Iterator[AnyRunEvent]:
        """Yield the events of a moment with their cursors.

        Args:
            cursor: position of the moment.
            skipped_count: number of durable events of the moment that the client has received.
        """
        previous_cursor = self._cursor
        if cursor.has_waiting_marks and not previous_cursor.complete_position.has_waiting_marks:
            previous_cursor = replace(
                previous_cursor, complete_position=replace(previous_cursor.complete_position, has_waiting_marks=True)
            )
        for event in moment_events.before:
            yield replace(event, cursor=str(previous_cursor))
        durable_count = len(moment_events.durable)
        for count, event in enumerate(moment_events.durable, start=1):
            if count > skipped_count:
                self._cursor = (
                    replace(previous_cursor, partial_position=cursor, partial_count=count)
                    if count < durable_count
                    else replace(previous_cursor, complete_position=cursor, partial_position=None, partial_count=0)
                )
                yield replace(event, cursor=str(self._cursor))
        if skipped_count >= durable_count > 0:
            self._cursor = replace(previous_cursor, complete_position=cursor, partial_position=None, partial_count=0)
        for event in moment_events.after:
            yield replace(event, cursor=str(self._cursor if durable_count else previous_cursor))

    def _delta(self, part: TextPart) -> TextDelta:
        self._cursor = replace(self._cursor, text=self._text.mark)
        return TextDelta(
            type="text.delta",
            run_id=self._run_id,
            cursor=str(self._cursor),
            node_id=part.call_id or None,
            text=part.text,
            offset=part.offset,
            starts_over=part.starts_new_text,
        )

    async def _rest_of_text(self, view: RunView) -> TextPart | None:
        """Return the end of the response, which the model may have written after the text was last read."""
        if view.status not in _STATUSES_WITH_ANSWER:
            return None
        output = (await self._runs.document(view))["output"]
        return self._text.rest_of(output) if isinstance(output, str) else None


async def _without_text(moments: AsyncGenerator[RunMoment, None]) -> AsyncGenerator[RunMoment | TextPart, None]:
    async with aclosing(moments):
        async for moment in moments:
            yield moment


async def _snapshot(reader: RunReader, cursor: SubscriptionCursor) -> HistorySnapshot:
    return HistorySnapshot() if cursor.cursor == START else await reader.snapshot_at(cursor.cursor)
