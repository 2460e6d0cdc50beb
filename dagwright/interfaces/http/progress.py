"""Progress events of a run, for clients that show them. Pure.

    {"type": "node_completed", "node_id": "sum", "run_id": "run-1", "data": {"title": …, "tool": …, "attempts": 1}}

Types: `node_` and the new state of a node, `run_` and the state of the run, `human_feedback_requested` and `cancelled`.
A node that starts and ends between two moments gets both events; other intermediate states are omitted. The events of
one moment are sent together, so that a dropped connection cannot split them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.client.following import RequestKey, RunMoment, request_key
from dagwright.core.model.states import NodeStatus, Record, RunStatus
from dagwright.core.model.times import format_time
from dagwright.history.reader import TaskState, has_begun
from dagwright.interfaces.http.bodies import Shown
from dagwright.interfaces.http.feedback_calls import Request
from dagwright.interfaces.http.places import CHECK_DIGITS, check_word
from dagwright.protocol.documents import compact_value

Event = Mapping[str, Any]
_RESULTS = (NodeStatus.COMPLETED, NodeStatus.FAILED)


class Progress:
    """Turns the moments of one run into progress events.

    Args:
        run: ID of the run.
        shown: detail of the events; there are none for `content`.
        standing: checksums of the run status and open requests that the client has received.
    """

    def __init__(self, run: str, shown: Shown, *, standing: str = "") -> None:
        self._run = run
        self._shown = shown
        self.started: set[str] = set()
        """Nodes and items whose start was sent."""
        self._checks = standing[:CHECK_DIGITS], standing[CHECK_DIGITS:]
        self._asked: set[RequestKey] = set()

    @property
    def standing(self) -> str:
        """Checksums of the run status and open requests that were sent; empty for none."""
        return "".join(self._checks)

    def events(self, moment: RunMoment) -> Iterator[Event]:
        """Yield the events of a moment: the run continues, changes of nodes, or the run waits.

        Nodes are in the order of their last change, or in the order of the plan if they changed between two moments.
        The status of the last moment is left to `of_run`, since the answer comes before it.
        """
        if self._shown is Shown.CONTENT:
            return
        goes_on = moment.view.status == RunStatus.RUNNING
        if goes_on and not moment.is_last:
            yield from self.of_run(moment)
        for task_id in moment.changed:
            yield from self._of_task(moment, task_id)
        if not (goes_on or moment.is_last):
            yield from self.of_run(moment)

    def of_run(self, moment: RunMoment) -> Iterator[Event]:
        """Yield the open requests and the status of the run, as far as they changed."""
        if self._shown is Shown.CONTENT:
            return
        status, asked = str(moment.view.status), {request_key(request) for request in moment.requests}
        before, self._checks = self._checks, (check_word([status]), check_word([sorted(asked)]))
        if self._checks[1] != before[1]:
            for request in moment.requests:
                if request_key(request) not in self._asked:
                    yield self._asks(request)
        if self._checks[0] != before[0]:
            kind = "cancelled" if status == RunStatus.CANCELLED else f"run_{status}"
            yield self._event(kind, None, {"title": moment.view.title})
        self._asked |= asked

    def _of_task(self, moment: RunMoment, task_id: str) -> Iterator[Event]:
        scheduler = moment.view.scheduler
        record = scheduler.record_of(task_id) if scheduler is not None else None
        state = moment.states.get(task_id)
        if scheduler is None or record is None or state is None:
            return
        node = scheduler.state.node_of(task_id)
        facts = {"title": node.title, "tool": node.tool}
        if task_id not in self.started and has_begun(state, record):
            self.started.add(task_id)
            yield self._event("node_started", task_id, {**facts, "at": format_time(record.started_at)})
        if state.status not in (NodeStatus.RUNNING, NodeStatus.PENDING):
            yield self._event(f"node_{state.status.value}", task_id, {**facts, **self._told(task_id, state, record)})

    def _told(self, task_id: str, state: TaskState, record: Record) -> dict[str, Any]:
        told: dict[str, Any] = {"attempts": state.attempts, "at": None}
        if state.reason:
            told["reason"] = state.reason
        # The scheduler may be ahead of this moment; the other fields then belong to a later one.
        if record.status is not state.status:
            return told
        told["at"] = format_time(record.ended_at)
        if record.error is not None:
            told["error"] = {"code": record.error.code, "message": record.error.message}
        if self._shown is Shown.FULL and record.status in _RESULTS:
            told["result"] = compact_value(record.result, ref=f"node:{task_id}")
        return told

    def _asks(self, request: Request) -> Event:
        return self._event("human_feedback_requested", request.get("node_id"), {"request": dict(request)})

    def _event(self, kind: str, node: str | None, data: Mapping[str, Any]) -> Event:
        return {"type": kind, "node_id": node, "run_id": self._run, "data": dict(data)}
