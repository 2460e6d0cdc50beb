"""One reader for each run and process, however many look at it.

A hundred readers of one run would make it three to five times slower (docs/internals/temporal.md), and a hundred
subscribers of one reader cost it nothing. The reader is there while somebody looks, and so are its requests.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import BEGINNING, Offset
from dagwright.history.moment_facts import MomentFacts, TaskFacts, facts_of
from dagwright.history.reader import TaskState, states_of
from dagwright.history.run_reader import RunFeed, RunView

T = TypeVar("T")

_MARK = "w"
_MAY_BE_MARKED = (NodeStatus.RUNNING, NodeStatus.READY)


@dataclass(frozen=True, slots=True)
class Told:
    """What a subscriber has been told, as `str` also `1-145`, or `1-145w`.

    Args:
        offset: everything up to there.
        has_marks: and also, with the `w`, that tasks wait for a worker, which no event tells. Which of them nobody
            knows later, so whoever goes on from there is told again of those that were under way.
    """

    offset: Offset
    has_marks: bool = False

    def __str__(self) -> str:
        return f"{self.offset}{_MARK if self.has_marks else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns what a text stands for.

        Raises:
            ValueError: it stands for none.
        """
        return cls(Offset.parse(text.removesuffix(_MARK)), text.endswith(_MARK))


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """What a subscriber is told.

    Args:
        view: the run now; its `offset` is the place to go on from after a break.
        changed: ids of the nodes and items whose state is another than in the update before, or than at the offset
            that was subscribed from; in the order of the changes. A state that came and went between is not told.
        states: theirs at the offset of the view, whose scheduler may know more already.
        shared: what subscribers have made of this moment; `once` reads it.
        facts: of the changed tasks, and the requests of the run, at the offset of the view.
    """

    view: RunView
    changed: tuple[str, ...]
    states: Mapping[str, TaskState] = field(default_factory=dict)
    shared: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    facts: MomentFacts = field(default_factory=MomentFacts, repr=False)

    def once(self, what: Hashable, make: Callable[[], T]) -> T:
        """Returns what is made of the view, made once for all subscribers of this moment.

        Args:
            what: tells it from all else that is made.
        """
        if what not in self.shared:
            self.shared[what] = make()
        made: T = self.shared[what]
        return made

    @property
    def told(self) -> Told:
        """What whoever was given this has been told."""
        return Told(self.view.offset, self.view.has_marks)


class RunFeeds:
    """Lets many in one process look at runs.

    Args:
        open_feed: makes the feed of a run from its id.
    """

    def __init__(self, open_feed: Callable[[str], RunFeed]) -> None:
        self._open_feed = open_feed
        self._topics: dict[str, _Topic] = {}

    async def subscribe(
        self, workflow_id: str, *, after: Offset | Told | None = None
    ) -> AsyncGenerator[RunUpdate, None]:
        """Yields the run now, then after every change (at most every 0.3 s), and ends when the run has ended.

        A slow subscriber is told the newest of what it missed, and keeps nobody waiting. Close the generator when it
        is left early (`contextlib.aclosing`): its reader goes with the last subscriber.

        Args:
            after: what was seen already; `None` for nothing. Of an execution that the server does not keep any more,
                nothing counts as seen.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not answered for a minute.
        """
        seen, reached = await self._seen(workflow_id, after)
        topic = self._topics.get(workflow_id)
        if topic is None or topic.has_failed:
            topic = self._topics[workflow_id] = _Topic(self._open_feed(workflow_id))
        topic.subscribers += 1
        try:
            moment = await topic.next_moment(after=0)
            # A reader that has just begun, or lags behind another one, would tell of states that are over.
            while topic.view.offset < reached and not topic.view.is_closed:
                moment = await topic.next_moment(after=moment)
            yield topic.update(topic.changed_from(seen))
            while not topic.view.is_closed:
                before, moment = moment, await topic.next_moment(after=moment)
                yield topic.update(topic.changed_since(before))
        finally:
            topic.subscribers -= 1
            if not topic.subscribers:
                if self._topics.get(workflow_id) is topic:
                    del self._topics[workflow_id]
                topic.close()

    async def _seen(self, workflow_id: str, after: Offset | Told | None) -> tuple[Mapping[str, TaskState], Offset]:
        """Returns what a subscriber has seen, and up to where."""
        if after is None:
            return {}, BEGINNING
        told = after if isinstance(after, Told) else Told(after)
        states, reached = await self._open_feed(workflow_id).seen_at(told.offset)
        if told.has_marks:
            states = {task: state for task, state in states.items() if state.status not in _MAY_BE_MARKED}
        return states, reached


