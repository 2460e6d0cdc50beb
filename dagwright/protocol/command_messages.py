"""Signals and updates of people to a run, decoded from JSON (docs/internals/messages.md)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import CANCEL_GRACE_S
from dagwright.core.model.actor import Actor
from dagwright.core.model.answers import size_problem
from dagwright.core.model.budget_limits import limit_words, limits_from_json
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.requests import CLIENT_CHANNELS, Feedback, MayAnswer, Through
from dagwright.core.scheduler.ready_queue import MAX_IN_FLIGHT
from dagwright.features.commands.node_commands import AppendWritten, CancelNode, RetryNode, SetResult
from dagwright.features.commands.steering import Act, Cancel, Pause, Resume, SetLimits, SetPolicy, Written
from dagwright.features.plan_edits.sent_tools import tools_from_json
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.messages import MessageInvalid, deadline_from_json, max_in_flight_from_json

NAME_CHARACTERS = 200
WORDS_CHARACTERS = 4_000
"""Longest reason or note: it stands in the state of the run."""


def name_of(message: Mapping[str, Any]) -> str | None:
    """Returns who sends a message.

    Raises:
        MessageInvalid: that is no name.
    """
    return _text(message, "by", most=NAME_CHARACTERS)


def words_of(message: Mapping[str, Any], name: str) -> str | None:
    """Returns a reason or a note.

    Raises:
        MessageInvalid: it is no text, or too long.
    """
    return _text(message, name, most=WORDS_CHARACTERS)


def by_from_json(message: Mapping[str, Any], *, through: Through) -> Actor:
    """Returns whose act it is, and why.

    Raises:
        MessageInvalid: a text is none, or too long.
    """
    return Actor(name_of(message), words_of(message, "reason"), through)


def by_of_anything(message: Any, *, through: Through) -> Actor:
    """Returns the same of a message that must never be refused; whatever cannot be read is cut or left out."""
    if not isinstance(message, Mapping):
        return Actor(None, message[:WORDS_CHARACTERS] if isinstance(message, str) else None, through)
    reason, by = message.get("reason"), message.get("by")
    return Actor(
        str(by)[:NAME_CHARACTERS] if by is not None else None,
        str(reason)[:WORDS_CHARACTERS] if reason is not None else None,
        through,
    )


def _text(message: Mapping[str, Any], name: str, *, most: int) -> str | None:
    value = message.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise MessageInvalid(f"{name!r} must be a text of at most {most:,} characters")
    return value or None


_ID_BYTES = 2_000
"""Some ids of 200 bytes: the path to a request in a sub-plan of a sub-plan."""

_NAME_CHARACTERS = 100
_LONGEST_NAME = 4 * _NAME_CHARACTERS
_NAMES_BYTES = 1_500
"""The server takes 2 KB for one search attribute."""
ANYONE = "anyone"
"""Stands for the assignee of a request that has none."""


def feedback_from_json(message: Any, *, through: Through) -> Feedback:
    """Returns the answer of a message.

    Args:
        through: how it came.

    Raises:
        MessageInvalid: it is none.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid('an answer must be an object such as {"request": "check", "answer": {"approved": true}}')
    request = message.get("request")
    if not isinstance(request, str) or not 0 < len(request.encode(errors="replace")) <= _ID_BYTES:
        raise MessageInvalid("'request' must be the id of a request, such as check")
    if "answer" not in message:
        raise MessageInvalid("there is no 'answer'")
    return Feedback(
        request=request,
        answer=message["answer"],
        by=name_of(message) or "",
        note=words_of(message, "note") or "",
        through=_through_in(message, through),
        may_answer=_may_answer_in(message),
    )


def _through_in(message: Mapping[str, Any], transport: Through) -> Through:
    """Return the channel that the sender declares; the transport if it declares none."""
    declared = message.get("through")
    if declared is None:
        return transport
    for channel in CLIENT_CHANNELS:
        if declared == channel:
            return channel
    raise MessageInvalid(f"'through' must be {' or '.join(CLIENT_CHANNELS)}, or absent")


