"""What people ask of a whole run, decoded from plain JSON (docs/internals/messages.md).

Whoever sends it may be the Temporal UI or a program in another language. Pause, resume and cancel take whatever comes,
an empty payload too: they must always work.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dagwright.core.boundary import wire
from dagwright.core.model.actor import By
from dagwright.core.model.budget_limits import limit_words, limits_from_json
from dagwright.core.model.requests import Through
from dagwright.core.scheduler.ready_queue import MAX_IN_FLIGHT
from dagwright.features.commands.steering import Cancel, Pause, Resume, SetLimits, SetPolicy
from dagwright.protocol.actor import by_from_json, by_of_anything
from dagwright.protocol.feedback import policy_change_from_json
from dagwright.protocol.messages import MessageInvalid, deadline_from_json, max_in_flight_from_json
from dagwright.protocol.node_commands import Steered

_T = TypeVar("_T")


def _pause(message: Any, *, through: Through) -> Steered:
    by = by_of_anything(message, through=through)
    said = "the run is paused; what runs runs to its end"
    return Steered(_below(by), None, Pause(by), said, note=by.words("paused"), is_for_all=True)


def _resume(message: Any, *, through: Through) -> Steered:
    by = by_of_anything(message, through=through)
    return Steered(_below(by), None, Resume(by), "the run goes on", note=by.words("resumed"), is_for_all=True)


def _cancel(message: Any, *, through: Through) -> Steered:
    # The sub-plans hear of it when what runs is told to stop.
    return cancelled_by(by_of_anything(message, through=through))


def cancelled_by(by: By) -> Steered:
    """Returns what a cancel asks for."""
    return Steered({}, None, Cancel(by), "the run is being stopped", note=by.words("cancelled"))


def _set_policy(message: Any, *, through: Through) -> Steered:
    policy, name = policy_change_from_json(message)
    by = By(name or None, None, through)
    return Steered({}, None, SetPolicy(policy, by), "the policy is changed", note=by.words("policy changed"))


def _set_limits(message: Any, *, through: Through) -> Steered:
    if not isinstance(message, Mapping) or not {"max_parallel", "deadline", "budget"} & message.keys():
        raise MessageInvalid(
            'set_limits takes an object such as {"max_parallel": 8, "deadline": "4h", "budget": {"tokens": 90000}, '
            '"by": "ann"}'
        )
    by = by_from_json(message, through=through)
    width = deadline_s = None
    told = []
    if "max_parallel" in message:
        width = _read(message, "max_parallel", max_in_flight_from_json, default=MAX_IN_FLIGHT)
        told.append(f"max_parallel {width}")
    if "deadline" in message:
        deadline_s = _read(message, "deadline", deadline_from_json, default=math.inf)
        told.append("no deadline" if math.isinf(deadline_s) else f"deadline {message['deadline']}")
    budget = None
    if "budget" in message:
        try:
            budget = limits_from_json(message["budget"], can_be_lifted=True)
        except ValueError as error:
            raise MessageInvalid(f"'budget' is none: {error}") from None
        for kind, limit in budget.items():
            told.append(f"no limit of {kind}" if limit is None else f"a limit of {limit_words(kind, limit)} for {kind}")
    words = " and ".join(told)
    act = SetLimits(width, deadline_s, budget, by)
    return Steered({}, None, act, f"the run has {words} now", note=by.words(f"{words} set"))


def _read(message: Mapping[str, Any], name: str, read: Callable[[Any], _T], *, default: _T) -> _T:
    """Returns a limit; null is none."""
    try:
        return default if message[name] is None else read(message[name])
    except ValueError as error:
        raise MessageInvalid(f"{name!r} {error}") from None


def _below(by: By) -> Mapping[str, Any]:
    return {"reason": by.reason, "by": by.name}


RUN_MESSAGES: Mapping[str, Callable[..., Steered]] = {
    wire.PAUSE: _pause,
    wire.RESUME: _resume,
    wire.CANCEL: _cancel,
    wire.SET_POLICY: _set_policy,
    wire.SET_LIMITS: _set_limits,
}
"""Name of a signal and update -> what reads its message, and how that came (`through`)."""
TAKE_ANYTHING = frozenset({wire.PAUSE, wire.RESUME, wire.CANCEL})
"""Messages of which the payload may be anything, also no JSON."""
