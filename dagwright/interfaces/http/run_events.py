"""The events of one run: which node came to which state, each told once, also to a client that comes back elsewhere.

    event: nodes    what has changed since the event before; `id` is the place up to which everything is told
    event: run      the run as it stands, at the beginning of each connection and whenever that is another
    event: end      how the run ended; nothing follows

A client that comes back with the id it saw last is told what it missed, by any gateway: the id is a place in the
history of the run, which the server keeps.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_time
from dagwright.core.scheduler.run_end import counts_of
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.reader import TaskState
from dagwright.history.run_reader import RunView
from dagwright.history.run_subscriptions import RunUpdate, Told
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import ApiError, told_as
from dagwright.interfaces.http.streams import Events, event
from dagwright.protocol.documents import compact_value

_END = "e"
_SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class EventId:
    """What the `id` of an event says, as `str` `1-145`, with the run before it in a session: `run-1/1-145`.

    Args:
        told: what the client knows then.
        is_end: it was told the end too.
        run: whose turn it is; `None` where the address names the run.
    """

    told: Told
    is_end: bool = False
    run: str | None = None

    def __str__(self) -> str:
        run = f"{self.run}{_SEPARATOR}" if self.run is not None else ""
        return f"{run}{self.told}{_END if self.is_end else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns what an id says.

        Raises:
            ApiError: it is none of these.
        """
        run, separator, place = text.rpartition(_SEPARATOR)
        try:
            return cls(Told.parse(place.removesuffix(_END)), place.endswith(_END), run if separator else None)
        except ValueError as error:
            words = f"{error}; send the id of the last event that was seen, or leave it out"
            raise ApiError(400, words, param="after", code="invalid_value") from None


async def run_events(updates: AsyncGenerator[RunUpdate, None], *, named: str | None = None) -> Events:
    """Yields the events of a run, all of one moment together, and ends with its end.

    Args:
        updates: of the run, as `RunFeeds.subscribe` tells them.
        named: the run, where the ids have to name it.
    """
    before: Mapping[str, Any] = {}
    try:
        async with aclosing(updates):
            async for update in updates:
                now = update.once("run", partial(run_now, update.view))
                is_other, before = now != before, now
                # A thousand clients of one run are told the same: it is put into words once, and sent as one.
                key = ("events", named, update.changed, is_other)
                if words := update.once(key, partial(_words, update, now if is_other else None, named)):
                    yield words
    # The status of the answer is out, so what goes wrong now is told in the stream.
    except Exception as error:
        if (wrong := told_as(error)) is None:
            raise
        yield event(wrong.body(), name="error")


def _words(update: RunUpdate, now: Mapping[str, Any] | None, named: str | None) -> str:
    """Returns the events of an update.

    Args:
        now: the run as it stands, if that is to be told.
    """
    view, id = update.view, str(EventId(update.told, run=named))
    told = []
    if update.changed:
        nodes = [node_now(update, task) for task in update.changed]
        told.append(event({"run_id": view.workflow_id, "nodes": nodes}, id=id, name="nodes"))
    if now is not None:
        told.append(event(now, id=id, name="run"))
    if view.is_closed:
        told.append(event(_ended(view), id=str(EventId(update.told, True, named)), name="end"))
    return "".join(told)


async def first_known(desk: Desk, run: str, after: Told | None) -> AsyncGenerator[RunUpdate, None]:
    """Returns the updates of a run once there is one, so that what is wrong from the beginning has its own status.

    Raises:
        RunNotFound: there is no such run.
        RPCError: the server does not answer.
    """
    updates = desk.runs.feeds.subscribe(run, after=after)
    try:
        first = await anext(updates)
    except BaseException:
        await updates.aclose()
        raise
    return _with_first(first, updates)


async def _with_first(first: RunUpdate, rest: AsyncGenerator[RunUpdate, None]) -> AsyncGenerator[RunUpdate, None]:
    async with aclosing(rest):
        yield first
        async for update in rest:
            yield update


def node_now(update: RunUpdate, task: str) -> dict[str, Any]:
    """Returns what is told of a node or item that has changed."""
    state = update.states[task]
    told: dict[str, Any] = {"node_id": task, "status": state.status.value, "attempts": state.attempts}
    if state.reason:
        told["reason"] = state.reason
    scheduler = update.view.scheduler
    return told if scheduler is None else {**told, **_facts(scheduler, task, state)}


def _facts(scheduler: RunScheduler, task: str, state: TaskState) -> dict[str, Any]:
    record, node = scheduler.record_of(task), scheduler.state.node_of(task)
    told: dict[str, Any] = {"title": node.title, "tool": node.tool}
    # The scheduler may be ahead of what is told, and then the rest belongs to a later event.
    if record is not None and record.status is state.status and record.attempts == state.attempts:
        told |= {"started_at": format_time(record.started_at), "ended_at": format_time(record.ended_at)}
        if record.error is not None and state.status is NodeStatus.FAILED:
            told["error"] = {"code": record.error.code, "message": record.error.message}
    return told


def run_now(view: RunView) -> dict[str, Any]:
    """Returns what is told of a run as it stands."""
    counts = counts_of(view.scheduler.plan, view.scheduler.records) if view.scheduler is not None else {}
    feedback = view.scheduler.features.feedback if view.scheduler is not None and not view.is_closed else None
    open_requests = feedback.requests.open.values() if feedback is not None else ()
    return {
        "run_id": view.workflow_id,
        "status": str(view.status),
        "title": view.title,
        "nodes": {status.value: count for status, count in counts.items() if count},
        "waiting_for": [{"id": each.id, "type": each.type, "prompt": each.prompt} for each in open_requests],
        "notes": list(view.notes),
    }


def _ended(view: RunView) -> dict[str, Any]:
    document = view.unfilled_document()
    return {
        "run_id": view.workflow_id,
        "status": str(view.status),
        "error": document["error"],
        "output": compact_value(document["output"], ref="output"),
    }