def _may_answer_in(message: Mapping[str, Any]) -> MayAnswer:
    """Read which requests the author may answer; a gateway with API keys limits them."""
    declared = message.get("may_answer", "all")
    for known in get_args(MayAnswer):
        if declared == known:
            return cast("MayAnswer", known)
    raise MessageInvalid(f"'may_answer' must be one of {', '.join(get_args(MayAnswer))}, or absent")


def feedback_to_json(feedback: Feedback, *, request: str) -> dict[str, Any]:
    """Returns an answer as it is sent on to the run that asked.

    Args:
        request: the id of the request there.
    """
    declared: dict[str, Any] = {"through": feedback.through} if feedback.through in CLIENT_CHANNELS else {}
    declared |= {} if feedback.may_answer == "all" else {"may_answer": feedback.may_answer}
    return {"request": request, "answer": feedback.answer, "by": feedback.by, "note": feedback.note, **declared}


def policy_change_from_json(message: Any) -> tuple[Policy, str]:
    """Returns the policy of a message `{"policy", "by"}`, and who changes it.

    Raises:
        MessageInvalid: it is none.
    """
    if not isinstance(message, Mapping) or "policy" not in message:
        raise MessageInvalid('the message must be an object such as {"policy": {"otherwise": "run"}, "by": "ann"}')
    try:
        policy = policy_from_json(message["policy"])
    except ValueError as error:
        raise MessageInvalid(f"policy: {error}") from None
    return policy, name_of(message) or ""


def awaited(scheduler: RunScheduler) -> list[str]:
    """Returns whom the run waits for, in the order of the alphabet, within what a search attribute may hold."""
    if not scheduler.features.feedback.requests.open:
        return []
    names = sorted(
        {
            (request.assignee or ANYONE)[:_NAME_CHARACTERS]
            for request in scheduler.features.feedback.requests.open.values()
        }
    )
    kept: list[str] = []
    left = _NAMES_BYTES
    for name in names:
        left -= len(name.encode(errors="replace"))
        if left < 0:
            break
        kept.append(name)
    return kept


def may_await(names: Sequence[str], name: str) -> bool:
    """Return whether a run may wait for `name`, by the names in its search attribute; a long list is cut."""
    return name[:_NAME_CHARACTERS] in names or sum(len(each.encode()) for each in names) > _NAMES_BYTES - _LONGEST_NAME


MESSAGE_BYTES = 256 * 1024
"""Arguments, a result or nodes that somebody sends: they stand in the history, and in the state of the run."""


@dataclass(frozen=True, slots=True)
class Steered:
    """What a message asks for.

    Args:
        message: as it came.
        node: whose it is, with the path to its sub-plan; `None` if it is about no node.
        said: what the person is told when it is done.
        note: what is noted of it then, under its name.
        is_for_all: the same message goes to all sub-plans.
    """

    message: Mapping[str, Any]
    node: str | None
    act: Act | Written
    said: str
    note: str | None = None
    is_for_all: bool = False


