"""The stream of the answer of a run, resumable from the client's cursor: no event is lost or sent twice."""

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dagwright.client.run_follower import RequestKey, RunMoment, interleave, request_key
from dagwright.history.text_stream import NO_TEXT, DeliveredText, TextMark, TextPart, node_of_call
from dagwright.interfaces.http.error_codes import RUN_FAILED_STATUS
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.progress_events import Event, ProgressEventBuilder
from dagwright.interfaces.http.request_fields import StreamProgress
from dagwright.interfaces.http.run_outcome import RunOutcome, moments
from dagwright.interfaces.http.sse import Events
from dagwright.interfaces.http.stream_cursor import StreamCursor, StreamKind, checksum
from dagwright.planning.agent_loop.spec import is_turn

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

T = TypeVar("T")

ANSWER_RESTARTS = "\n\n(The answer starts again.)\n\n"
"""Separates an abandoned part of an answer, which the client has received, from the part that replaces it."""
NEXT_TURN = "\n\n"
"""Separates the texts of an agent's turns."""


class ReceivedAnswer:
    """The part of an answer that a client has received.

    Args:
        mark: position of the client in the answer when the client connected.
        total_characters: characters that the client had received by then.
    """

    def __init__(self, mark: TextMark = NO_TEXT, *, total_characters: int = 0) -> None:
        self.delivered_text = DeliveredText(mark)
        self.total_characters = total_characters
        """Characters received."""
        self._call_id = mark.call_id
        """ID of the call that wrote the last received text."""
        self._mark_at_connect = mark
        """Position of the client when it connected; `NO_TEXT` once the client has received more text."""

    async def discard_superseded_text(self, context: "GatewayContext", run_id: str) -> None:
        """Discard the text that the client received before this connection, if it is no longer part of the answer.

        Raises:
            RPCError: the server does not respond.
        """
        if await context.runs.token_streams.was_superseded(run_id, self._mark_at_connect):
            # Without a previous call, `text_for` sends the next text as a restart of the answer, not as the next turn.
            self._call_id, self._mark_at_connect = "", NO_TEXT

    def text_for(self, part: TextPart) -> str:
        """Return the text to send for a part, with a separator if the part does not continue the previous text."""
        previous_call_id, self._call_id, self._mark_at_connect = self._call_id, part.call_id, NO_TEXT
        # The text of an agent's turn remains valid when another node starts to write. Any other text is abandoned.
        is_other_node = node_of_call(previous_call_id) != node_of_call(part.call_id)
        is_next_turn = is_other_node and is_turn(previous_call_id.rpartition("/")[2])
        separator = (NEXT_TURN if is_next_turn else ANSWER_RESTARTS) if part.starts_new_text else ""
        self.total_characters += len(separator) + len(part.text)
        return separator + part.text

    def remaining_text(self, outcome: RunOutcome) -> str:
        """Return the text that is still to be sent at the end: the rest of the answer, or the questions."""
        if outcome.requests:
            text = NEXT_TURN + outcome.text if outcome.text and self.delivered_text.mark.length else outcome.text
            self.total_characters += len(text)
            return text
        rest = self.delivered_text.rest_of(outcome.text)
        return "" if rest is None else self.text_for(rest)


