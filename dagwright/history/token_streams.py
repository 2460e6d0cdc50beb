"""One look at the text of an answer for each run and process, however many read it while it is written.

Heartbeats carry the text and `describe` tells it (docs/decisions/0060), so a reader that comes late, or after another
one has died, has all of it. Where an agent or another sub-plan makes the output of a run, the text is that of its run.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.core.boundary.wire import ACTIVITY_CALL_MODEL
from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeStatus
from dagwright.core.scheduler.task_creation import call_of_task
from dagwright.features.feedback.answer_reading import without_number
from dagwright.history.node_paths import SubPlanNotBegun, child_of, follow
from dagwright.history.pending_activities import decode_pending
from dagwright.history.run_reader import RunFeed, RunNotFound, RunView
from dagwright.history.run_subscriptions import RunFeeds
from dagwright.history.text_stream import Mark, Piece, ToldText, Writing, Written
from dagwright.llm.visible_text import VisibleText
from dagwright.planning.agent_loop.spec import is_turn, turn_after
from dagwright.planning.model_calls.partial_text import TEXT_PLACE, TextSoFar, text_from_json
from dagwright.planning.model_calls.responses import ANSWER_FIELD, has_text_in_output, summarize_response
from dagwright.protocol.messages import MessageInvalid, read_message

FIRST_PAUSE_S = 0.04
"""Between two looks while an answer is about to begin: people wait for its first word."""
NEXT_PAUSE_S = 0.1
"""Between two looks while it is written; heartbeats are no faster."""
IDLE_PAUSE_S = 1.0
"""Between two looks while nothing is written; what happens in the run is looked at at once."""
SOON_S = 1.0
"""How long after something has happened in a run a call may begin of which its feed does not know yet."""
HURRY_S = 5.0
"""How long an answer is waited for with the shortest pause; a model that thinks longer keeps nobody waiting by a tenth
of a second."""
LOOKS_PER_S = 200.0
"""Of all runs that one process looks at; each takes the server 2 ms or so. With more runs all looks are rarer."""
PIECES_PER_S = 2_000.0
"""To all readers of one process together: one that serves a thousand of them has other things to do as well."""
LOST_PAUSE_S = 1.0


class AnswerTexts:
    """Lets many in one process read answers while they are written.

    Args:
        feeds: of the same runs; they know when something happens.
    """

    def __init__(self, client: Client, feeds: RunFeeds) -> None:
        self._client = client
        self._feeds = feeds
        self._topics: dict[str, _Topic] = {}
        self._looks_wanted_per_s = 0.0
        self._readers = 0

    async def pieces(self, workflow_id: str, told: ToldText) -> AsyncGenerator[Piece, None]:
        """Yields the answer of a run in pieces as it is written, and ends when the run has ended.

        Its last words may be missing: read them with `told.rest_of` from the document of the run. Close the generator
        when it is left early (`contextlib.aclosing`).

        Args:
            told: what this reader has been told; kept up here.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not answered for a minute.
        """
        async with aclosing(self._written(workflow_id)) as coming:
            async for written in coming:
                piece = told.piece_of(written)
                if piece is not None:
                    yield piece

    async def was_given_up(self, workflow_id: str, mark: Mark) -> bool:
        """Tells whether a turn of an agent has come to other words than a reader was told of it somewhere else.

        Args:
            mark: what that reader was told; of what no turn wrote nothing is told here.

        Raises:
            RPCError: the server does not answer.
        """
        if not mark.length or not is_turn(mark.node.rpartition("/")[2]):
            return False

        def feed(run: str) -> RunFeed:
            return RunFeed(self._client, run)

        try:
            found = await follow(await feed(workflow_id).read(), mark.node, feed=feed)
        except (RunNotFound, SubPlanNotBegun):
            return False
        return is_given_up(found.view, found.name, mark)

    async def _written(self, workflow_id: str) -> AsyncGenerator[Written, None]:
        """Yields what a run has written after each look that found more of it."""
        topic = self._topics.get(workflow_id)
        if topic is None or topic.has_failed:
            topic = self._topics[workflow_id] = _Topic(self, workflow_id)
        topic.readers += 1
        self._readers += 1
        try:
            async for written in topic.moments():
                yield written
        finally:
            self._readers -= 1
            topic.readers -= 1
            if not topic.readers:
                if self._topics.get(workflow_id) is topic:
                    del self._topics[workflow_id]
                await topic.close()

    @contextmanager
    def pausing(self, wanted_s: float) -> Iterator[float]:
        """Gives the seconds that a run is to rest between two looks, with room for all others that are looked at."""
        wanted_s = max(wanted_s, self._readers / PIECES_PER_S)
        self._looks_wanted_per_s += 1 / wanted_s
        try:
            yield wanted_s * max(1.0, self._looks_wanted_per_s / LOOKS_PER_S)
        finally:
            self._looks_wanted_per_s -= 1 / wanted_s

    async def described(self, workflow_id: str) -> DescribeWorkflowExecutionResponse:
        """Returns what the server says of a run."""
        raw = (await self._client.get_workflow_handle(workflow_id).describe()).raw_description
        await decode_pending(raw, self._client)
        return raw

    @asynccontextmanager
    async def happening(self, workflow_id: str) -> "AsyncIterator[_Happening]":
        """Follows a run for as long as the block lasts."""
        happening = _Happening()
        following = asyncio.create_task(happening.follow(self._feeds, workflow_id))
        try:
            yield happening
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


class _Happening:
    """What happens in a run, as its feed tells."""

    def __init__(self) -> None:
        self.view: RunView | None = None
        self.is_over = False
        self.error: Exception | None = None
        self._happened = asyncio.Event()
        self.newest_at = asyncio.get_running_loop().time()
        """When something happened last."""

    async def follow(self, feeds: RunFeeds, workflow_id: str) -> None:
        try:
            async with aclosing(feeds.subscribe(workflow_id)) as updates:
                async for update in updates:
                    self.view = update.view
                    if update.changed:
                        self.newest_at = asyncio.get_running_loop().time()
                        self._happened.set()
        except (RunNotFound, RPCError) as error:
            self.error = error
        finally:
            self.is_over = True
            self._happened.set()

    async def pause(self, pause_s: float) -> None:
        """Waits until something happens, at most so long."""
        with suppress(TimeoutError):
            # `wait_for` loses a cancellation that comes with what it waits for.
            async with asyncio.timeout(pause_s):
                await self._happened.wait()
        self._happened.clear()


class _Topic:
    """The text of one run that somebody reads."""

    def __init__(self, texts: AnswerTexts, workflow_id: str) -> None:
        self.readers = 0
        self._texts = texts
        self._workflow_id = workflow_id
        self._writing = Writing()
        self._newest: Written | None = None
        self._moved = asyncio.Event()
        self._began_at: float | None = None
        """When it was first seen that an answer is about to begin."""
        self._reading = asyncio.create_task(self._read())

    @property
    def has_failed(self) -> bool:
        """Tells whether it looks no more, for the server did not answer: whoever comes now looks anew."""
        return self._reading.done() and (self._reading.cancelled() or self._reading.exception() is not None)

    async def moments(self) -> AsyncGenerator[Written, None]:
        """Yields the newest text and then each newer one; a slow reader is told the newest of what it missed."""
        seen: Written | None = None
        while True:
            moved = self._moved
            if self._newest is not None and self._newest is not seen:
                seen = self._newest
                yield seen
            elif self._reading.done():
                await self._reading
                return
            else:
                await moved.wait()

    async def close(self) -> None:
        """Looks no more."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async with self._texts.happening(self._workflow_id) as happening:
                while not happening.is_over:
                    try:
                        await self._look(happening)
                    except RPCError:
                        # Its feed gives up when the server has been away for long.
                        await happening.pause(LOST_PAUSE_S)
                if happening.error is not None:
                    raise happening.error
        finally:
            self._wake()

    async def _look(self, happening: _Happening) -> None:
        """Looks once and waits until the next look is due."""
        described = await self._texts.described(self._workflow_id)
        call = text_call(described.pending_activities)
        if call is not None:
            if self._writing.take(*call):
                self._put(self._writing.newest)
            await self._rest(happening, self._pause_s(call[1]))
            return
        self._began_at = None
        self._finish(happening.view)
        child = _answering_child(happening.view, described)
        if child is not None:
            await self._follow(child, happening)
            return
        is_soon = asyncio.get_running_loop().time() - happening.newest_at < SOON_S
        await self._rest(happening, FIRST_PAUSE_S if is_soon else IDLE_PAUSE_S)

    def _finish(self, view: RunView | None) -> None:
        """Tells the last words of a call that has ended, such as what an agent says before it calls tools.

        No heartbeat has told them: they came with the result.
        """
        before = self._writing.newest
        text = _said_by(before.node, view) if before is not None else None
        if (
            before is not None
            and text is not None
            and self._writing.take(before.node, TextSoFar(before.attempt, 0, text))
        ):
            self._put(self._writing.newest)

    async def _rest(self, happening: _Happening, wanted_s: float) -> None:
        with self._texts.pausing(wanted_s) as pause_s:
            await happening.pause(pause_s)

    def _pause_s(self, told: TextSoFar) -> float:
        if told.text:
            return NEXT_PAUSE_S
        now = asyncio.get_running_loop().time()
        self._began_at = self._began_at if self._began_at is not None else now
        return FIRST_PAUSE_S if now - self._began_at < HURRY_S else NEXT_PAUSE_S

    async def _follow(self, child: "_Child", happening: _Happening) -> None:
        """Tells what a sub-plan writes until it has ended."""
        try:
            async with aclosing(self._texts._written(child.workflow_id)) as coming:
                async for written in coming:
                    self._put(Written(f"{child.task}/{written.node}", written.attempt, written.text))
        except RunNotFound:
            pass
        # Its end is in the history of this run in a moment.
        await happening.pause(NEXT_PAUSE_S)

    def _put(self, written: Written | None) -> None:
        self._newest = written
        self._wake()

    def _wake(self) -> None:
        """Wakes everybody who waits now, and nobody who comes later."""
        self._moved.set()
        self._moved = asyncio.Event()


