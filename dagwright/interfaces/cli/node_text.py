"""Text about nodes: tool, errors, times.

The text is for users; documents have the exact messages and UTC times. The functions are pure.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.model.times import parse_time
from dagwright.core.model.worker_results import displayed_status
from dagwright.core.scheduler.run_state import counts_of
from dagwright.core.text import format_count
from dagwright.interfaces.cli.output import one_line

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_TIMEOUT_TEXTS = {
    "activity Heartbeat timeout": "its worker died or hung",
    "activity StartToClose timeout": "it exceeded its timeout",
    "activity ScheduleToStart timeout": "no worker started it in time",
    "activity ScheduleToClose timeout": "it did not finish in time",
}
"""Timeout message of the server -> text for users."""


_KIND_NAMES = {"human": "a person"}
"""Kind of a node without a tool -> its name."""


def explain_failure(message: str) -> str:
    """Return the message of a failed attempt, with timeouts of the server explained."""
    return _TIMEOUT_TEXTS.get(message, message)


def displayed_counts(scheduler: "RunScheduler") -> Counter[NodeStatus]:
    """Return the number of nodes per displayed state."""
    counts = counts_of(scheduler.plan, scheduler.records)
    for _, record in scheduler.state.visible_nodes() if counts[NodeStatus.SUPERSEDED] else ():
        counts.subtract([record.status])
        counts.update([displayed_status(record)])
    return +counts


def node_status(node: Mapping[str, Any]) -> NodeStatus:
    """Return the displayed state of a node in a document, as `displayed_status` does for a record."""
    error = node["error"]
    node_error = NodeError(str(error["code"]), "") if error else None
    return displayed_status(Record(NodeStatus(node["status"]), error=node_error, reason=node.get("reason")))


def record_text(record: Record) -> str:
    """Return the error of a node, its reason to wait or its message; may be empty."""
    if record.error is not None:
        return displayed_error(record.error.message, record.status)
    return record.reason or _message_text(record.message, is_partial=record.partial)


def node_text(node: Mapping[str, Any]) -> str:
    """Return the error in the document of a node, or else its reason to wait, its message or its item counts."""
    if node["error"]:
        return displayed_error(str(node["error"].get("message", "")), NodeStatus(node["status"]))
    return node.get("reason") or _message_text(node.get("message"), is_partial=node["partial"]) or item_text(node)


def _message_text(message: str | None, *, is_partial: bool) -> str:
    return ": ".join(part for part in ("partial" if is_partial else "", message or "") if part)


def item_text(node: Mapping[str, Any]) -> str:
    """Return the counts of a map's items: `1,297 completed, 3 failed`."""
    return ", ".join(f"{count:,} {status}" for status, count in node.get("items", {}).items())


def failed_items_text(failure: Mapping[str, Any]) -> str:
    """Describe the failed items of a batch of a large map: their number, the run of the batch and the first error."""
    message = (failure["error"] or {}).get("message", "without an error message")
    first_item = f", the first {failure['first']}" if failure["first"] else ""
    return f"{failure['failed']:,} failed in the run {failure['run_id']}{first_item}: {message}"


def has_default_result(node: Mapping[str, Any]) -> bool:
    """Return whether the call of a node failed and the node completed with the default value in the plan."""
    return node["status"] == "completed" and bool(node["error"])


def displayed_error(message: str, status: NodeStatus) -> str:
    """Return the error message of a node. A completed node has an error if the plan's default replaced its result."""
    text = explain_failure(message)
    return f"failed, continued with the default: {text}" if status is NodeStatus.COMPLETED else text


def node_tool_text(tool: str, title: str | None, *, kind: str = "plan") -> str:
    """Return the tool or the kind of a node, with the title of the node."""
    name = tool or _KIND_NAMES.get(kind, kind)
    return f"{name} · {title}" if title else name


def local_time(seconds: float) -> str:
    """Format seconds since the epoch as local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def local_date_time(seconds: float) -> str:
    """Format seconds since the epoch as local date and time with the time zone."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))} {zone_at(seconds)}"


def zone_at(seconds: float) -> str:
    """Return the local time zone: `UTC` or `+01:00`."""
    offset = time.strftime("%z", time.localtime(seconds))
    return "UTC" if offset.strip("+-0") == "" else f"{offset[:3]}:{offset[3:]}"


def short_time(seconds: float) -> str:
    """Format seconds since the epoch as local time, with the date if it is not today."""
    is_today = time.localtime(seconds)[:3] == time.localtime()[:3]
    return f"{local_time(seconds)} {zone_at(seconds)}" if is_today else local_date_time(seconds)


def override_text(override: Mapping[str, Any]) -> str:
    """Format a manual change of a node: `set result by ann at 2026-03-04 17:02:11: the file was empty`."""
    author_text = f" by {override['by']}" if override.get("by") else ""
    reason_text = f": {override['reason']}" if override.get("reason") else ""
    command_text = str(override["command"]).replace("_", " ")
    return f"{command_text}{author_text} at {local_date_time(parse_time(override['at']))}{reason_text}"


