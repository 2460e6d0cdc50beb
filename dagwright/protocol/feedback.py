"""Answers of people, decoded from plain JSON, and of whom a run says that it waits for them.

Whoever sends them may be the Temporal UI or a program in another language: every field is checked here but the answer
itself, which the request knows best.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.requests import CLIENT_CHANNELS, Feedback, MayAnswer, Through
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.protocol.actor import name_of, words_of
from dagwright.protocol.messages import MessageInvalid

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


def awaited(scheduler: Scheduler) -> list[str]:
    """Returns whom the run waits for, in the order of the alphabet, within what a search attribute may hold."""
    if not scheduler.requests.open:
        return []
    names = sorted({(request.assignee or ANYONE)[:_NAME_CHARACTERS] for request in scheduler.requests.open.values()})
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
