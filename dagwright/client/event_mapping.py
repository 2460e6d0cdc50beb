"""Map the states of a run to events, without I/O.

Durable events depend only on the history of the run. Between two positions of the history, every process reports the
same durable events in the same order, so a cursor can count them. Live events, such as `node.waiting`, depend on
when the run was read. A client that resumes the stream may receive live events again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dagwright.client.events import (
    AnyRunEvent,
    ClosingType,
    FeedbackClosed,
    FeedbackRequested,
    NodeEvent,
    NodeEventType,
    RunStatusEvent,
    run_event_type,
)
from dagwright.client.feedback.feedback_request import Answerable, request_of
from dagwright.core.errors import problem_from_error
from dagwright.core.model.requests import Closing, Request, task_id_without_number
from dagwright.core.model.states import NodeStatus, RunStatus, TaskRef
from dagwright.core.model.times import cut_to_ms, utc_datetime
from dagwright.history.moment_facts import MomentFacts, TaskFacts, TaskState, facts_of, started_tasks, states_of

if TYPE_CHECKING:
    from dagwright.history.run_view import HistorySnapshot, RunView

_STATUSES_THAT_MAY_WAIT = (NodeStatus.RUNNING, NodeStatus.READY)
_NOT_STARTED_STATUSES = (NodeStatus.PENDING, NodeStatus.READY)


@dataclass(slots=True)
class ReportedState:
    """State of a run as the client has received it.

    Args:
        task_states: node or item -> its state, as live and durable events have reported it.
        recorded_states: node or item -> its status and attempts in the history, as durable events have reported them.
        started_ids: nodes and items whose start was reported.
        request_ids: IDs of requests whose opening was reported.
        closed_request_ids: IDs of requests whose end was reported.
    """

    task_states: dict[str, TaskState] = field(default_factory=dict)
    recorded_states: dict[str, tuple[NodeStatus, int]] = field(default_factory=dict)
    started_ids: set[str] = field(default_factory=set)
    request_ids: set[str] = field(default_factory=set)
    closed_request_ids: set[str] = field(default_factory=set)
    paused_at: float | None = None
    status: RunStatus | None = None
    is_started: bool = False
    has_ended: bool = False


def reported_state_at(snapshot: "HistorySnapshot", *, may_have_waited: bool = False) -> ReportedState:
    """Return the state that a client has received after all events up to a position in the history.

    Args:
        may_have_waited: the client may have received `node.waiting` for any running or ready node.
    """
    if snapshot.cursor.event == 0 and snapshot.cursor.execution == 1:
        return ReportedState()
    states = states_of(snapshot.scheduler)
    recorded_states = {task: (state.status, state.attempts) for task, state in states.items()}
    if may_have_waited:
        waiting_status = NodeStatus.WAITING
        states = {
            task: state._replace(status=waiting_status) if state.status in _STATUSES_THAT_MAY_WAIT else state
            for task, state in states.items()
        }
    facts = facts_of(snapshot.scheduler, ())
    pause = facts.paused
    return ReportedState(
        task_states=states,
        recorded_states=recorded_states,
        started_ids={
            task for task in started_tasks(snapshot.scheduler) if recorded_states[task][0] not in _NOT_STARTED_STATUSES
        },
        request_ids={*facts.open_requests, *facts.closings},
        closed_request_ids={*facts.closings},
        paused_at=None if pause is None else pause.at,
        is_started=True,
        has_ended=snapshot.is_closed,
    )


class EventMoment(NamedTuple):
    """State of a run at one moment.

    Args:
        changed_states: nodes and items whose state has changed -> their state.
        sub_plan_requests: documents of the open requests of sub-plans.
    """

    view: "RunView"
    changed_states: Mapping[str, TaskState]
    facts: MomentFacts
    sub_plan_requests: Sequence[Mapping[str, Any]] = ()


def moment_at(view: "RunView", snapshot: "HistorySnapshot") -> EventMoment:
    """Return the moment at a position in the history.

    Args:
        view: the run at this position or later.
    """
    states = states_of(snapshot.scheduler)
    return EventMoment(view, states, facts_of(snapshot.scheduler, states))


_STATE_END_EVENTS = frozenset({"node.resumed", "run.running", "feedback.closed"})


class MomentEvents(NamedTuple):
    """Events of one moment, in the order in which they are reported; a cursor counts only the `durable` events.

    Args:
        before: live events about states that have ended: `node.resumed`, `run.running` and `feedback.closed`.
        after: the other live events, such as `node.waiting`; they follow the start of their node and run.
    """

    before: Sequence[AnyRunEvent]
    durable: Sequence[AnyRunEvent]
    after: Sequence[AnyRunEvent]


class EventMapper:
    """Maps the moments of one run to events.

    Args:
        run: run that receives the answers if the client answers a request of an event; `None` if the client cannot
            answer.
        reported_state: state that the client has received; updated by the mapper.
    """

    def __init__(self, run_id: str, run: Answerable | None, reported_state: ReportedState) -> None:
        self._run_id = run_id
        self._run = run
        self._reported_state = reported_state
        self._child_requests: dict[str, str | None] = {}
        """Reported open requests of sub-plans: ID -> node."""

    def events(self, moment: EventMoment, *, is_closed: bool) -> MomentEvents:
        """Return the events of a moment.

        Args:
            is_closed: whether the run has ended at this moment.
        """
        timed_events = [
            *self._start_event(moment),
            *self._node_events(moment),
            *self._request_events(moment),
            *self._pause_event(moment),
        ]
        # The end of a node precedes the start of its dependents.
        sorted_events = sorted(timed_events, key=lambda timed_event: timed_event.key)
        durable = [timed_event.event for timed_event in sorted_events if timed_event.is_durable]
        live = [timed_event.event for timed_event in timed_events if not timed_event.is_durable]
        if is_closed and not self._reported_state.has_ended:
            self._reported_state.has_ended = True
            durable.append(self._end_event(moment.view))
        elif not is_closed:
            live += [*self._child_request_events(moment), *self._status_event(moment.view)]
        before = [event for event in live if event.type in _STATE_END_EVENTS]
        return MomentEvents(before, durable, [event for event in live if event.type not in _STATE_END_EVENTS])

    # The run.

    def _start_event(self, moment: EventMoment) -> "Iterator[_TimedEvent]":
        if self._reported_state.is_started:
            return
        self._reported_state.is_started = True
        view = moment.view
        at = None if view.started_at is None else utc_datetime(view.started_at)
        started = RunStatusEvent(
            type="run.started", run_id=self._run_id, at=at, status=RunStatus.RUNNING, title=view.title
        )
        yield _TimedEvent(_SortKey(-inf, 0), started)

    def _pause_event(self, moment: EventMoment) -> "Iterator[_TimedEvent]":
        pause = moment.facts.paused
        if (None if pause is None else pause.at) == self._reported_state.paused_at:
            return
        if pause is not None:
            self._reported_state.paused_at = pause.at
            event = RunStatusEvent(
                type="run.paused",
                run_id=self._run_id,
                at=utc_datetime(pause.at),
                status=RunStatus.RUNNING,
                reason=pause.reason,
                by=pause.by,
            )
            yield _TimedEvent(_SortKey(cut_to_ms(pause.at), 2), event)
        else:
            self._reported_state.paused_at = None
            yield _TimedEvent(
                _SortKey(inf, 0), RunStatusEvent(type="run.resumed", run_id=self._run_id, status=RunStatus.RUNNING)
            )

    def _status_event(self, view: "RunView") -> Iterator[AnyRunEvent]:
        status, previous_status = RunStatus(view.status), self._reported_state.status
        self._reported_state.status = status
        if status is RunStatus.WAITING and previous_status is not status:
            yield RunStatusEvent(type="run.waiting", run_id=self._run_id, status=status, reason=view.reason)
        elif status is RunStatus.RUNNING and previous_status is RunStatus.WAITING:
            yield RunStatusEvent(type="run.running", run_id=self._run_id, status=status)

    def _end_event(self, view: "RunView") -> AnyRunEvent:
        status = RunStatus(view.status)
        return RunStatusEvent(
            type=run_event_type(status),
            run_id=self._run_id,
            at=None if view.ended_at is None else utc_datetime(view.ended_at),
            status=status,
            title=view.title,
            error=problem_from_error(view.document_with_refs()["error"]),
        )

    # Nodes.

    def _node_events(self, moment: EventMoment) -> "Iterator[_TimedEvent]":
        for task, state in moment.changed_states.items():
            yield from self._events_of_task(task, state, moment.facts.tasks[task])

    def _events_of_task(self, task: str, state: TaskState, facts: TaskFacts) -> "Iterator[_TimedEvent]":
        reported_state, recorded_state = self._reported_state, (facts.history_status, state.attempts)
        previous_state, reported_state.task_states[task] = reported_state.task_states.get(task), state
        previous_recorded_state = reported_state.recorded_states.get(task)
        reported_state.recorded_states[task] = recorded_state
        if facts.history_status in _NOT_STARTED_STATUSES:
            reported_state.started_ids.discard(task)
        else:
            is_restart = (
                previous_recorded_state is not None
                and previous_recorded_state[0].is_final
                and (facts.history_status is NodeStatus.RUNNING or state.attempts > previous_recorded_state[1])
            )
            if is_restart or (task not in reported_state.started_ids and _has_started(state, facts)):
                reported_state.started_ids.add(task)
                yield _timed_start(self._node_event("started", task, state, facts), facts)
            elif state.status is NodeStatus.RUNNING and _is_waiting(previous_state):
                yield _timed_live(self._node_event("resumed", task, state, facts))
        if facts.history_status.is_final and previous_recorded_state != recorded_state:
            yield _timed_end(self._node_event(facts.history_status.value, task, state, facts), facts)
        elif _is_waiting(state) and state != previous_state:
            yield _timed_live(self._node_event("waiting", task, state, facts))

    def _node_event(self, kind: str, task: str, state: TaskState, facts: TaskFacts) -> NodeEvent:
        is_start = kind == "started"
        at = facts.started_at if is_start else facts.ended_at if facts.history_status.is_final else None
        return NodeEvent(
            type=cast("NodeEventType", f"node.{kind}"),
            run_id=self._run_id,
            at=None if at is None else utc_datetime(at),
            node_id=task,
            status=NodeStatus.RUNNING if is_start else state.status,
            attempts=state.attempts,
            title=facts.title,
            tool=facts.tool or None,
            reason=None if is_start else state.reason,
            error=facts.error if kind == "failed" else None,
        )

    # Requests.

    def _request_events(self, moment: EventMoment) -> "Iterator[_TimedEvent]":
        reported_state, facts = self._reported_state, moment.facts
        for request in facts.open_requests.values():
            if request.id not in reported_state.request_ids:
                reported_state.request_ids.add(request.id)
                yield self._requested_event(request, moment)
        for request_id, closing in facts.closings.items():
            if request_id in reported_state.closed_request_ids:
                continue
            reported_state.closed_request_ids.add(request_id)
            opened_request = moment.view.opened_requests.get(request_id)
            if request_id not in reported_state.request_ids and opened_request is not None:
                yield self._requested_event(opened_request, moment)
            reported_state.request_ids.add(request_id)
            yield self._closed_event(request_id, closing, moment)

    def _requested_event(self, request: Request, moment: EventMoment) -> "_TimedEvent":
        event = FeedbackRequested(
            type="feedback.requested",
            run_id=self._run_id,
            at=utc_datetime(request.opened_at),
            node_id=request.node_id,
            request=request_of(request.to_json(self._run_id), self._run),
            is_open=_is_open(request.id, moment),
        )
        return _TimedEvent(_key_of_request(request.id, moment.view, at=request.opened_at, rank=3), event)

    def _closed_event(self, request_id: str, closing: Closing, moment: EventMoment) -> "_TimedEvent":
        opened_request = moment.view.opened_requests.get(request_id)
        task = None if _ref_of(request_id, moment.view) is None else task_id_without_number(request_id)
        event = FeedbackClosed(
            type=cast("ClosingType", f"feedback.{closing.outcome}"),
            run_id=self._run_id,
            at=utc_datetime(closing.at),
            node_id=task if opened_request is None else opened_request.node_id,
            request_id=request_id,
            answer=closing.answer or None,
            by=closing.by or None,
            note=closing.note or None,
        )
        # A default answer or a policy may close a request when it opens; then the closing event follows the opening
        # event. Every other closing event precedes the other events with the same time.
        rank = 4 if closing.at == closing.requested_at else -1
        return _TimedEvent(_key_of_request(request_id, moment.view, at=closing.at, rank=rank), event)

    def _child_request_events(self, moment: EventMoment) -> Iterator[AnyRunEvent]:
        child_requests = {
            str(request["request_id"]): request
            for request in moment.sub_plan_requests
            if request["request_id"] not in moment.facts.open_requests
        }
        for request_id, node_id in [*self._child_requests.items()]:
            if request_id not in child_requests:
                del self._child_requests[request_id]
                yield FeedbackClosed(
                    type="feedback.closed", run_id=self._run_id, node_id=node_id, request_id=request_id
                )
        for request_id, document in child_requests.items():
            if request_id not in self._child_requests:
                request = request_of(document, self._run)
                self._child_requests[request_id] = request.node_id
                yield FeedbackRequested(
                    type="feedback.requested",
                    run_id=self._run_id,
                    at=request.opened_at,
                    node_id=request.node_id,
                    request=request,
                )


class _SortKey(NamedTuple):
    """Sort key of an event within a moment.

    Args:
        rank: order of events with the same time.
        number: number of the node in the plan.
        item: number of the item. A map starts before its items and ends after them.
    """

    at: float
    rank: int
    number: int = -1
    item: float = -1
    is_end: bool = False
    request: str = ""


class _TimedEvent(NamedTuple):
    """An event with its sort key within a moment."""

    key: _SortKey
    event: AnyRunEvent
    is_durable: bool = True


def _is_waiting(state: TaskState | None) -> bool:
    return state is not None and state.status is NodeStatus.WAITING


def _timed_start(event: NodeEvent, facts: TaskFacts) -> _TimedEvent:
    # The start of a node with zero duration precedes its end.
    is_instant = facts.started_at == facts.ended_at
    at = inf if facts.started_at is None else facts.started_at
    item = -1 if facts.item is None else facts.item
    return _TimedEvent(_SortKey(at, 0 if is_instant else 1, facts.number, item), event)


def _timed_end(event: NodeEvent, facts: TaskFacts) -> _TimedEvent:
    at = inf if facts.ended_at is None else facts.ended_at
    item = inf if facts.item is None else facts.item
    return _TimedEvent(_SortKey(at, 0, facts.number, item, is_end=True), event)


def _timed_live(event: NodeEvent) -> _TimedEvent:
    return _TimedEvent(_SortKey(inf, 0), event, is_durable=False)


def _is_open(request_id: str, moment: EventMoment) -> bool:
    view = moment.view
    if view.is_closed or view.scheduler is None or request_id in moment.facts.closings:
        return False
    return request_id in view.scheduler.features.feedback.requests.open


def _ref_of(request_id: str, view: "RunView") -> TaskRef | None:
    """Return the node or item of a request; `None` for a request of the run itself."""
    if view.scheduler is None or request_id.endswith("#0"):
        return None
    return view.scheduler.state.find(task_id_without_number(request_id))


def _key_of_request(request_id: str, view: "RunView", *, at: float, rank: int) -> _SortKey:
    ref = _ref_of(request_id, view)
    if ref is None:
        return _SortKey(cut_to_ms(at), rank, request=request_id)
    item = -1 if ref.item is None else ref.item
    return _SortKey(cut_to_ms(at), rank, ref.node, item, request=request_id)


def _has_started(state: TaskState, facts: TaskFacts) -> bool:
    return facts.history_status is NodeStatus.RUNNING or state.attempts > 0 or facts.started_at is not None
