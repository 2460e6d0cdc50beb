"""Streams of the text of an answer: one poller for each run and process, whatever the number of readers.

Heartbeats contain the text and `describe` returns it (docs/decisions/0060), so a reader that connects late, or replaces
a reader that has died, gets the whole text. If an agent or another sub-plan produces the output of a run, the text of
that sub-plan is streamed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.core.boundary.wire import ACTIVITY_CALL_MODEL
from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.requests import task_id_without_number
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.history.executions import RunNotFound
from dagwright.history.node_paths import SubPlanNotStarted, child_run_id, resolve_path
from dagwright.history.pending_activities import decode_pending
from dagwright.history.run_subscriptions import RunSubscriptions
from dagwright.history.text_stream import DeliveredText, PartialText, PartialTexts, TextMark, TextPart
from dagwright.llm.visible_text import VisibleText
from dagwright.planning.agent_loop.spec import is_turn, next_turn_id
from dagwright.planning.model_calls.heartbeat_text import TEXT_INDEX, HeartbeatText, heartbeat_text_from_json
from dagwright.planning.model_calls.response_summary import ANSWER_FIELD, has_text_in_output, summarize_response
from dagwright.protocol.messages import MessageInvalid, read_message

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

FIRST_PAUSE_S = 0.04
"""Pause between two polls before an answer starts: people wait for its first word."""
NEXT_PAUSE_S = 0.1
"""Pause between two polls while an answer is written; heartbeats are not more frequent."""
IDLE_PAUSE_S = 1.0
"""Pause between two polls while nothing is written; events of the run trigger a poll at once."""
RECENT_EVENT_S = 1.0
"""Time after an event of the run in which polls are frequent, because a new call may have started."""
SHORT_PAUSES_FOR_S = 5.0
"""Time for which an expected answer is polled with `FIRST_PAUSE_S`. Slower models are polled with `NEXT_PAUSE_S`."""
MAX_POLLS_PER_S = 200.0
"""Limit of polls for all runs of one process; a poll takes the server about 2 ms. At the limit, all pauses become
longer.
"""
MAX_PARTS_PER_S = 2_000.0
"""Limit of parts delivered to all readers of one process, which may have a thousand readers and other work."""
LOST_PAUSE_S = 1.0
"""Pause after a poll that the server did not answer."""


class TokenStreams:
    """Shared streams of answers in one process.

    Args:
        subscriptions: subscriptions to the same runs; their updates show when an event has arrived.
    """

    def __init__(self, client: Client, subscriptions: RunSubscriptions) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._topics: dict[str, _Topic] = {}
        self._requested_polls_per_s = 0.0
        self._reader_count = 0

    async def parts(self, run_id: str, delivered_text: DeliveredText) -> AsyncGenerator[TextPart, None]:
        """Yield the answer of a run in parts while it is written, and end when the run has ended.

        The last words may be missing: get them with `delivered_text.rest_of` from the document of the run. If a caller
        leaves early, it must close the generator (`contextlib.aclosing`).

        Args:
            delivered_text: text that this reader has received. The generator adds each yielded part.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not responded for a minute.
        """
        async with aclosing(self._partial_texts(run_id)) as partial_texts:
            async for partial_text in partial_texts:
                part = delivered_text.next_part(partial_text)
                if part is not None:
                    yield part

    async def was_superseded(self, run_id: str, mark: TextMark) -> bool:
        """Return whether a turn of an agent has produced a text other than the text that a reader has received.

        The reader received its text from another process.

        Args:
            mark: mark of the received text. The result is `False` if no turn of an agent wrote this text.

        Raises:
            RPCError: the server does not respond.
        """
        if not mark.length or not is_turn(mark.call_id.rpartition("/")[2]):
            return False

        open_reader = self._subscriptions.open_reader
        try:
            resolved_path = await resolve_path(await open_reader(run_id).read(), mark.call_id, open_reader=open_reader)
        except (RunNotFound, SubPlanNotStarted):
            return False
        return is_superseded(resolved_path.view, resolved_path.name, mark)

    async def _partial_texts(self, run_id: str) -> AsyncGenerator[PartialText, None]:
        """Yield the text of a run after each poll that found new text."""
        topic = self._topics.get(run_id)
        if topic is None or topic.has_failed:
            topic = self._topics[run_id] = _Topic(self, run_id)
        topic.reader_count += 1
        self._reader_count += 1
        try:
            async for partial_text in topic.newest_texts():
                yield partial_text
        finally:
            self._reader_count -= 1
            topic.reader_count -= 1
            if not topic.reader_count:
                if self._topics.get(run_id) is topic:
                    del self._topics[run_id]
                await topic.close()

    @contextmanager
    def poll_pause(self, interval_s: float) -> Iterator[float]:
        """Yield the pause in seconds between two polls of a run, within the limits of the process."""
        interval_s = max(interval_s, self._reader_count / MAX_PARTS_PER_S)
        self._requested_polls_per_s += 1 / interval_s
        try:
            yield interval_s * max(1.0, self._requested_polls_per_s / MAX_POLLS_PER_S)
        finally:
            self._requested_polls_per_s -= 1 / interval_s

    async def describe_run(self, run_id: str) -> DescribeWorkflowExecutionResponse:
        """Return the description of a run, with decoded heartbeats."""
        raw = (await self._client.get_workflow_handle(run_id).describe()).raw_description
        await decode_pending(raw, self._client)
        return raw

    @asynccontextmanager
    async def follow_events(self, run_id: str) -> "AsyncIterator[_RunEvents]":
        """Follow the events of a run inside the `async with` block."""
        events = _RunEvents()
        follow_task = asyncio.create_task(events.follow(self._subscriptions, run_id))
        try:
            yield events
        finally:
            follow_task.cancel()
            await asyncio.gather(follow_task, return_exceptions=True)


class _RunEvents:
    """Arrival of the events of a run, and the newest view of the run."""

    def __init__(self) -> None:
        self.view: RunView | None = None
        self.is_over = False
        self.error: Exception | None = None
        self._arrival = asyncio.Event()
        self.newest_at = asyncio.get_running_loop().time()
        """Time of the last event."""

    async def follow(self, subscriptions: RunSubscriptions, run_id: str) -> None:
        try:
            async with aclosing(subscriptions.subscribe(run_id)) as updates:
                async for update in updates:
                    self.view = update.view
                    if update.changed_ids:
                        self.newest_at = asyncio.get_running_loop().time()
                        self._arrival.set()
        except (RunNotFound, RPCError) as error:
            self.error = error
        finally:
            self.is_over = True
            self._arrival.set()

    async def pause(self, pause_s: float) -> None:
        """Wait for the next event, at most `pause_s`."""
        with suppress(TimeoutError):
            # `wait_for` loses a cancellation that arrives together with the awaited result.
            async with asyncio.timeout(pause_s):
                await self._arrival.wait()
        self._arrival.clear()


class _Topic:
    """Text of one run with its readers."""

    def __init__(self, streams: TokenStreams, run_id: str) -> None:
        self.reader_count = 0
        self._streams = streams
        self._run_id = run_id
        self._texts_of_calls = PartialTexts()
        self._newest_text: PartialText | None = None
        self._new_text_event = asyncio.Event()
        self._expected_at: float | None = None
        """Time at which an answer was first expected."""
        self._read_task = asyncio.create_task(self._read())

    @property
    def has_failed(self) -> bool:
        """Whether the poller has failed, so that a new reader needs a new poller."""
        return self._read_task.done() and (self._read_task.cancelled() or self._read_task.exception() is not None)

    async def newest_texts(self) -> AsyncGenerator[PartialText, None]:
        """Yield the newest text and then each newer text; a slow reader gets the newest text only."""
        previous_text: PartialText | None = None
        while True:
            new_text_event = self._new_text_event
            if self._newest_text is not None and self._newest_text is not previous_text:
                previous_text = self._newest_text
                yield previous_text
            elif self._read_task.done():
                await self._read_task
                return
            else:
                await new_text_event.wait()

    async def close(self) -> None:
        """Stop the poller."""
        self._read_task.cancel()
        await asyncio.gather(self._read_task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async with self._streams.follow_events(self._run_id) as events:
                while not events.is_over:
                    try:
                        await self._poll(events)
                    except RPCError:
                        # The subscription fails if the server does not respond for long.
                        await events.pause(LOST_PAUSE_S)
                if events.error is not None:
                    raise events.error
        finally:
            self._wake()

    async def _poll(self, events: _RunEvents) -> None:
        """Poll once and wait until the next poll is due."""
        description = await self._streams.describe_run(self._run_id)
        call = newest_text_call(description.pending_activities)
        if call is not None:
            if self._texts_of_calls.apply(*call):
                self._publish(self._texts_of_calls.newest_text)
            await self._pause_between_polls(events, self._pause_s(call[1]))
            return
        self._expected_at = None
        self._publish_last_text(events.view)
        child = _answering_child(events.view, description)
        if child is not None:
            await self._publish_child_text(child, events)
            return
        has_recent_event = asyncio.get_running_loop().time() - events.newest_at < RECENT_EVENT_S
        await self._pause_between_polls(events, FIRST_PAUSE_S if has_recent_event else IDLE_PAUSE_S)

    def _publish_last_text(self, view: "RunView | None") -> None:
        """Publish the last words of a call that has ended, such as the text of an agent before its tool calls.

        These words are in the result of the call and were in no heartbeat.
        """
        newest_text = self._texts_of_calls.newest_text
        text = _text_of_call(newest_text.call_id, view) if newest_text is not None else None
        if (
            newest_text is not None
            and text is not None
            and self._texts_of_calls.apply(newest_text.call_id, HeartbeatText(newest_text.attempt, 0, text))
        ):
            self._publish(self._texts_of_calls.newest_text)

    async def _pause_between_polls(self, events: _RunEvents, interval_s: float) -> None:
        with self._streams.poll_pause(interval_s) as pause_s:
            await events.pause(pause_s)

    def _pause_s(self, newest_text: HeartbeatText) -> float:
        if newest_text.text:
            return NEXT_PAUSE_S
        now = asyncio.get_running_loop().time()
        self._expected_at = self._expected_at if self._expected_at is not None else now
        return FIRST_PAUSE_S if now - self._expected_at < SHORT_PAUSES_FOR_S else NEXT_PAUSE_S

    async def _publish_child_text(self, child: "_Child", events: _RunEvents) -> None:
        """Publish the text of a sub-plan until it has ended."""
        try:
            async with aclosing(self._streams._partial_texts(child.run_id)) as partial_texts:
                async for partial_text in partial_texts:
                    self._publish(
                        PartialText(f"{child.task}/{partial_text.call_id}", partial_text.attempt, partial_text.text)
                    )
        except RunNotFound:
            pass
        # The end of the child is about to appear in the history of this run.
        await events.pause(NEXT_PAUSE_S)

    def _publish(self, partial_text: PartialText | None) -> None:
        self._newest_text = partial_text
        self._wake()

    def _wake(self) -> None:
        """Wake all current waiters."""
        self._new_text_event.set()
        self._new_text_event = asyncio.Event()


def _text_of_call(call_id: str, view: "RunView | None") -> str | None:
    """Return the text for people in the result of a call; `None` if the result has no text, or is not in the run."""
    record = view.scheduler.record_of(call_id) if view is not None and view.scheduler is not None else None
    if record is None or record.status is not NodeStatus.COMPLETED:
        return None
    try:
        text = summarize_response(record.result).text
    except ValueError:
        return None
    if not isinstance(text, str):
        return None
    visible_text = VisibleText(ANSWER_FIELD if has_text_in_output(record.result) else "")
    visible_text.add(text)
    return visible_text.text


def is_superseded(view: "RunView", call_id: str, mark: TextMark) -> bool:
    """Return whether a turn of an agent has produced a text other than the text that a reader has received.

    Args:
        view: state of the run of the agent.
        mark: mark of the received text.
    """
    if view.scheduler is None:
        return False
    state = view.scheduler.state
    task = state.newest_id(task_id_without_number(call_id))
    if last_call_id(state, task) != call_id:
        # The call was retried.
        return True
    record = state.record_of(task)
    if record is not None and isinstance(record.result, StoredValue):
        # The run does not have the text. The text of the last turn is the answer, which the reader compares with the
        # received text.
        return view.is_closed and is_turn(task) and state.number_of(next_turn_id(task)) is None
    text = _text_of_call(task, view)
    return text is not None and not mark.is_prefix_of(text)


@dataclass(frozen=True, slots=True)
class _Child:
    task: str
    run_id: str


def newest_text_call(activities: Sequence[PendingActivityInfo]) -> tuple[str, HeartbeatText] | None:
    """Return the newest call in flight that reports its text, and the text; `None` if there is no such call."""
    text_calls = [
        (activity.scheduled_time.ToNanoseconds(), activity.activity_id, text)
        for activity in activities
        if activity.activity_type.name == ACTIVITY_CALL_MODEL and (text := _text_in_heartbeat(activity)) is not None
    ]
    return max(text_calls, key=lambda entry: entry[:2])[1:] if text_calls else None


def _text_in_heartbeat(activity: PendingActivityInfo) -> HeartbeatText | None:
    details = activity.heartbeat_details.payloads
    if len(details) <= TEXT_INDEX:
        return None
    with suppress(MessageInvalid):
        return heartbeat_text_from_json(read_message(details[TEXT_INDEX]))
    return None


def answering_node(plan: CompiledPlan) -> str | None:
    """Return the node whose result is the whole output of a plan; `None` if the output has another form."""
    if len(plan.output_bindings) != 1:
        return None
    ((path, template),) = plan.output_bindings
    part = template[0] if len(template) == 1 else None
    is_whole_result = path == () and isinstance(part, ResultOf) and (part.field, part.path) == ("result", ())
    return part.node_id if is_whole_result and isinstance(part, ResultOf) else None


def _answering_child(view: "RunView | None", description: DescribeWorkflowExecutionResponse) -> _Child | None:
    """Return the sub-plan in flight that produces the output of a run."""
    if view is None or view.scheduler is None or not description.pending_children:
        return None
    node_id = answering_node(view.scheduler.plan)
    if node_id is None or view.scheduler.state.number_of(node_id) is None:
        return None
    task = view.scheduler.state.newest_id(node_id)
    child_id = child_run_id(view, task)
    is_running = any(child.workflow_id == child_id for child in description.pending_children)
    return _Child(task, child_id) if is_running else None