def steered_from_json(name: str, message: Any, *, through: Through) -> Steered:
    """Returns what a message asks for.

    Args:
        name: of the signal or update.
        through: which of both it is.

    Raises:
        MessageInvalid: it is not what docs/internals/messages.md says.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid(f"{name} takes an object such as {_EXAMPLES[name]}")
    if (problem := size_problem(dict(message), MESSAGE_BYTES, what="the message")) is not None:
        raise MessageInvalid(problem)
    by = by_from_json(message, through=through)
    if name == wire.ADD_NODES:
        return _append(message, by)
    node = message.get("node")
    if not isinstance(node, str) or not 0 < len(node.encode()) <= _ID_BYTES:
        raise MessageInvalid("'node' must be the id of a node or item, such as sum or sum[north]")
    act, said = _ACTS[name](node, message, by)
    return Steered(message, node, act, said)


def _cancel_node(node: str, message: Mapping[str, Any], by: Actor) -> tuple[Act, str]:
    branch = message.get("branch")
    if branch is not None and not isinstance(branch, bool):
        raise MessageInvalid("'branch' must be true or false")
    said = f"{node!r} is cancelled; what runs of it is told to stop"
    return CancelNode(node, branch or False, CANCEL_GRACE_S, by), said


def _retry(node: str, message: Mapping[str, Any], by: Actor) -> tuple[Act, str]:
    arguments = message.get("arguments")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise MessageInvalid("'arguments' must be an object")
    told = " with these arguments, as a new node" if arguments is not None else ""
    return RetryNode(node, arguments, by), f"{node!r} is tried again{told}"


def _set_result(node: str, message: Mapping[str, Any], by: Actor) -> tuple[Act, str]:
    if "result" not in message:
        raise MessageInvalid("there is no 'result'")
    return SetResult(node, message["result"], by), f"{node!r} has the result that you gave"


def _append(message: Mapping[str, Any], by: Actor) -> Steered:
    nodes, tools = message.get("nodes"), message.get("tools")
    if not isinstance(nodes, list) or not nodes:
        raise MessageInvalid("'nodes' must be a list of nodes as in a plan")
    try:
        declared = tools_from_json(tools)
    except ValueError as error:
        raise MessageInvalid(str(error)) from None
    said = f"{len(nodes)} nodes were added" if len(nodes) > 1 else "one node was added"
    return Steered(message, None, AppendWritten(nodes, declared, by), said)


_ACTS: Mapping[str, Callable[[str, Mapping[str, Any], Actor], tuple[Act, str]]] = {
    wire.CANCEL_NODE: _cancel_node,
    wire.RETRY_NODE: _retry,
    wire.SET_RESULT: _set_result,
}
_EXAMPLES = {
    wire.CANCEL_NODE: '{"node": "sum", "branch": true, "by": "ann"}',
    wire.RETRY_NODE: '{"node": "sum", "by": "ann"}',
    wire.SET_RESULT: '{"node": "sum", "result": 5, "by": "ann"}',
    wire.ADD_NODES: '{"nodes": [{"id": "more", "tool": "sum_csv"}], "by": "ann"}',
}


_T = TypeVar("_T")


def _pause(message: Any, *, through: Through) -> Steered:
    by = by_of_anything(message, through=through)
    said = "the run is paused; what runs runs to its end"
    return Steered(_below(by), None, Pause(by), said, note=by.words("paused"), is_for_all=True)


def _resume(message: Any, *, through: Through) -> Steered:
    by = by_of_anything(message, through=through)
    return Steered(_below(by), None, Resume(by), "the run goes on", note=by.words("resumed"), is_for_all=True)


def _cancel_run(message: Any, *, through: Through) -> Steered:
    # The sub-plans hear of it when what runs is told to stop.
    return cancelled_by(by_of_anything(message, through=through))


def cancelled_by(by: Actor) -> Steered:
    """Returns what a cancel asks for."""
    return Steered({}, None, Cancel(by), "the run is being stopped", note=by.words("cancelled"))


def _set_policy(message: Any, *, through: Through) -> Steered:
    policy, name = policy_change_from_json(message)
    by = Actor(name or None, None, through)
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


def _below(by: Actor) -> Mapping[str, Any]:
    return {"reason": by.reason, "by": by.name}


RUN_MESSAGES: Mapping[str, Callable[..., Steered]] = {
    wire.PAUSE: _pause,
    wire.RESUME: _resume,
    wire.CANCEL: _cancel_run,
    wire.SET_POLICY: _set_policy,
    wire.SET_LIMITS: _set_limits,
}
"""Name of a signal and update -> what reads its message, and how that came (`through`)."""
TAKE_ANYTHING = frozenset({wire.PAUSE, wire.RESUME, wire.CANCEL})
"""Messages of which the payload may be anything, also no JSON."""
