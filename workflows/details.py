"""Table of the progress of a run, which the Temporal UI shows as the current details of the run."""

import json
from collections.abc import Mapping
from typing import Any

from dagwright.core.boundary.limits import MAX_DETAIL_LINES
from dagwright.core.boundary.wire import SIGNAL_FEEDBACK
from dagwright.core.model.requests import ANYONE
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.times import format_time
from dagwright.core.scheduler.map_items import count_ended_items
from dagwright.core.scheduler.run_state import counts_of
from dagwright.core.text import one_line
from dagwright.features.run_scheduler import RunScheduler

_SYMBOLS = {
    NodeStatus.COMPLETED: "✅",
    NodeStatus.FAILED: "❌",
    NodeStatus.RUNNING: "▶️",
    NodeStatus.READY: "⏳",
    NodeStatus.WAITING: "✋",
    NodeStatus.SKIPPED: "⏭️",
    NodeStatus.BLOCKED: "⛔",
    NodeStatus.CANCELLED: "🚫",
}
_MAX_REQUESTS = 20
_EXAMPLES: Mapping[str, Any] = {
    "APPROVAL": {"approved": True, "reason": ""},
    "SELECTION": {"selected": ["one of the options"]},
    "GUIDANCE": {"text": "…"},
    "CLARIFICATION": {"text": "…"},
    "INFORMATION": {"data": {}},
}
"""Type of a request -> example of an answer (docs/guides/questions.md)."""
_IMPORTANT_STATUSES = (NodeStatus.FAILED, NodeStatus.WAITING, NodeStatus.RUNNING, NodeStatus.READY)


def render_details(scheduler: RunScheduler) -> str:
    """Return Markdown: counts by state, and a table of at most 50 nodes.

    In a larger run, failed, waiting, running and ready nodes come first.
    """
    records = [record for _, record in scheduler.state.visible_nodes()]
    counts = counts_of(scheduler.plan, scheduler.records)
    summary = ", ".join(f"{count} {status.value}" for status, count in sorted(counts.items()))
    lines = [
        f"**{scheduler.status().value}**: {summary}",
        "",
        *_request_lines(scheduler),
        "| node | state | tool | note |",
        "|---|---|---|---|",
    ]
    for number in _select_displayed_numbers(records):
        node, record = scheduler.plan.nodes[number], records[number]
        label = _escape(node.title or node.id)
        state = f"{_SYMBOLS.get(record.status, '')} {record.status.value}".strip()
        lines.append(f"| {label} | {state} | {_escape(node.tool)} | {_escape(_note(record))} |")
    if counts.total() > MAX_DETAIL_LINES:
        lines.append(f"\n{counts.total() - min(len(records), MAX_DETAIL_LINES)} more nodes are not shown.")
    return "\n".join(lines)


def _request_lines(scheduler: RunScheduler) -> list[str]:
    """Return a table of the open requests, and how to answer a request in the Temporal UI."""
    requests = list(scheduler.features.feedback.requests.open.values())
    if not requests:
        return []
    lines = ["| request | type | assignee | question | until |", "|---|---|---|---|---|"]
    for request in requests[:_MAX_REQUESTS]:
        until = format_time(request.deadline_at) or ""
        cells = [request.id, request.type, request.assignee or ANYONE, request.prompt, until]
        lines.append(f"| {' | '.join(_escape(cell) for cell in cells)} |")
    if len(requests) > _MAX_REQUESTS:
        lines.append(f"\n{len(requests) - _MAX_REQUESTS} more requests are not shown.")
    request = requests[0]
    answer = {"request_id": request.id, "answer": _EXAMPLES.get(request.type, {}), "by": "your name"}
    example = json.dumps(answer, ensure_ascii=False).replace("`", "'")
    return [*lines, "", f"To answer, send the signal `{SIGNAL_FEEDBACK}`, such as `{example}`", ""]


def _select_displayed_numbers(records: list[Record]) -> list[int]:
    if len(records) <= MAX_DETAIL_LINES:
        return list(range(len(records)))
    displayed_numbers: list[int] = []
    for status in _IMPORTANT_STATUSES:
        for number, record in enumerate(records):
            if record.status is status:
                displayed_numbers.append(number)
                if len(displayed_numbers) == MAX_DETAIL_LINES:
                    return displayed_numbers
    other_numbers = (number for number, record in enumerate(records) if record.status not in _IMPORTANT_STATUSES)
    displayed_numbers += [
        number for number, _ in zip(other_numbers, range(MAX_DETAIL_LINES - len(displayed_numbers)), strict=False)
    ]
    return displayed_numbers


def _note(record: Record) -> str:
    if record.items:
        done_count, total = count_ended_items(record)
        return f"{done_count:,} of {total:,} items"
    if record.error:
        prefix = "failed, continued with the value of on_error: " if record.status is NodeStatus.COMPLETED else ""
        return f"{prefix}{record.error.message}"[:120]
    return f"attempt {record.attempts}" if record.attempts > 1 else record.reason or ""


def _escape(text: str) -> str:
    return one_line(str(text)).replace("|", "\\|")[:120]
