"""What people ask of the nodes of a running plan, decoded from plain JSON (docs/internals/messages.md).

Whoever sends it may be the Temporal UI or a program in another language: every field is checked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import CANCEL_GRACE_S
from dagwright.core.model.actor import By
from dagwright.core.model.answers import size_problem
from dagwright.core.model.requests import Through
from dagwright.features.commands.node_commands import AppendWritten, CancelNode, RetryNode, SetResult
from dagwright.features.commands.sent_tools import tools_from_json
from dagwright.features.commands.steering import Act, Written
from dagwright.protocol.actor import by_from_json
from dagwright.protocol.messages import MessageInvalid

MESSAGE_BYTES = 256 * 1024
"""Arguments, a result or nodes that somebody sends: they stand in the history, and in the state of the run."""
_ID_BYTES = 2_000


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
    if name == wire.APPEND_NODES:
        return _append(message, by)
    node = message.get("node")
    if not isinstance(node, str) or not 0 < len(node.encode()) <= _ID_BYTES:
        raise MessageInvalid("'node' must be the id of a node or item, such as sum or sum[north]")
    act, said = _ACTS[name](node, message, by)
    return Steered(message, node, act, said)


def _cancel(node: str, message: Mapping[str, Any], by: By) -> tuple[Act, str]:
    branch = message.get("branch")
    if branch is not None and not isinstance(branch, bool):
        raise MessageInvalid("'branch' must be true or false")
    said = f"{node!r} is cancelled; what runs of it is told to stop"
    return CancelNode(node, branch or False, CANCEL_GRACE_S, by), said


def _retry(node: str, message: Mapping[str, Any], by: By) -> tuple[Act, str]:
    arguments = message.get("arguments")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise MessageInvalid("'arguments' must be an object")
    told = " with these arguments, as a new node" if arguments is not None else ""
    return RetryNode(node, arguments, by), f"{node!r} is tried again{told}"


def _set_result(node: str, message: Mapping[str, Any], by: By) -> tuple[Act, str]:
    if "result" not in message:
        raise MessageInvalid("there is no 'result'")
    return SetResult(node, message["result"], by), f"{node!r} has the result that you gave"


def _append(message: Mapping[str, Any], by: By) -> Steered:
    nodes, tools = message.get("nodes"), message.get("tools")
    if not isinstance(nodes, list) or not nodes:
        raise MessageInvalid("'nodes' must be a list of nodes as in a plan")
    try:
        declared = tools_from_json(tools)
    except ValueError as error:
        raise MessageInvalid(str(error)) from None
    said = f"{len(nodes)} nodes were added" if len(nodes) > 1 else "one node was added"
    return Steered(message, None, AppendWritten(nodes, declared, by), said)


_ACTS: Mapping[str, Callable[[str, Mapping[str, Any], By], tuple[Act, str]]] = {
    wire.CANCEL_NODE: _cancel,
    wire.RETRY_NODE: _retry,
    wire.SET_RESULT: _set_result,
}
_EXAMPLES = {
    wire.CANCEL_NODE: '{"node": "sum", "branch": true, "by": "ann"}',
    wire.RETRY_NODE: '{"node": "sum", "by": "ann"}',
    wire.SET_RESULT: '{"node": "sum", "result": 5, "by": "ann"}',
    wire.APPEND_NODES: '{"nodes": [{"id": "more", "tool": "sum_csv"}], "by": "ann"}',
}