def _said_by(node: str, view: RunView | None) -> str | None:
    """Returns the text for people that a call has come to; `None` if it has not, or if that is not in its run."""
    record = view.scheduler.record_of(node) if view is not None and view.scheduler is not None else None
    if record is None or record.status is not NodeStatus.COMPLETED:
        return None
    try:
        text = summarize_response(record.result).text
    except ValueError:
        return None
    if not isinstance(text, str):
        return None
    said = VisibleText(ANSWER_FIELD if has_text_in_output(record.result) else "")
    said.take(text)
    return said.text


def is_given_up(view: RunView, call: str, mark: Mark) -> bool:
    """Tells whether a turn has come to other words than were told of a call of it.

    Args:
        view: the run of the agent.
        call: id of the call.
    """
    if view.scheduler is None:
        return False
    state = view.scheduler.state
    task = state.newest_id(without_number(call))
    if call_of_task(state, task) != call:
        # It was asked again.
        return True
    record = state.record_of(task)
    if record is not None and isinstance(record.result, StoredValue):
        # No run has its text. That of the last turn is the answer, with which whoever reads it compares what was told.
        return view.is_closed and is_turn(task) and state.number_of(turn_after(task)) is None
    text = _said_by(task, view)
    return text is not None and not mark.is_of(text)


