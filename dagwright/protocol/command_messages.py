"""Decoding of the commands that people send to a run as signals and updates (docs/reference/messages.md)."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_args

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import CANCEL_GRACE_S
from dagwright.core.model.actor import Actor
from dagwright.core.model.answers import size_problem
from dagwright.core.model.budget_limits import limit_text, limits_from_json
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.requests import CLIENT_CHANNELS, Feedback, MayAnswer, MessageSource
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.features.commands.node_commands import AddUnparsedNodes, CancelNode, RetryNode, SetResult
from dagwright.features.commands.steering import (
    MAX_COMMAND_BYTES,
    Cancel,
    CommandMessage,
    Pause,
    Resume,
    RunCommand,
    SetLimits,
    SetPolicy,
)
from dagwright.features.plan_edits.sent_tools import tools_from_json
from dagwright.protocol.messages import MessageInvalid, deadline_from_json, max_in_flight_from_json

MAX_ACTOR_NAME_CHARACTERS = 200
"""Maximum length of the name of the person who sends a command or an answer."""
COMMAND_ID = "command_id"
"""Field of a message that contains the ID of the command.

A client whose update is not answered in time sends the same message as a signal. The server may deliver both; the run
applies the command once.
"""
MAX_REASON_CHARACTERS = 4_000
"""Maximum length of a reason or note. The state of the run contains both."""


def actor_name(message: Mapping[str, Any]) -> str | None:
    """Return the name of the sender.

    Raises:
        MessageInvalid: the name is invalid.
    """
    return _text(message, "by", limit=MAX_ACTOR_NAME_CHARACTERS)


def reason_or_note(message: Mapping[str, Any], name: str) -> str | None:
    """Return the text of a field that has a reason or a note.

    Raises:
        MessageInvalid: the field is not a string, or too long.
    """
    return _text(message, name, limit=MAX_REASON_CHARACTERS)


def actor_from_json(message: Mapping[str, Any], *, source: MessageSource) -> Actor:
    """Return the actor of a command, with the reason.

    Raises:
        MessageInvalid: a field is not a string, or too long.
    """
    return Actor(actor_name(message), reason_or_note(message, "reason"), source)


def actor_from_any_message(message: Any, *, source: MessageSource) -> Actor:
    """Return the actor of a command that is never rejected: invalid fields are omitted, long fields are cut."""
    if not isinstance(message, Mapping):
        return Actor(None, message[:MAX_REASON_CHARACTERS] if isinstance(message, str) else None, source)
    reason, by = message.get("reason"), message.get("by")
    return Actor(
        str(by)[:MAX_ACTOR_NAME_CHARACTERS] if by is not None else None,
        str(reason)[:MAX_REASON_CHARACTERS] if reason is not None else None,
        source,
    )


def _text(message: Mapping[str, Any], name: str, *, limit: int) -> str | None:
    value = message.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > limit):
        raise MessageInvalid(f"{name!r} must be a string of at most {limit:,} characters")
    return value or None


_MAX_PATH_BYTES = 2_000
"""Maximum size of the path to a request in a nested sub-plan: several ids of 200 bytes."""


def feedback_from_json(message: Any, *, source: MessageSource) -> Feedback:
    """Decode an answer.

    Args:
        source: channel that carried the message, a signal or an update.

    Raises:
        MessageInvalid: the message is invalid.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid(
            'an answer must be an object such as {"request_id": "check", "answer": {"approved": true}}'
        )
    request_id = message.get("request_id")
    if not isinstance(request_id, str) or not 0 < len(request_id.encode(errors="replace")) <= _MAX_PATH_BYTES:
        raise MessageInvalid("'request_id' must be the id of a request, such as check")
    if "answer" not in message:
        raise MessageInvalid("'answer' is missing")
    return Feedback(
        request_id=request_id,
        answer=message["answer"],
        by=actor_name(message) or "",
        note=reason_or_note(message, "note") or "",
        source=_source_in(message, source),
        may_answer=_answer_scope_in(message),
    )


def _source_in(message: Mapping[str, Any], transport: MessageSource) -> MessageSource:
    """Return the channel that the sender declares; the transport if the sender declares no channel."""
    declared_channel = message.get("source")
    if declared_channel is None:
        return transport
    for channel in CLIENT_CHANNELS:
        if declared_channel == channel:
            return channel
    raise MessageInvalid(f"'source' must be {' or '.join(CLIENT_CHANNELS)}, or absent")


