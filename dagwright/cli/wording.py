"""Words for people about nodes: what they are, why they failed, when something was.

Documents keep the exact texts and times in UTC; these are for eyes. Pure.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dagwright.plan.states import NodeStatus, Record

_TIMEOUTS = {
    "activity Heartbeat timeout": "its worker died or hung",
    "activity StartToClose timeout": "it took over its timeout",
    "activity ScheduleToStart timeout": "no worker took it in time",
    "activity ScheduleToClose timeout": "it was not done in time",
}
"""What the server says of an attempt that it gave up -> what that means."""


def failure_words(message: str) -> str:
    """Returns the message of a failed attempt; the server's own texts of a timeout in words."""
    return _TIMEOUTS.get(message, message)


def record_words(record: Record) -> str:
    """Returns why a node is where it is: its error, what it waits for, or nothing."""
    if record.error is not None:
        return error_words(record.error.message, record.status)
    return record.reason or ("partial" if record.partial else "")


def node_words(node: Mapping[str, Any]) -> str:
    """Returns the same of a node's document."""
    if node["error"]:
        return error_words(str(node["error"].get("message", "")), NodeStatus(node["status"]))
    return node.get("reason") or ("partial" if node["partial"] else "") or item_words(node)


def item_words(node: Mapping[str, Any]) -> str:
    """Returns what became of the items of a node whose items are counted: `1,297 completed, 3 failed`."""
    return ", ".join(f"{count:,} {status}" for status, count in node.get("items", {}).items())


def is_excused(node: Mapping[str, Any]) -> bool:
    """Tells whether a node failed and completed all the same, with the value that its plan gives for that."""
    return node["status"] == "completed" and bool(node["error"])


def error_words(message: str, status: NodeStatus) -> str:
    """Returns the message of a node's error; a completed node has one if its plan gave a value to go on with."""
    words = failure_words(message)
    return f"failed, went on with the given value: {words}" if status is NodeStatus.COMPLETED else words


def what_words(tool: str, title: str | None) -> str:
    """Returns what a node is: the tool it calls, and what for."""
    kind = tool or "plan"
    return f"{kind} · {title}" if title else kind


def local_time(seconds: float) -> str:
    """Returns seconds since the epoch as a time of day, by the clock on the wall."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def local_date(seconds: float) -> str:
    """Returns seconds since the epoch as a date and a time of day, by the clock on the wall."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def seconds_of(written: str) -> float:
    """Returns the seconds since the epoch of a time as documents have it."""
    return datetime.fromisoformat(written).timestamp()