class _Topic:
    """A run that somebody looks at."""

    def __init__(self, feed: RunFeed) -> None:
        self.subscribers = 0
        self._view: RunView | None = None
        self._states: dict[str, TaskState] = {}
        self._facts = MomentFacts()
        self._task_facts: dict[str, TaskFacts] = {}
        self._changed_at: dict[str, int] = {}
        """Task id -> moment of its last change, the newest last."""
        self._moment = 0
        self._shared: dict[Hashable, Any] = {}
        self._moved = asyncio.Event()
        self._reading = asyncio.create_task(self._read(feed))

    @property
    def view(self) -> RunView:
        """The run at the newest moment; there is none before `next_moment` has returned."""
        assert self._view is not None
        return self._view

    @property
    def has_failed(self) -> bool:
        """Tells whether it looks no more, for the server did not answer: whoever comes now looks anew."""
        return self._reading.done() and (self._reading.cancelled() or self._reading.exception() is not None)

    async def next_moment(self, *, after: int) -> int:
        """Waits until something is known that was not at the moment `after`; returns the newest moment.

        Raises:
            RunNotFound, RPCError: the reader gave up.
        """
        while self._moment <= after:
            if self._reading.done():
                # Raises what ended the reader.
                await self._reading
            await self._moved.wait()
        return self._moment

    def update(self, changed: tuple[str, ...]) -> RunUpdate:
        """Returns what a subscriber is told of some tasks at the newest moment."""
        states = {task: self._states[task] for task in changed}
        facts = replace(self._facts, tasks={task: self._task_facts[task] for task in changed})
        return RunUpdate(self.view, changed, states, self._shared, facts)

    def changed_from(self, seen: Mapping[str, TaskState]) -> tuple[str, ...]:
        """Returns the tasks that are in another state than the given ones, in the order of their last change."""
        return tuple(task for task in self._changed_at if self._states[task] != seen.get(task))

    def changed_since(self, moment: int) -> tuple[str, ...]:
        """Returns the tasks that changed after a moment, in the order of their last change."""
        found = []
        for task, changed_at in reversed(self._changed_at.items()):
            if changed_at <= moment:
                break
            found.append(task)
        return tuple(reversed(found))

    def close(self) -> None:
        """Ends the reader."""
        self._reading.cancel()

    async def _read(self, feed: RunFeed) -> None:
        try:
            async for view in feed.follow():
                self._take(view)
        finally:
            self._wake()

    def _take(self, view: RunView) -> None:
        self._moment += 1
        self._view = view
        self._shared = {}
        changed = {task: state for task, state in states_of(view.scheduler).items() if self._states.get(task) != state}
        self._states |= changed
        for task in changed:
            self._changed_at.pop(task, None)
            self._changed_at[task] = self._moment
        # The reader may move the scheduler on before a subscriber looks at it.
        self._facts = facts_of(view.scheduler, changed, before=self._facts, hidden=view.hidden)
        self._task_facts |= self._facts.tasks
        self._wake()

    def _wake(self) -> None:
        """Wakes everybody who waits now, and nobody who comes later."""
        self._moved.set()
        self._moved = asyncio.Event()