def _answer_scope_in(message: Mapping[str, Any]) -> MayAnswer:
    """Return which requests the sender may answer. A gateway with API keys sets this field."""
    may_answer = message.get("may_answer", "all")
    for choice in get_args(MayAnswer):
        if may_answer == choice:
            return cast("MayAnswer", choice)
    raise MessageInvalid(f"'may_answer' must be one of {', '.join(get_args(MayAnswer))}, or absent")


def feedback_to_json(feedback: Feedback, *, request_id: str) -> dict[str, Any]:
    """Encode an answer that is forwarded to a sub-plan.

    Args:
        request_id: ID of the request in the sub-plan.
    """
    document = {"request_id": request_id, "answer": feedback.answer, "by": feedback.by, "note": feedback.note}
    document |= {"source": feedback.source} if feedback.source in CLIENT_CHANNELS else {}
    return document | ({} if feedback.may_answer == "all" else {"may_answer": feedback.may_answer})


def policy_change_from_json(message: Any) -> tuple[Policy, str]:
    """Return the policy and the sender of a message `{"policy", "by"}`.

    Raises:
        MessageInvalid: the message is invalid.
    """
    if not isinstance(message, Mapping) or "policy" not in message:
        raise MessageInvalid('the message must be an object such as {"policy": {"otherwise": "run"}, "by": "ann"}')
    try:
        policy = policy_from_json(message["policy"])
    except ValueError as error:
        raise MessageInvalid(f"policy: {error}") from None
    return policy, actor_name(message) or ""