_MANUAL_CHANGES = {"set_result": "result set manually", "add_nodes": "added to the plan"}
"""Manual change -> its text next to the state of a node."""


def manual_changes_text(node: Mapping[str, Any]) -> str:
    """Return the manual changes of a node: `added to the plan by ann, result set manually by bob`."""
    overrides = node["lineage"].get("overrides", ())
    shown_overrides = {
        override["command"]: override for override in overrides if override["command"] in _MANUAL_CHANGES
    }
    return ", ".join(
        _MANUAL_CHANGES[command] + (f" by {override['by']}" if override.get("by") else "")
        for command, override in shown_overrides.items()
    )


def closing_text(closing: Mapping[str, Any]) -> str:
    """Format the end of a request: `approved by ann at 2026-03-04 17:02:11 through update (as agreed)`.

    If the request named an assignee, the assignee and the escalations follow.
    """
    outcome_text, by = closing["answer"] or closing["outcome"], closing["by"]
    note_text = f" ({closing['note']})" if closing["note"] else ""
    author_text = f" by {by}" if by else ""
    escalation_text = f"; {assignees_text(closing)}" if "escalations" in closing else ""
    if closing["source"] == "deadline" and closing["outcome"] == "answered":
        at = local_date_time(parse_time(closing["at"]))
        return f"{outcome_text} at {at}: no answer, default applied at the deadline{note_text}{escalation_text}"
    arguments_text = f" with {json.dumps(closing['arguments'], ensure_ascii=False)}" if "arguments" in closing else ""
    time_and_channel = f"at {local_date_time(parse_time(closing['at']))} through {closing['source']}"
    return f"{outcome_text}{author_text} {time_and_channel}{note_text}{arguments_text}{escalation_text}"


def assignees_text(closing: Mapping[str, Any]) -> str:
    """Format the assignees of a request, with times: `requested from ann at …, escalated to boss at …`."""
    request_text = (
        f"requested from {closing['requested_from'] or 'anyone'} at {_local_date_time_of(closing['requested_at'])}"
    )
    return ", ".join(
        [
            request_text,
            *(
                f"escalated to {escalation['to']} at {_local_date_time_of(escalation['at'])}"
                for escalation in closing["escalations"]
            ),
        ]
    )


def _local_date_time_of(time_text: str) -> str:
    return local_date_time(parse_time(time_text))


def usage_text(usage: Mapping[str, Any]) -> str:
    """Describe the usage of models. If the cost of some calls is unknown, the text has `at least` before the amount."""
    calls, tokens = usage["calls"], usage["tokens"]
    message = f"{format_count(tokens, 'token')} in {format_count(calls, 'model call')}"
    calls_of_unknown_cost = usage["unpriced_calls"] + usage["uncounted_calls"]
    if calls_of_unknown_cost >= calls:
        return message
    return f"{message}, cost {'at least ' if calls_of_unknown_cost else ''}{usage['money']}"


def lineage_texts(lineage: Mapping[str, Any]) -> dict[str, str]:
    """Return the calls, files and URLs that the result of a node is based on, by kind."""
    calls = [f"{call['tool']} ({call['node_id']}, {call['status']})" for call in lineage.get("tool_calls", ())]
    texts = {
        "model calls": ", ".join(lineage.get("model_calls", ())),
        "tool calls": ", ".join(calls),
        "files": ", ".join(lineage.get("files", ())),
        "addresses": ", ".join(lineage.get("urls", ())),
    }
    omitted_count = lineage.get("omitted")
    return texts | ({"omitted": f"{omitted_count:,} more calls, files and URLs"} if omitted_count else {})


def _unknown_cost_lines(usage: Mapping[str, Any]) -> list[str]:
    """Return a line for each reason why calls have no known cost, with the number of the calls."""
    unpriced_calls, uncounted_calls = usage["unpriced_calls"], usage["uncounted_calls"]
    reason = "because no price table has the model; add a price to the file of DAGWRIGHT_PRICES"
    lines = [f"  not in the cost: {unpriced_calls:,} of the calls, {reason}"] if unpriced_calls else []
    if uncounted_calls:
        lines.append(f"  not in the cost: {uncounted_calls:,} of the calls, because the service did not report tokens")
    return lines


def usage_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the usage of models of a run, in total and by agent; empty if the run used no model."""
    usage = document["usage"]
    if not usage:
        return []
    agent_lines = [
        f"  agent {one_line(name)}: {usage_text(agent_usage)}" for name, agent_usage in usage.get("agents", {}).items()
    ]
    return [f"used: {usage_text(usage)}", *agent_lines, *_unknown_cost_lines(usage)]
