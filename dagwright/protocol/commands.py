"""What people do to a run by signal or update: read from a message, checked, then done to the scheduler.

The workflow does it when the message comes, the feed when it reads of it in history; nothing else that a person sends
changes a run. How both of them take messages: `dagwright.protocol.command_handler`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.model.actor import UNKNOWN_ACTOR
from dagwright.core.model.requests import Feedback, Through
from dagwright.features.commands.steering import take
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.command_messages import (
    RUN_MESSAGES,
    Steered,
    cancelled_by,
    feedback_from_json,
    feedback_to_json,
    steered_from_json,
)
from dagwright.protocol.node_paths import way_down
from dagwright.protocol.planned_nodes import planned_from_json

Done = Callable[[RunScheduler, float], str | None]
"""Does something to a scheduler at a time, or returns why not."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal to sub-plans.

    Args:
        task: whose sub-plan it is for; `None` is all of them.
    """

    signal: str
    message: Mapping[str, Any]
    task: str | None = None


def _at_once(_: RunScheduler) -> str | None:
    return None


def _stays(_: RunScheduler) -> Sent | None:
    return None


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a person does to a run.

    Args:
        refusal_of: returns why it cannot be done now, and changes nothing.
        do: does it, or returns why not.
        said: returns what the person is told when it is done; to be asked before.
        way: returns what to send on, if it belongs to a sub-plan that runs.
        later: returns what the person is told instead, if it was only kept for something to come.
        note: code and text of what is noted when it is done.
        for_all: what all sub-plans are told then.
    """

    refusal_of: Done
    do: Done
    said: Callable[[RunScheduler], str]
    way: Callable[[RunScheduler], Sent | None] = _stays
    later: Callable[[RunScheduler], str | None] = _at_once
    note: tuple[str, str] | None = None
    for_all: Sent | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of an act.

    Args:
        refusal: why it was refused.
        said: what the person is told if it was not.
        note: code and text of what is noted.
        sent: what sub-plans are told.
        error: the defect that it met.
    """

    refusal: str | None = None
    said: str = ""
    note: tuple[str, str] | None = None
    sent: Sent | None = None
    error: Exception | None = None


def take_act(act: Act, scheduler: RunScheduler, *, at: float) -> Taken:
    """Does what belongs to this run; what is sent on is refused below, if at all."""
    scheduler.advance(at)
    if (sent_on := act.way(scheduler)) is not None:
        return Taken(said=f"handed on to the sub-plan {sent_on.task!r}", sent=sent_on)
    said = act.said(scheduler)
    if (refusal := act.do(scheduler, at)) is not None:
        return Taken(refusal)
    return Taken(said=act.later(scheduler) or said, note=act.note, sent=act.for_all)


def refusal_of_act(act: Act, scheduler: RunScheduler, *, at: float) -> str | None:
    """Returns why an act cannot be done now, and changes nothing; what is sent on is refused below, if at all."""
    return act.refusal_of(scheduler, at) if act.way(scheduler) is None else None


def _answered(message: Any, *, through: Through) -> Act:
    feedback = feedback_from_json(message, through=through)
    return Act(
        refusal_of=lambda scheduler, at: scheduler.features.feedback.refusal_of(feedback, at),
        do=lambda scheduler, at: scheduler.features.feedback.answer(feedback, at),
        said=partial(_answered_words, feedback.request),
        way=partial(_way_of_answer, feedback),
        later=partial(_kept_words, feedback.request),
    )


def _answered_words(request: str, scheduler: RunScheduler) -> str:
    count = scheduler.features.feedback.meant_by(request)
    return f"{count:,} requests of {request!r} are answered" if count > 1 else f"{request!r} is answered"


def _kept_words(request: str, scheduler: RunScheduler) -> str | None:
    is_kept = request in scheduler.features.feedback.requests.early
    return f"{request!r} has not asked yet; the answer is kept until it does" if is_kept else None


def _way_of_answer(feedback: Feedback, scheduler: RunScheduler) -> Sent | None:
    found = way_down(scheduler, feedback.request)
    if found is None:
        return None
    task_id, request = found
    return Sent(wire.SIGNAL_FEEDBACK, feedback_to_json(feedback, request=request), task_id)


def _steered(name: str, steered: Steered) -> Act:
    return Act(
        refusal_of=lambda scheduler, at: steered.act.refusal_of(scheduler, at=at),
        do=lambda scheduler, at: take(steered.act, scheduler, at=at),
        said=lambda _: steered.said,
        way=partial(_way_of_act, name, steered),
        note=None if steered.note is None else (name, steered.note),
        for_all=Sent(name, steered.message) if steered.is_for_all else None,
    )


def _way_of_act(name: str, steered: Steered, scheduler: RunScheduler) -> Sent | None:
    found = way_down(scheduler, steered.node) if steered.node is not None else None
    if found is None:
        return None
    task_id, node = found
    return Sent(name, {**steered.message, "node": node}, task_id)


PLAIN_CANCEL = _steered(wire.CANCEL, cancelled_by(UNKNOWN_ACTOR))
"""Stops the run, whatever the message says."""

_OF_NODES = (wire.CANCEL_NODE, wire.RETRY_NODE, wire.SET_RESULT, wire.ADD_NODES)
_ANSWERS = (wire.SIGNAL_FEEDBACK, wire.UPDATE_SUBMIT_FEEDBACK)


def is_act(name: str) -> bool:
    """Tells whether a signal or update of that name is something that is done to a run."""
    return name in _OF_NODES or name in RUN_MESSAGES or name in _ANSWERS or name == wire.SIGNAL_PLANNED


def read_act(name: str, message: Any, *, through: Through) -> Act:
    """Returns what a message asks for.

    Args:
        name: of the signal or update.
        message: its JSON value.
        through: which of both it is.

    Raises:
        MessageInvalid: it is not what docs/internals/messages.md says.
    """
    if name in _ANSWERS:
        return _answered(message, through=through)
    if name in RUN_MESSAGES:
        return _steered(name, RUN_MESSAGES[name](message, through=through))
    if name == wire.SIGNAL_PLANNED:
        return _steered(name, planned_from_json(message))
    return _steered(name, steered_from_json(name, message, through=through))
