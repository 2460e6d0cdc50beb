"""Follow a run: its changes, and the open requests that the run and its sub-plans send to people."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio.service import RPCError

from dagwright.client.feedback.open_requests import has_sub_plans, requests_in
from dagwright.history.moment_facts import MomentFacts, TaskState
from dagwright.history.run_subscriptions import SubscriptionCursor

if TYPE_CHECKING:
    from dagwright.client.feedback.feedback_client import FeedbackClient
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

_SUB_PLANS_INTERVAL_S = 2.0
"""Interval, in seconds, between two reads of the sub-plans: each read loads the histories of all waiting sub-plans."""

MainItem = TypeVar("MainItem")
SideItem = TypeVar("SideItem")
Item = TypeVar("Item")

RequestKey = tuple[str, str]
"""Request ID and opening time: the same node may open another request under the same ID."""


@dataclass(frozen=True, slots=True)
class RunMoment:
    """A run at one moment.

    Args:
        changed_ids: IDs of the nodes and items that have changed since the previous moment.
        requests: open requests to people, including requests of sub-plans.
        states, facts: states and facts of the changed nodes and items at this moment; the scheduler of `view` may be in
            a later state.
    """

    view: "RunView"
    changed_ids: Sequence[str]
    requests: Sequence[Mapping[str, Any]]
    states: Mapping[str, TaskState] = field(default_factory=dict)
    facts: MomentFacts = field(default_factory=MomentFacts, repr=False)

    @property
    def cursor(self) -> SubscriptionCursor:
        """Cursor of a client that has received this moment."""
        return SubscriptionCursor(self.view.cursor, self.view.has_waiting_marks)

    @property
    def has_ended_or_waits(self) -> bool:
        """Whether the run has ended or waits for people."""
        return self.view.is_closed or bool(self.requests)


async def follow(
    runs: "Runs",
    run_id: str,
    *,
    answered_requests: Collection[RequestKey] = (),
    after: SubscriptionCursor | None = None,
) -> AsyncGenerator[RunMoment, None]:
    """Yield the moments of a run until it has ended; close the generator to stop early.

    Args:
        answered_requests: requests that have been answered; they are omitted.
        after: cursor of the client; the first moment has the changes since then.

    Raises:
        RunNotFound: there is no such run.
        RPCError: the server has not responded for a minute.
    """
    poller = RequestPoller(runs.feedback, run_id)
    async with aclosing(runs.subscriptions.subscribe(run_id, after=after)) as updates:
        async for update in updates:
            requests = [] if update.view.is_closed else await poller.read(update.view)
            unanswered_requests = (
                [request for request in requests if request_key(request) not in answered_requests]
                if answered_requests
                else requests
            )
            yield RunMoment(update.view, update.changed_ids, unanswered_requests, update.states, update.facts)


async def wait_for_end(
    runs: "Runs", run_id: str, *, on_update: "Callable[[RunView], None]" = lambda _: None
) -> "RunView":
    """Wait until a run has ended. Raises the same errors as `follow`.

    Args:
        on_update: called with the run after each change.
    """
    last_view: RunView | None = None
    async with aclosing(runs.subscriptions.subscribe(run_id)) as updates:
        async for update in updates:
            last_view = update.view
            on_update(last_view)
    assert last_view is not None
    return last_view


async def interleave(
    main_items: AsyncGenerator[MainItem, None], side_items: AsyncGenerator[SideItem, None]
) -> AsyncGenerator[MainItem | SideItem, None]:
    """Yield the items of two generators as they arrive, until `main_items` ends; then close both generators."""
    async with aclosing(main_items), aclosing(side_items):
        pending_tasks: dict[AsyncGenerator[MainItem | SideItem, None], asyncio.Task[MainItem | SideItem | None]] = {}
        try:
            for generator in (main_items, side_items):
                pending_tasks[generator] = asyncio.create_task(_next_of(generator))
            while main_items in pending_tasks:
                await asyncio.wait(pending_tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                for source, task in [*pending_tasks.items()]:
                    if not task.done():
                        continue
                    del pending_tasks[source]
                    if (item := task.result()) is not None:
                        yield item
                        pending_tasks[source] = asyncio.create_task(_next_of(source))
        finally:
            for task in pending_tasks.values():
                task.cancel()
            await asyncio.gather(*pending_tasks.values(), return_exceptions=True)


async def _next_of(source: AsyncGenerator[Item, None]) -> Item | None:
    return await anext(source, None)


def request_key(request: Mapping[str, Any]) -> RequestKey:
    """Return the key of a request document."""
    return str(request["request_id"]), str(request["opened_at"])


class RequestPoller:
    """Poller of the open requests of one run and its sub-plans."""

    def __init__(self, feedback: "FeedbackClient", run_id: str) -> None:
        self._feedback = feedback
        self._run_id = run_id
        self._child_requests: Sequence[Mapping[str, Any]] = ()
        self._next_read_at = 0.0

    async def read(self, view: "RunView") -> list[Mapping[str, Any]]:
        """Return the open requests. Requests of the run itself come first."""
        if not has_sub_plans(view):
            self._child_requests = ()
        elif time.monotonic() >= self._next_read_at:
            # The last known requests remain while the server is unavailable.
            with suppress(RPCError):
                self._child_requests = [
                    request.document for request in await self._feedback.requests_of_sub_plans(self._run_id)
                ]
            self._next_read_at = time.monotonic() + _SUB_PLANS_INTERVAL_S
        return [*requests_in(view), *self._child_requests]
