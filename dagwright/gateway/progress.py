"""What happens to the nodes of a run, as events for clients that show it. Pure.

    {"type": "node_completed", "node_id": "sum", "run_id": "run-1", "data": {"title": …, "tool": …, "attempts": 1}}

Types: `node_` and the state that a node has come to, `run_` and the state of the run, `human_feedback_requested` and
`cancelled`. A node that came and went between two looks is told as started all the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.contracts.documents import compact_value
from dagwright.gateway.bodies import Shown
from dagwright.gateway.feedback_calls import Request
from dagwright.gateway.following import Moment, key_of
from dagwright.plan.states import NodeStatus, Record, RunStatus
from dagwright.plan.times import format_time

Event = Mapping[str, Any]
_RESULTS = (NodeStatus.COMPLETED, NodeStatus.FAILED)


class Progress:
    """Turns the moments of one run into events.

    Args:
        run: its id.
        shown: what is told; nothing if that is `content`.
    """

    def __init__(self, run: str, shown: Shown) -> None:
        self._run = run
        self._shown = shown
        self._started: set[str] = set()
        self._asked: set[tuple[str, str]] = set()
        self._status = ""

    def events(self, moment: Moment) -> Iterator[Event]:
        """Yields what happened since the moment before, in the order in which the nodes changed last."""
        if self._shown is Shown.CONTENT:
            return
        for task_id in moment.changed:
            yield from self._of_task(moment, task_id)
        for request in moment.requests:
            if key_of(request) not in self._asked:
                self._asked.add(key_of(request))
                yield self._asks(request)
        if str(moment.view.status) != self._status:
            self._status = str(moment.view.status)
            kind = "cancelled" if self._status == RunStatus.CANCELLED else f"run_{self._status}"
            yield self._event(kind, None, {"title": moment.view.title})

    def _of_task(self, moment: Moment, task_id: str) -> Iterator[Event]:
        scheduler = moment.view.scheduler
        record = scheduler.record_of(task_id) if scheduler is not None else None
        if scheduler is None or record is None:
            return
        node = scheduler.node_of(task_id)
        facts = {"title": node.title, "tool": node.tool}
        was_started = record.started_at is not None or record.status is NodeStatus.RUNNING
        if was_started and task_id not in self._started:
            self._started.add(task_id)
            yield self._event("node_started", task_id, {**facts, "at": format_time(record.started_at)})
        if record.status not in (NodeStatus.RUNNING, NodeStatus.PENDING):
            yield self._event(f"node_{record.status.value}", task_id, {**facts, **self._told(task_id, record)})

    def _told(self, task_id: str, record: Record) -> dict[str, Any]:
        told: dict[str, Any] = {"attempts": record.attempts, "at": format_time(record.ended_at)}
        if record.reason:
            told["reason"] = record.reason
        if record.error is not None:
            told["error"] = {"code": record.error.code, "message": record.error.message}
        if self._shown is Shown.FULL and record.status in _RESULTS:
            told["result"] = compact_value(record.result, ref=f"node:{task_id}")
        return told

    def _asks(self, request: Request) -> Event:
        return self._event("human_feedback_requested", request.get("node"), {"request": dict(request)})

    def _event(self, kind: str, node: str | None, data: Mapping[str, Any]) -> Event:
        return {"type": kind, "node_id": node, "run_id": self._run, "data": dict(data)}