class AnswerStream:
    """One answer stream. Its methods produce the events; after each event, `cursor` is the ID of the event.

    Opening events, such as `response.created`, precede the text of the answer. Closing events follow the text.

    Args:
        cursor: cursor of the client; `None` for a new stream.
        progress: whether progress events are sent in addition to the answer, and which.
        is_buffered: whether the answer is sent as a whole, because it has a schema and must be validated first.
    """

    def __init__(
        self,
        kind: StreamKind,
        run_id: str,
        *,
        cursor: StreamCursor | None,
        progress: StreamProgress,
        is_buffered: bool = False,
    ) -> None:
        self.cursor = cursor if cursor is not None else StreamCursor(kind, run_id)
        self._has_progress = progress is not StreamProgress.CONTENT
        self._is_buffered = is_buffered
        self._answer = ReceivedAnswer(self.cursor.mark, total_characters=self.cursor.total_characters)
        self._progress = ProgressEventBuilder(run_id, progress, checksums=self.cursor.run_checksums)
        self._last_moment: RunMoment | None = None

    def opening_events(self, events: Sequence[T]) -> Iterator[T]:
        """Yield the opening events that the client has not received.

        Args:
            events: all opening events so far.
        """
        for event in events[self.cursor.opening_count :]:
            self.cursor = replace(self.cursor, opening_count=self.cursor.opening_count + 1)
            yield event

    async def follow(
        self, context: "GatewayContext", *, answered_requests: Collection[RequestKey]
    ) -> AsyncGenerator[RunMoment | TextPart, None]:
        """Yield the moments of the run and the parts of its answer, up to the last moment.

        A moment is the state of the run at one time. At the last moment, the run has ended or waits for an answer.
        Raises the same errors as `moments`.
        """
        run_id, history_position = self.cursor.run_id, self.cursor.history_position
        if history_position is not None and self._has_progress:
            self._progress.started_tasks |= await context.runs.reader(run_id).started_tasks_at(history_position.cursor)
        await self._answer.discard_superseded_text(context, run_id)
        items: AsyncGenerator[RunMoment | TextPart, None] = moments(
            context, run_id, answered_requests=answered_requests, after=history_position
        )
        # After a closing event, the client has received the whole text.
        if not (self.cursor.closing_count or self._is_buffered):
            items = interleave(items, context.runs.token_streams.parts(run_id, self._answer.delivered_text))
        async with aclosing(items):
            async for item in items:
                yield item
        # The text may have been abandoned although this client received no replacement for it.
        await self._answer.discard_superseded_text(context, run_id)

    def progress_of(self, moment: RunMoment) -> list[Event]:
        """Return the progress events of a moment, if any. The caller sends all of them in one event of the stream."""
        events = [*self._progress.events(moment)]
        self._last_moment = moment if moment.has_ended_or_waits else None
        self.cursor = replace(self.cursor, history=moment.cursor, run_checksums=self._progress.checksums)
        return events

    def final_progress(self, error: ApiError | None = None) -> list[Event]:
        """Return the progress events that report the run status after the answer, if any.

        The caller sends all of them in one event of the stream.

        Args:
            error: the error that replaces the answer. If only the stream failed, there are no events, because the
                client resumes the stream.
        """
        if self._last_moment is None or (error is not None and not _is_final(error)):
            return []
        events = [*self._progress.status_events(self._last_moment)]
        self.cursor = replace(self.cursor, run_checksums=self._progress.checksums)
        return events

    def text_for(self, part: TextPart) -> str:
        """Return the text to send for a part of the answer."""
        text = self._answer.text_for(part)
        self._move_cursor()
        return text

    def remaining_text(self, outcome: RunOutcome) -> str:
        """Return the text that the client has not received yet. Call this method at the last moment of the run."""
        outcome_checksum = checksum([outcome.text, [request_key(request) for request in outcome.requests]])
        if self.cursor.closing_count and self.cursor.outcome_checksum in ("", outcome_checksum):
            self.cursor = replace(self.cursor, outcome_checksum=outcome_checksum)
            return ""
        text = self._answer.remaining_text(outcome)
        self._move_cursor()
        # The text of questions counts as closing event 1: it is not part of the answer, so `mark` does not cover it.
        self.cursor = replace(
            self.cursor, closing_count=1 if outcome.requests else 0, outcome_checksum=outcome_checksum
        )
        return text

    def closing_events(self, events: Iterable[T]) -> Iterator[T]:
        """Yield the closing events that the client has not received.

        Args:
            events: all events after the text.
        """
        # Number 1 is reserved for the text of questions, even if the run has no questions.
        for number, event in enumerate(events, start=2):
            if number > self.cursor.closing_count:
                self.cursor = replace(self.cursor, closing_count=number)
                yield event

    def error_events(self, error: ApiError, events: Iterable[T]) -> Iterator[T]:
        """Yield the events of an error. If the error means that the run has no answer, they count as closing events.

        After any other error, the client resumes from its cursor, so the events do not change the cursor.
        """
        return self.closing_events(events) if _is_final(error) else iter(events)

    def _move_cursor(self) -> None:
        self.cursor = replace(
            self.cursor, total_characters=self._answer.total_characters, mark=self._answer.delivered_text.mark
        )


async def events_unless_finished(
    context: "GatewayContext", events: Events, *, cursor: StreamCursor | None
) -> Events | None:
    """Return the events of a stream; `None` if the run has ended and the client has received all events.

    Args:
        cursor: cursor of the client.
    """
    if cursor is None or not cursor.closing_count or not (await context.runs.reader(cursor.run_id).read()).is_closed:
        return events
    remaining_events = [event async for event in events]
    return _iterate(remaining_events) if remaining_events else None


async def _iterate(events: Sequence[str]) -> Events:
    for event in events:
        yield event


def _is_final(error: ApiError) -> bool:
    """Return whether an error means that the run has no answer, rather than that the stream failed."""
    return error.status == RUN_FAILED_STATUS
