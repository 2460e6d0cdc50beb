"""Words for people about nodes: what they are, why they failed, when something was.

Documents keep the exact texts and times in UTC; these are for eyes. Pure.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.times import seconds_of
from dagwright.core.model.worker_results import status_shown
from dagwright.core.scheduler.run_end import counts_of
from dagwright.features.run_scheduler import RunScheduler
from dagwright.interfaces.cli.output import one_line

_TIMEOUTS = {
    "activity Heartbeat timeout": "its worker died or hung",
    "activity StartToClose timeout": "it took over its timeout",
    "activity ScheduleToStart timeout": "no worker took it in time",
    "activity ScheduleToClose timeout": "it was not done in time",
}
"""What the server says of an attempt that it gave up -> what that means."""


_KINDS = {"human": "a person"}
"""Kind of a node that calls no tool -> what it is called."""


def counted(count: int, word: str) -> str:
    """Returns how many of something there are: `1 level`, `1,200 levels`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def failure_words(message: str) -> str:
    """Returns the message of a failed attempt; the server's own texts of a timeout in words."""
    return _TIMEOUTS.get(message, message)


def counts_shown(scheduler: RunScheduler) -> Counter[NodeStatus]:
    """Returns how many nodes people are shown in each state."""
    counts = counts_of(scheduler.plan, scheduler.records)
    for _, record in scheduler.state.shown() if counts[NodeStatus.SUPERSEDED] else ():
        counts.subtract([record.status])
        counts.update([status_shown(record)])
    return +counts


def node_status(node: Mapping[str, Any]) -> NodeStatus:
    """Returns the state in which people are shown the node of a document, as `status_shown`."""
    error = node["error"]
    read = NodeError(str(error["code"]), "") if error else None
    return status_shown(Record(NodeStatus(node["status"]), error=read, reason=node.get("reason")))


def record_words(record: Record) -> str:
    """Returns why a node is where it is: its error, what it waits for, or nothing."""
    if record.error is not None:
        return error_words(record.error.message, record.status)
    return record.reason or _worker_words(record.message, is_partial=record.partial)


def node_words(node: Mapping[str, Any]) -> str:
    """Returns the same of a node's document."""
    if node["error"]:
        return error_words(str(node["error"].get("message", "")), NodeStatus(node["status"]))
    return node.get("reason") or _worker_words(node.get("message"), is_partial=node["partial"]) or item_words(node)


def _worker_words(message: str | None, *, is_partial: bool) -> str:
    return ": ".join(part for part in ("partial" if is_partial else "", message or "") if part)


def item_words(node: Mapping[str, Any]) -> str:
    """Returns what became of the items of a node whose items are counted: `1,297 completed, 3 failed`."""
    return ", ".join(f"{count:,} {status}" for status, count in node.get("items", {}).items())


def failed_items_words(failure: Mapping[str, Any]) -> str:
    """Returns how many items of one chunk of a large map failed, in which run, and why the first did."""
    message = (failure["error"] or {}).get("message", "it did not say why")
    first = f", the first {failure['first']}" if failure["first"] else ""
    return f"{failure['failed']:,} failed in the run {failure['run_id']}{first}: {message}"


def is_excused(node: Mapping[str, Any]) -> bool:
    """Tells whether a node failed and completed all the same, with the value that its plan gives for that."""
    return node["status"] == "completed" and bool(node["error"])


def error_words(message: str, status: NodeStatus) -> str:
    """Returns the message of a node's error; a completed node has one if its plan gave a value to go on with."""
    words = failure_words(message)
    return f"failed, went on with the given value: {words}" if status is NodeStatus.COMPLETED else words


def what_words(tool: str, title: str | None, *, kind: str = "plan") -> str:
    """Returns what a node is: the tool it calls, or its kind, and what for."""
    name = tool or _KINDS.get(kind, kind)
    return f"{name} · {title}" if title else name


def local_time(seconds: float) -> str:
    """Returns seconds since the epoch as a time of day, by the clock on the wall."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def local_date(seconds: float) -> str:
    """Returns seconds since the epoch as a date and a time of day, by the clock on the wall, with its zone."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))} {zone_at(seconds)}"


def zone_at(seconds: float) -> str:
    """Returns the zone of the clock on the wall: `UTC`, or `+01:00`."""
    offset = time.strftime("%z", time.localtime(seconds))
    return "UTC" if offset.strip("+-0") == "" else f"{offset[:3]}:{offset[3:]}"