@dataclass(frozen=True, slots=True)
class _Child:
    task: str
    workflow_id: str


def text_call(calls: Sequence[PendingActivityInfo]) -> tuple[str, TextSoFar] | None:
    """Returns the call in flight that tells its text, and the text; of several the newest, `None` if there is none."""
    found = [
        (call.scheduled_time.ToNanoseconds(), call.activity_id, told)
        for call in calls
        if call.activity_type.name == ACTIVITY_CALL_MODEL and (told := _told_by(call)) is not None
    ]
    return max(found, key=lambda each: each[:2])[1:] if found else None


def _told_by(call: PendingActivityInfo) -> TextSoFar | None:
    details = call.heartbeat_details.payloads
    if len(details) <= TEXT_PLACE:
        return None
    with suppress(MessageInvalid):
        return text_from_json(read_message(details[TEXT_PLACE]))
    return None


def answering_node(plan: CompiledPlan) -> str | None:
    """Returns the node whose result, and nothing else, is what a plan gives out."""
    if len(plan.output_bindings) != 1:
        return None
    ((path, template),) = plan.output_bindings
    whole = template[0] if len(template) == 1 else None
    is_all = path == () and isinstance(whole, ResultOf) and (whole.field, whole.path) == ("result", ())
    return whole.node if is_all and isinstance(whole, ResultOf) else None


def _answering_child(view: RunView | None, described: DescribeWorkflowExecutionResponse) -> _Child | None:
    """Returns the sub-plan in flight that makes the output of a run."""
    if view is None or view.scheduler is None or not described.pending_children:
        return None
    node = answering_node(view.scheduler.plan)
    if node is None or view.scheduler.state.number_of(node) is None:
        return None
    task = view.scheduler.state.newest_id(node)
    there = child_of(view, task)
    is_running = any(child.workflow_id == there for child in described.pending_children)
    return _Child(task, there) if is_running else None
