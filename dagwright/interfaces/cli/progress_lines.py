"""Progress without a terminal: one line for each change of a run."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.model.requests import Closing
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.times import format_elapsed_time, parse_time
from dagwright.core.model.worker_results import displayed_status
from dagwright.core.scheduler.map_items import listed_items
from dagwright.history.pending_activities import PendingCall
from dagwright.interfaces.cli.node_text import closing_text, explain_failure, local_time, node_tool_text, record_text
from dagwright.interfaces.cli.output import one_line
from dagwright.interfaces.cli.progress_tree import LOST, LOST_WITHOUT_RETRY, lost_text
from dagwright.interfaces.cli.request_text import Request, answer_command, option_lines, request_line
from dagwright.interfaces.cli.round_text import new_round_lines, round_times_of, rounds_of

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

_NOT_STARTED_STATES = (NodeStatus.PENDING, NodeStatus.READY)
"""States of a node that has not started; no line is written for these states."""

_LABEL_RANKS = {"running": 1, "asked": 2, "option": 2, "answer": 2, "escalated": 2, "answered": 2}
"""Label of a line -> its rank among lines with the same time, lowest first; the default is 0."""


class LineWriter:
    """Writer of one line for each change of a run.

    Args:
        write: writes a line.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._lines: list[tuple[float, int, str]] = []
        self._written_states: dict[str, tuple[NodeStatus, int]] = {}
        self._written_notes: set[str] = set()
        self._written_lost_calls: set[tuple[str, int]] = set()
        self._written_requests: set[str] = set()
        self._written_rounds: set[str] = set()
        self._written_escalations: set[tuple[str, int]] = set()
        self._written_answers: set[str] = set()

    def show(self, view: "RunView", requests: Sequence[Request] = ()) -> None:
        """Write a line for each change since the previous call, oldest first.

        A change is a new state or attempt of a node or item, a round, a note, a request or an answer.

        Args:
            requests: open requests; a line with the answer command is written for each new request.
        """
        if view.scheduler is not None:
            for node, record in view.scheduler.state.visible_nodes():
                for item in listed_items(record):
                    self._add_task_lines(view, f"{node.id}[{item.key}]", item.record)
                self._add_task_lines(
                    view, node.id, record, tool_text=node_tool_text(node.tool, node.title, kind=node.kind)
                )
        times = round_times_of(view)
        for label, text in new_round_lines(rounds_of(view), self._written_rounds):
            self._add_line(times.get(label), label, text)
        for note in view.notes:
            message = str(note.get("message", ""))
            # The message of this note has a count that changes with every attempt.
            key = str(note["code"]) if note.get("code") == "workflow_task_failing" else message
            if key not in self._written_notes:
                self._written_notes.add(key)
                self._add_line(time.time(), "note", one_line(message))

        for request in requests:
            if request["request_id"] not in self._written_requests:
                self._written_requests.add(request["request_id"])
                at = parse_time(request["opened_at"])
                self._add_line(at, "asked", request_line(request))
                for line in option_lines(request):
                    self._add_line(at, "option", line)
                self._add_line(at, "answer", answer_command(request))
            self._add_escalations(request["request_id"], request.get("escalations") or ())
        if view.scheduler is not None:
            self._add_answers(view.scheduler.features.feedback.requests.closed)
        # Changes that arrive together are sorted by their time.
        lines, self._lines = sorted(self._lines, key=lambda line: line[:2]), []
        for _, _, line in lines:
            self._write(line)

    def _add_escalations(self, request_id: str, escalations: Sequence[Mapping[str, Any]]) -> None:
        """Add a line for each escalation that has no line yet."""
        for number, escalation in enumerate(escalations):
            if (request_id, number) not in self._written_escalations:
                self._written_escalations.add((request_id, number))
                message = f"{one_line(request_id)} from {escalation['from'] or 'anyone'} to {escalation['to']}"
                self._add_line(parse_time(escalation["at"]), "escalated", one_line(message))

    def _add_answers(self, closings: Mapping[str, Closing]) -> None:
        """Add a line for each answered or expired request that has an assignee."""
        for request_id, closing in closings.items():
            has_assignee = closing.requested_from is not None or closing.escalations
            if has_assignee and closing.outcome != "closed" and request_id not in self._written_answers:
                self._written_answers.add(request_id)
                document = closing.to_json()
                self._add_escalations(request_id, document["escalations"])
                message = closing_text(document)
                label = "answered" if closing.outcome == "answered" else "expired"
                self._add_line(closing.at, label, one_line(f"{request_id}: {message}", limit=300))

    def _add_task_lines(self, view: "RunView", task_id: str, record: Record, *, tool_text: str = "") -> None:
        pending_call = view.pending_calls.get(task_id)
        previous = self._written_states.get(task_id, (NodeStatus.PENDING, 1))
        # A call that has just ended is no longer pending on the server, so its last known attempt is used.
        attempt = max(record.attempts, pending_call.attempt if pending_call else 1, previous[1])
        status = displayed_status(record)
        if previous != (status, attempt) and status not in _NOT_STARTED_STATES:
            self._add_state_line(task_id, record, pending_call, attempt=attempt, tool_text=tool_text)
        if record.status is NodeStatus.RUNNING and pending_call is not None:
            self._add_lost_call_line(task_id, pending_call)

    def _add_state_line(
        self, task_id: str, record: Record, pending_call: PendingCall | None, *, attempt: int, tool_text: str
    ) -> None:
        previous, status = self._written_states.get(task_id), displayed_status(record)
        tool_suffix = "" if previous or not tool_text else f"  {one_line(tool_text, limit=120)}"
        self._written_states[task_id] = (status, attempt)
        if record.status is NodeStatus.RUNNING:
            failure_text = (
                f": {one_line(explain_failure(pending_call.last_failure))}"
                if pending_call and pending_call.last_failure
                else ""
            )
            attempt_text = f" (attempt {attempt}{failure_text})" if attempt > 1 else ""
            # The start is known for the first attempt only; a later attempt has just started.
            self._add_line(
                record.started_at if attempt == 1 else None,
                "running",
                f"{one_line(task_id)}{attempt_text}{tool_suffix}",
            )
        elif previous is None or status is not previous[0]:
            # The record has the time when the node ended, not when it was superseded.
            is_newly_superseded = status is NodeStatus.SUPERSEDED and previous is not None
            at = None if is_newly_superseded else record.ended_at
            self._add_line(at, status.value, f"{one_line(task_id)}{tool_suffix}{_end_text(record)}")

    def _add_lost_call_line(self, task_id: str, call: PendingCall) -> None:
        if call.state not in (LOST, LOST_WITHOUT_RETRY) or (task_id, call.attempt) in self._written_lost_calls:
            return
        self._written_lost_calls.add((task_id, call.attempt))
        now = time.time()
        text = f"was running when its worker died; {lost_text(call, now=now)}"
        self._add_line(now, "waiting", f"{one_line(task_id)} {text}")

    def _add_line(self, at: float | None, label: str, text: str) -> None:
        at = at or time.time()
        self._lines.append((at, _LABEL_RANKS.get(label, 0), f"{local_time(at)}  {label:<9}  {text}"))


def _end_text(record: Record) -> str:
    facts = []
    if record.started_at is not None and record.ended_at is not None:
        facts.append(format_elapsed_time(max(0.0, record.ended_at - record.started_at)))
    if record.attempts > 1:
        facts.append(f"attempt {record.attempts}")
    prefix = f"  {', '.join(facts)}" if facts else ""
    reason = one_line(record_text(record))
    return f"{prefix}  {reason}" if reason else prefix