def near_time(seconds: float) -> str:
    """Returns seconds since the epoch as a time of day, with the date if it is not today."""
    is_today = time.localtime(seconds)[:3] == time.localtime()[:3]
    return f"{local_time(seconds)} {zone_at(seconds)}" if is_today else local_date(seconds)


def step_text(step: Mapping[str, Any]) -> str:
    """Returns what was done to a node by hand: `set result by ann at 2026-03-04 17:02:11: the file was empty`."""
    by = f" by {step['by']}" if step.get("by") else ""
    reason = f": {step['reason']}" if step.get("reason") else ""
    return f"{str(step['command']).replace('_', ' ')}{by} at {local_date(seconds_of(step['at']))}{reason}"


_BY_HAND = {"set_result": "its result was given", "add_nodes": "added to the plan"}
"""What is done by hand -> how it is told beside the state of a node."""


def hand_words(node: Mapping[str, Any]) -> str:
    """Returns what of a node was made by hand, and by whom: `added to the plan by ann, its result was given by bob`."""
    steps = {step["command"]: step for step in node["lineage"].get("overrides", ()) if step["command"] in _BY_HAND}
    return ", ".join(f"{_BY_HAND[what]} by {step.get('by') or 'hand'}" for what, step in steps.items())


def closing_words(answer: Mapping[str, Any]) -> str:
    """Format the end of a request: `approved by ann at 2026-03-04 17:02:11 through update (as agreed)`.

    If the request named an assignee, the assignee and the escalations follow.
    """
    what, by = answer["answer"] or answer["outcome"], answer["by"]
    note = f" ({answer['note']})" if answer["note"] else ""
    who = f" by {by}" if by else ""
    asked = f"; {requested_words(answer)}" if "escalations" in answer else ""
    if answer["through"] == "deadline" and answer["outcome"] == "answered":
        at = local_date(seconds_of(answer["at"]))
        return f"{what} at {at}: no answer, the default at the deadline{note}{asked}"
    given = f" with {json.dumps(answer['arguments'], ensure_ascii=False)}" if "arguments" in answer else ""
    return f"{what}{who} at {local_date(seconds_of(answer['at']))} through {answer['through']}{note}{given}{asked}"


def requested_words(answer: Mapping[str, Any]) -> str:
    """Format the assignees of a request, with times: `requested from ann at …, escalated to boss at …`."""
    first = f"requested from {answer['requested_from'] or 'anyone'} at {_at(answer['requested_at'])}"
    return ", ".join([first, *(f"escalated to {each['to']} at {_at(each['at'])}" for each in answer["escalations"])])


def _at(written: str) -> str:
    return local_date(seconds_of(written))


def usage_words(usage: Mapping[str, Any]) -> str:
    """Returns what was used of models, in words; a cost of which some is not known is told as `at least`."""
    calls, tokens = usage["calls"], usage["tokens"]
    words = f"{counted(tokens, 'token')} in {counted(calls, 'model call')}"
    unknown = usage["unpriced_calls"] + usage["uncounted_calls"]
    if unknown >= calls:
        return words
    return f"{words}, cost {'at least ' if unknown else ''}{usage['money']}"


def seen_words(lineage: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a node has called and looked at, by what it is."""
    calls = [f"{call['tool']} ({call['node_id']}, {call['status']})" for call in lineage.get("tool_calls", ())]
    words = {
        "model calls": ", ".join(lineage.get("model_calls", ())),
        "tool calls": ", ".join(calls),
        "files": ", ".join(lineage.get("files", ())),
        "addresses": ", ".join(lineage.get("urls", ())),
    }
    omitted = lineage.get("omitted")
    return words | ({"not told": f"{omitted:,} more of these"} if omitted else {})


def _left_out_of_cost(usage: Mapping[str, Any]) -> list[str]:
    """Returns how many calls are not in the cost of a run, and how to repair that."""
    unpriced, uncounted = usage["unpriced_calls"], usage["uncounted_calls"]
    repair = "as no price table has its model; give it a price in the file that DAGWRIGHT_PRICES names"
    told = [f"  not in the cost: {unpriced:,} of the calls, {repair}"] if unpriced else []
    if uncounted:
        told.append(f"  not in the cost: {uncounted:,} of the calls, as the service did not tell its tokens")
    return told


def usage_lines(document: Mapping[str, Any]) -> list[str]:
    """Returns what a run has used of models, in all and by agent; nothing if it used none."""
    usage = document["usage"]
    if not usage:
        return []
    agents = [f"  agent {one_line(name)}: {usage_words(used)}" for name, used in usage.get("agents", {}).items()]
    return [f"used: {usage_words(usage)}", *agents, *_left_out_of_cost(usage)]
