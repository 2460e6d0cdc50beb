"""Plain lines for where there is no terminal: one for each change of state."""

import time
from collections.abc import Callable

from dagwright.cli.output import one_line
from dagwright.cli.progress import format_duration
from dagwright.feed import RunView
from dagwright.plan.states import NodeStatus, Record

_SILENT = (NodeStatus.PENDING, NodeStatus.READY)
"""States in which nothing has happened to a node yet."""


class LineWriter:
    """Writes what changed since it was last shown a run.

    Args:
        write: takes one line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._seen: dict[str, tuple[NodeStatus, int]] = {}
        self._told: set[str] = set()

    def show(self, view: RunView) -> None:
        """Writes a line for every node and item whose state or attempt is another than before."""
        if view.scheduler is not None:
            for node, record in zip(view.scheduler.plan.nodes, view.scheduler.records, strict=True):
                for item in record.items:
                    self._show(view, f"{node.id}[{item.key}]", item.record)
                self._show(view, node.id, record)
        for note in view.notes:
            message = str(note.get("message", ""))
            # The one that counts says the same with every try.
            key = str(note["code"]) if note.get("code") == "workflow_task_failing" else message
            if key not in self._told:
                self._told.add(key)
                self._line(time.time(), "note", one_line(message))

    def _show(self, view: RunView, task_id: str, record: Record) -> None:
        pending = view.pending.get(task_id)
        before = self._seen.get(task_id, (NodeStatus.PENDING, 1))
        # A call that has just ended is known to the server no more, so what was seen before counts too.
        attempt = max(record.attempts, pending.attempt if pending else 1, before[1])
        if before == (record.status, attempt) or record.status in _SILENT:
            return
        self._seen[task_id] = (record.status, attempt)
        if record.status is NodeStatus.RUNNING:
            why = f": {one_line(pending.last_failure)}" if pending and pending.last_failure else ""
            again = f" (attempt {attempt}{why})" if attempt > 1 else ""
            self._line(record.started_at, "running", f"{one_line(task_id)}{again}")
        elif record.status is not before[0]:
            self._line(record.ended_at, record.status.value, f"{one_line(task_id)}{_ending(record)}")

    def _line(self, at: float | None, word: str, text: str) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(at or time.time()))
        self._write(f"{clock}  {word:<9}  {text}")


def _ending(record: Record) -> str:
    words = []
    if record.started_at is not None and record.ended_at is not None:
        words.append(format_duration(max(0.0, record.ended_at - record.started_at)))
    if record.attempts > 1:
        words.append(f"attempt {record.attempts}")
    told = f"  {', '.join(words)}" if words else ""
    if record.error is not None:
        told += f"  {one_line(record.error.message)}"
    elif record.reason:
        told += f"  {one_line(record.reason)}"
    return told
