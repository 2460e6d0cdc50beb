"""The live table in a run's current details: how the Temporal UI alone tells how the run is doing."""

from dagwright.contracts.limits import DETAIL_LINES
from dagwright.plan.chunks import items_done
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import NodeStatus, Record

_MARKS = {
    NodeStatus.COMPLETED: "✅",
    NodeStatus.FAILED: "❌",
    NodeStatus.RUNNING: "▶️",
    NodeStatus.READY: "⏳",
    NodeStatus.WAITING: "✋",
    NodeStatus.SKIPPED: "⏭️",
    NodeStatus.BLOCKED: "⛔",
    NodeStatus.CANCELLED: "🚫",
}
_URGENT = (NodeStatus.FAILED, NodeStatus.WAITING, NodeStatus.RUNNING, NodeStatus.READY)


def render_details(scheduler: Scheduler) -> str:
    """Returns Markdown: counts by state, and a table of at most 50 nodes, those that matter most first."""
    records = [record for _, record in scheduler.shown()]
    counts = scheduler.counts()
    summary = ", ".join(f"{count} {status.value}" for status, count in sorted(counts.items()))
    lines = [
        f"**{scheduler.status().value}**: {summary}",
        "",
        "| node | state | tool | note |",
        "|---|---|---|---|",
    ]
    for number in _shown(records):
        node, record = scheduler.plan.nodes[number], records[number]
        label = _escape(node.title or node.id)
        state = f"{_MARKS.get(record.status, '')} {record.status.value}".strip()
        lines.append(f"| {label} | {state} | {_escape(node.tool)} | {_escape(_note(record))} |")
    if counts.total() > DETAIL_LINES:
        lines.append(f"\n{counts.total() - min(len(records), DETAIL_LINES)} more nodes are not shown.")
    return "\n".join(lines)


def _shown(records: list[Record]) -> list[int]:
    if len(records) <= DETAIL_LINES:
        return list(range(len(records)))
    shown: list[int] = []
    for status in _URGENT:
        for number, record in enumerate(records):
            if record.status is status:
                shown.append(number)
                if len(shown) == DETAIL_LINES:
                    return shown
    rest = (number for number, record in enumerate(records) if record.status not in _URGENT)
    shown += [number for number, _ in zip(rest, range(DETAIL_LINES - len(shown)), strict=False)]
    return shown


def _note(record: Record) -> str:
    if record.items:
        done, total = items_done(record)
        return f"{done:,} of {total:,} items"
    if record.error:
        went_on = "failed, went on with the given value: " if record.status is NodeStatus.COMPLETED else ""
        return f"{went_on}{record.error.message}"[:120]
    return f"attempt {record.attempts}" if record.attempts > 1 else record.reason or ""


def _escape(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")[:120]
