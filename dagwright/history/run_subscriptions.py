"""Subscriptions to runs: one reader for each run and process, whatever the number of subscribers.

A hundred readers of one run would make the run three to five times slower
(docs/contributing/internals/temporal.md); a hundred subscribers of one reader do not slow the run down. The reader
exists, and sends requests, while there are subscribers.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dagwright.core.model.states import NodeStatus
from dagwright.history.executions import START, Cursor
from dagwright.history.moment_facts import MomentFacts, TaskFacts, TaskState, facts_of, states_of

if TYPE_CHECKING:
    from dagwright.history.run_reader import RunReader
    from dagwright.history.run_view import RunView

T = TypeVar("T")

_MARK = "w"
_MARKABLE_STATUSES = (NodeStatus.RUNNING, NodeStatus.READY)


@dataclass(frozen=True, slots=True)
class SubscriptionCursor:
    """Position of a subscriber; as `str`, for example `1-145` or `1-145w`.

    Args:
        cursor: position of the last delivered event.
        has_waiting_marks: whether the subscriber has seen tasks marked as waiting for a worker (the `w`). No event
            contains these marks, so a subscriber that resumes gets the states of the tasks in flight again.
    """

    cursor: Cursor
    has_waiting_marks: bool = False

    def __str__(self) -> str:
        return f"{self.cursor}{_MARK if self.has_waiting_marks else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form.

        Raises:
            ValueError: the text is not a position.
        """
        return cls(Cursor.parse(text.removesuffix(_MARK)), text.endswith(_MARK))


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """Update for a subscriber.

    Args:
        view: current state of the run; its `cursor` is the position from which to resume.
        changed_ids: ids of the nodes and items whose state has changed since the previous update (for the first update:
            since the cursor of the subscription), in the order of the changes. Intermediate states are not reported.
        states: states of the changed nodes and items at the cursor of the view; the scheduler of the view may be newer.
        derived_values: values that subscribers have derived from this view; see `derive_once`.
        facts: facts of the changed tasks and the requests of the run, at the cursor of the view.
    """

    view: "RunView"
    changed_ids: tuple[str, ...]
    states: Mapping[str, TaskState] = field(default_factory=dict)
    derived_values: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    facts: MomentFacts = field(default_factory=MomentFacts, repr=False)

    def derive_once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return a value derived from the view, computed once for all subscribers.

        Args:
            key: identifies the value.
        """
        if key not in self.derived_values:
            self.derived_values[key] = compute()
        value: T = self.derived_values[key]
        return value

    @property
    def position(self) -> SubscriptionCursor:
        """Position of a subscriber after this update."""
        return SubscriptionCursor(self.view.cursor, self.view.has_waiting_marks)


class RunSubscriptions:
    """Shared subscriptions to runs in one process.

    Args:
        open_reader: function that opens the reader of a run by its id.
    """

    def __init__(self, open_reader: "Callable[[str], RunReader]") -> None:
        self.open_reader = open_reader
        self._topics: dict[str, _Topic] = {}

    async def subscribe(
        self, run_id: str, *, after: Cursor | SubscriptionCursor | None = None
    ) -> AsyncGenerator[RunUpdate, None]:
        """Yield the state of the run now and after every change (at most every 0.3 s), and end when the run has ended.

        A slow subscriber gets the newest state and does not delay others. If a caller leaves early, it must close the
        generator (`contextlib.aclosing`): the reader ends with the last subscriber.

        Args:
            after: position up to which the subscriber has read, or `None`. If the server no longer retains the
                execution, nothing counts as read.

        Raises:
            RunNotFound: there is no such run.
            RPCError: the server has not responded for a minute.
        """
        delivered_states, delivered_cursor = await self._delivered_states(run_id, after)
        topic = self._topics.get(run_id)
        if topic is None or topic.has_failed:
            topic = self._topics[run_id] = _Topic(self.open_reader(run_id))
        topic.subscriber_count += 1
        try:
            version = await topic.next_version(known_version=0)
            # A new reader may be behind the position of the subscriber, and would report outdated states.
            while topic.view.cursor < delivered_cursor and not topic.view.is_closed:
                version = await topic.next_version(known_version=version)
            update = topic.update_of(topic.changed_from(delivered_states))
            yield update
            # The loop tests the delivered view: if the run ended in the meantime, the subscriber needs one more update.
            while not update.view.is_closed:
                previous_version, version = version, await topic.next_version(known_version=version)
                update = topic.update_of(topic.changed_since(previous_version))
                yield update
        finally:
            topic.subscriber_count -= 1
            if not topic.subscriber_count:
                if self._topics.get(run_id) is topic:
                    del self._topics[run_id]
                topic.close()

    async def _delivered_states(
        self, run_id: str, after: Cursor | SubscriptionCursor | None
    ) -> tuple[Mapping[str, TaskState], Cursor]:
        """Return the states that a subscriber has received, and the position of the subscriber."""
        if after is None:
            return {}, START
        position = after if isinstance(after, SubscriptionCursor) else SubscriptionCursor(after)
        states, delivered_cursor = await self.open_reader(run_id).states_and_cursor_at(position.cursor)
        if position.has_waiting_marks:
            states = {task: state for task, state in states.items() if state.status not in _MARKABLE_STATUSES}
        return states, delivered_cursor


class _Topic:
    """One run with its subscribers."""

    def __init__(self, reader: "RunReader") -> None:
        self.subscriber_count = 0
        self._view: RunView | None = None
        self._states: dict[str, TaskState] = {}
        self._facts = MomentFacts()
        self._task_facts: dict[str, TaskFacts] = {}
        self._changed_versions: dict[str, int] = {}
        """Task id -> version of its last change, in the order of the changes."""
        self._version = 0
        """Number of views that the reader has delivered."""
        self._derived_values: dict[Hashable, Any] = {}
        self._new_version = asyncio.Event()
        self._read_task = asyncio.create_task(self._read(reader))

    @property
    def view(self) -> "RunView":
        """Newest state of the run, once `next_version` has returned."""
        assert self._view is not None
        return self._view

    @property
    def has_failed(self) -> bool:
        """Whether the reader has failed, so that a new subscriber needs a new reader."""
        return self._read_task.done() and (self._read_task.cancelled() or self._read_task.exception() is not None)

    async def next_version(self, *, known_version: int) -> int:
        """Wait until there is a newer version than `known_version`, and return the newest version.

        Raises:
            RunNotFound, RPCError: the reader failed.
        """
        while self._version <= known_version:
            if self._read_task.done():
                # Raises the exception of the reader.
                await self._read_task
            await self._new_version.wait()
        return self._version

    def update_of(self, changed_ids: tuple[str, ...]) -> RunUpdate:
        """Return the update of some tasks, with their newest states."""
        states = {task: self._states[task] for task in changed_ids}
        facts = replace(self._facts, tasks={task: self._task_facts[task] for task in changed_ids})
        return RunUpdate(self.view, changed_ids, states, self._derived_values, facts)

    def changed_from(self, states: Mapping[str, TaskState]) -> tuple[str, ...]:
        """Return the tasks whose states differ from `states`, in the order of their last change."""
        return tuple(task for task in self._changed_versions if self._states[task] != states.get(task))

    def changed_since(self, version: int) -> tuple[str, ...]:
        """Return the tasks that changed after a version, in the order of their last change."""
        changed_ids = []
        for task, changed_version in reversed(self._changed_versions.items()):
            if changed_version <= version:
                break
            changed_ids.append(task)
        return tuple(reversed(changed_ids))

    def close(self) -> None:
        """Stop the reader."""
        self._read_task.cancel()

    async def _read(self, reader: "RunReader") -> None:
        try:
            async for view in reader.follow():
                self._apply(view)
        finally:
            self._wake()

    def _apply(self, view: "RunView") -> None:
        self._version += 1
        self._view = view
        self._derived_values = {}
        changed_states = {
            task: state for task, state in states_of(view.scheduler).items() if self._states.get(task) != state
        }
        self._states |= changed_states
        for task in changed_states:
            self._changed_versions.pop(task, None)
            self._changed_versions[task] = self._version
        # The reader may advance the scheduler before a subscriber handles the update, so the facts are copied.
        self._facts = facts_of(
            view.scheduler, changed_states, previous=self._facts, history_statuses=view.history_statuses
        )
        self._task_facts |= self._facts.tasks
        self._wake()

    def _wake(self) -> None:
        """Wake all current waiters."""
        self._new_version.set()
        self._new_version = asyncio.Event()
