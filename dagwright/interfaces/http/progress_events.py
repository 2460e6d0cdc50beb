"""Progress events of a run, for clients that show them.

    {"type": "node.completed", "node_id": "sum", "run_id": "run-1", "data": {"title": …, "tool": …, "attempts": 1}}

Types are those of `dagwright.events`: `node.STATE`, `run.STATE` and `feedback.requested`. A moment is a state of
the run that the gateway has read. For a node that starts and ends between two moments, the start and the end are sent;
other intermediate states are omitted. The events of one moment are sent together, so that a dropped connection cannot
split them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.client.events import run_event_type
from dagwright.client.run_follower import RequestKey, RunMoment, request_key
from dagwright.core.model.states import NodeStatus, Record, RunStatus
from dagwright.core.model.times import format_time
from dagwright.history.moment_facts import TaskState, has_started
from dagwright.interfaces.http.feedback_calls import RequestDocument
from dagwright.interfaces.http.request_fields import StreamProgress
from dagwright.interfaces.http.stream_cursor import CHECKSUM_DIGITS, checksum
from dagwright.protocol.compact_documents import compact_value

Event = Mapping[str, Any]
_STATUSES_WITH_RESULT = (NodeStatus.COMPLETED, NodeStatus.FAILED)


class ProgressEventBuilder:
    """Turns the moments of one run into progress events.

    Args:
        run_id: ID of the run.
        detail: how much the events contain; with `StreamProgress.CONTENT`, there are no events.
        checksums: checksums of the run status and open requests that the client has received.
    """

    def __init__(self, run_id: str, detail: StreamProgress, *, checksums: str = "") -> None:
        self._run_id = run_id
        self._detail = detail
        self.started_tasks: set[str] = set()
        """Nodes and items whose start was sent."""
        self._checksums = checksums[:CHECKSUM_DIGITS], checksums[CHECKSUM_DIGITS:]
        self._sent_requests: set[RequestKey] = set()

    @property
    def checksums(self) -> str:
        """Checksums of the run status and open requests that were sent; empty for none."""
        return "".join(self._checksums)

    def events(self, moment: RunMoment) -> Iterator[Event]:
        """Yield the events of a moment: the status `running` first, then changes of nodes, then any other status.

        The status of the last moment is omitted, because `status_events` yields this status after the answer.
        """
        if self._detail is StreamProgress.CONTENT:
            return
        is_running = moment.view.status == RunStatus.RUNNING
        if is_running and not moment.has_ended_or_waits:
            yield from self.status_events(moment)
        for task_id in moment.changed_ids:
            yield from self._task_events(moment, task_id)
        if not (is_running or moment.has_ended_or_waits):
            yield from self.status_events(moment)

    def status_events(self, moment: RunMoment) -> Iterator[Event]:
        """Yield the open requests and the status of the run if they have changed."""
        if self._detail is StreamProgress.CONTENT:
            return
        status, open_requests = str(moment.view.status), {request_key(request) for request in moment.requests}
        previous_checksums, self._checksums = self._checksums, (checksum([status]), checksum([sorted(open_requests)]))
        if self._checksums[1] != previous_checksums[1]:
            for request in moment.requests:
                if request_key(request) not in self._sent_requests:
                    yield self._request_event(request)
        if self._checksums[0] != previous_checksums[0]:
            data = {"status": status, "title": moment.view.title}
            yield self._event(run_event_type(status), None, data)
        self._sent_requests |= open_requests

    def _task_events(self, moment: RunMoment, task_id: str) -> Iterator[Event]:
        scheduler = moment.view.scheduler
        record = scheduler.record_of(task_id) if scheduler is not None else None
        state = moment.states.get(task_id)
        if scheduler is None or record is None or state is None:
            return
        node = scheduler.state.node_of(task_id)
        node_fields = {"title": node.title, "tool": node.tool}
        if task_id not in self.started_tasks and has_started(state, record):
            self.started_tasks.add(task_id)
            yield self._event("node.started", task_id, {**node_fields, "at": format_time(record.started_at)})
        if state.status not in (NodeStatus.RUNNING, NodeStatus.PENDING):
            yield self._event(
                f"node.{state.status.value}", task_id, {**node_fields, **self._details(task_id, state, record)}
            )

    def _details(self, task_id: str, state: TaskState, record: Record) -> dict[str, Any]:
        details: dict[str, Any] = {"attempts": state.attempts, "at": None}
        if state.reason:
            details["reason"] = state.reason
        # The scheduler may be newer than this moment: then the fields of its record belong to a later moment.
        if record.status is not state.status:
            return details
        details["at"] = format_time(record.ended_at)
        if record.error is not None:
            details["error"] = {"code": record.error.code, "message": record.error.message}
        if self._detail is StreamProgress.FULL and record.status in _STATUSES_WITH_RESULT:
            details["result"] = compact_value(record.result, ref=f"node:{task_id}")
        return details

    def _request_event(self, request: RequestDocument) -> Event:
        return self._event("feedback.requested", request.get("node_id"), {"request": dict(request)})

    def _event(self, event_type: str, node_id: str | None, data: Mapping[str, Any]) -> Event:
        return {"type": event_type, "node_id": node_id, "run_id": self._run_id, "data": dict(data)}