def node_command_from_json(name: str, message: Any, *, source: MessageSource) -> CommandMessage:
    """Decode a command to a node, or a command that adds nodes.

    Args:
        name: name of the signal or update.
        source: channel that carried the message, a signal or an update.

    Raises:
        MessageInvalid: the message differs from docs/reference/messages.md.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid(f"{name} must be an object such as {_EXAMPLES[name]}")
    if (problem := size_problem(dict(message), MAX_COMMAND_BYTES, value_name="the message")) is not None:
        raise MessageInvalid(problem)
    actor = actor_from_json(message, source=source)
    if name == wire.ADD_NODES:
        return _add_nodes(message, actor)
    node_id = message.get("node_id")
    if not isinstance(node_id, str) or not 0 < len(node_id.encode()) <= _MAX_PATH_BYTES:
        raise MessageInvalid("'node_id' must be the id of a node or item, such as sum or sum[north]")
    command, confirmation = _NODE_COMMANDS[name](node_id, message, actor)
    return CommandMessage(message, node_id, command, confirmation)


def _cancel_node(node_id: str, message: Mapping[str, Any], actor: Actor) -> tuple[RunCommand, str]:
    branch = message.get("branch")
    if branch is not None and not isinstance(branch, bool):
        raise MessageInvalid("'branch' must be true or false")
    confirmation = f"{node_id!r} is cancelled; its running tasks are being stopped"
    return CancelNode(node_id, branch or False, CANCEL_GRACE_S, actor), confirmation


def _retry_node(node_id: str, message: Mapping[str, Any], actor: Actor) -> tuple[RunCommand, str]:
    arguments = message.get("arguments")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise MessageInvalid("'arguments' must be an object")
    arguments_note = " with these arguments, as a new node" if arguments is not None else ""
    return RetryNode(node_id, arguments, actor), f"{node_id!r} is retried{arguments_note}"


def _set_result(node_id: str, message: Mapping[str, Any], actor: Actor) -> tuple[RunCommand, str]:
    if "result" not in message:
        raise MessageInvalid("'result' is missing")
    return SetResult(node_id, message["result"], actor), f"the result of {node_id!r} is set"


def _add_nodes(message: Mapping[str, Any], actor: Actor) -> CommandMessage:
    nodes, tools = message.get("nodes"), message.get("tools")
    if not isinstance(nodes, list) or not nodes:
        raise MessageInvalid("'nodes' must be a list of nodes as in a plan")
    try:
        declarations = tools_from_json(tools)
    except ValueError as error:
        raise MessageInvalid(str(error)) from None
    confirmation = f"{len(nodes)} nodes were added" if len(nodes) > 1 else "one node was added"
    return CommandMessage(message, None, AddUnparsedNodes(nodes, declarations, actor), confirmation)


_NODE_COMMANDS: Mapping[str, Callable[[str, Mapping[str, Any], Actor], tuple[RunCommand, str]]] = {
    wire.CANCEL_NODE: _cancel_node,
    wire.RETRY_NODE: _retry_node,
    wire.SET_RESULT: _set_result,
}
_EXAMPLES = {
    wire.CANCEL_NODE: '{"node_id": "sum", "branch": true, "by": "ann"}',
    wire.RETRY_NODE: '{"node_id": "sum", "by": "ann"}',
    wire.SET_RESULT: '{"node_id": "sum", "result": 5, "by": "ann"}',
    wire.ADD_NODES: '{"nodes": [{"id": "more", "tool": "sum_csv"}], "by": "ann"}',
}


_T = TypeVar("_T")


def _pause(message: Any, *, source: MessageSource) -> CommandMessage:
    actor = actor_from_any_message(message, source=source)
    confirmation = "the run is paused; running nodes finish"
    return CommandMessage(
        _child_message(actor), None, Pause(actor), confirmation, note=actor.describe("paused"), is_broadcast=True
    )


def _resume(message: Any, *, source: MessageSource) -> CommandMessage:
    actor = actor_from_any_message(message, source=source)
    return CommandMessage(
        _child_message(actor),
        None,
        Resume(actor),
        "the run continues",
        note=actor.describe("resumed"),
        is_broadcast=True,
    )


def _cancel_run(message: Any, *, source: MessageSource) -> CommandMessage:
    # Not broadcast: sub-plans are cancelled with the other running tasks.
    return cancel_message(actor_from_any_message(message, source=source))


def cancel_message(actor: Actor) -> CommandMessage:
    """Return the command that cancels the run."""
    return CommandMessage({}, None, Cancel(actor), "the run is being stopped", note=actor.describe("cancelled"))


def _set_policy(message: Any, *, source: MessageSource) -> CommandMessage:
    policy, name = policy_change_from_json(message)
    actor = Actor(name or None, None, source)
    return CommandMessage(
        {}, None, SetPolicy(policy, actor), "the policy is changed", note=actor.describe("policy changed")
    )


def _set_limits(message: Any, *, source: MessageSource) -> CommandMessage:
    if not isinstance(message, Mapping) or not {"max_parallel", "deadline", "budget"} & message.keys():
        raise MessageInvalid(
            'set_limits must be an object such as {"max_parallel": 8, "deadline": "4h", "budget": {"tokens": 90000}, '
            '"by": "ann"}'
        )
    actor = actor_from_json(message, source=source)
    max_parallel = deadline_s = None
    changes = []
    if "max_parallel" in message:
        max_parallel = _read_limit(message, "max_parallel", max_in_flight_from_json, default=MAX_IN_FLIGHT)
        changes.append(f"max_parallel {max_parallel}")
    if "deadline" in message:
        deadline_s = _read_limit(message, "deadline", deadline_from_json, default=math.inf)
        changes.append("no deadline" if math.isinf(deadline_s) else f"deadline {message['deadline']}")
    budget = None
    if "budget" in message:
        try:
            budget = limits_from_json(message["budget"], allow_null=True)
        except ValueError as error:
            raise MessageInvalid(f"'budget' is invalid: {error}") from None
        for kind, limit in budget.items():
            changes.append(
                f"no limit of {kind}" if limit is None else f"a limit of {limit_text(kind, limit)} for {kind}"
            )
    text = " and ".join(changes)
    command = SetLimits(max_parallel, deadline_s, budget, actor)
    return CommandMessage({}, None, command, f"the run now has {text}", note=actor.describe(f"{text} set"))


def _read_limit(message: Mapping[str, Any], name: str, parse: Callable[[Any], _T], *, default: _T) -> _T:
    """Return a limit; null means the default."""
    try:
        return default if message[name] is None else parse(message[name])
    except ValueError as error:
        raise MessageInvalid(f"{name!r} {error}") from None


def _child_message(actor: Actor) -> Mapping[str, Any]:
    """Return the message that pauses or resumes the sub-plans of a run."""
    return {"reason": actor.reason, "by": actor.name}


RUN_MESSAGES: Mapping[str, Callable[..., CommandMessage]] = {
    wire.PAUSE: _pause,
    wire.RESUME: _resume,
    wire.CANCEL: _cancel_run,
    wire.SET_POLICY: _set_policy,
    wire.SET_LIMITS: _set_limits,
}
"""Name of a command to the run -> function (message, *, source) that decodes the message of the command.

The signal and the update of a command have the name of the command.
"""
ANY_PAYLOAD_COMMANDS = frozenset({wire.PAUSE, wire.RESUME, wire.CANCEL})
"""Commands that accept any payload, even a payload that is not JSON."""
