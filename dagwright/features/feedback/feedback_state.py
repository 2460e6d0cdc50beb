"""State of the feedback of one run: requests, alarms, notifications, and inputs that people provided.

An early answer is an answer that arrives before its request opens.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from dagwright.core.expressions.compute_budget import CHECK_BUDGET, ComputeBudget
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.requests import Closing, Feedback, Request

NotificationKind = Literal["opened", "reminded", "escalated", "expired", "answered", "closed"]

MAX_EARLY_ANSWERS = 1_000
"""Maximum number of stored answers to requests that are not open yet."""
MAX_EARLY_ANSWER_BYTES = 64 * 1024
"""Maximum size of an answer to a request that is not open yet."""
MAX_CHECKPOINT_BYTES = 64 * 1024
"""Maximum size of the checkpoint that a tool saves with a question."""
MAX_RUN_ANSWERS_BYTES = 8 * 1024 * 1024
"""Maximum total size of answers, results, arguments and nodes that people send to a run: half of the size limit of a
snapshot, because they are part of the state of the run."""
SHORT_ANSWER_BYTES = 1024
"""Answers up to this size are accepted even when `MAX_RUN_ANSWERS_BYTES` is reached, so that waiting nodes can end."""
MAX_HINTS_PER_ACTIVATION = 100
"""Maximum number of rejections per activation that search for a similar name. A search takes 1 ms, and thousands of
answers may arrive."""

_RUN_NUMBER = -1
"""Number in JSON for an early answer that belongs to no node."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification about a change of a request.

    Args:
        at: time of the change, in seconds since the epoch.
    """

    kind: NotificationKind
    request: Request
    at: float

    @property
    def key(self) -> tuple[str, str, float]:
        """Identity of the notification within the run."""
        return self.request.id, self.kind, self.at


class RequestRegistry:
    """The requests of one run."""

    def __init__(self) -> None:
        self.open: dict[str, Request] = {}
        """Id -> open request, in the order in which the requests were opened."""
        self.closed: dict[str, Closing] = {}
        self.early_answers: dict[str, Feedback] = {}
        """Answers to requests that are not open yet."""
        self.early_ids_by_node: dict[int | None, list[str]] = {}
        """Number of a node -> ids of the early answers to requests of the node and its items; `None` is the run."""
        self.due_answers: list[Feedback] = []
        """Early answers that add nodes and whose requests have opened. These answers are applied as soon as the current
        update of nodes has ended."""
        self.stored_bytes = 0
        """Size of all answers that were accepted or stored, as JSON."""
        self.request_counts: dict[str, int] = {}
        """Task id -> number of its requests so far."""
        self.opened_count = 0
        """Number of requests opened in this execution of the run."""
        self.notifications: list[Notification] = []
        """Notifications that were not sent yet, in order; the sender removes them."""
        self.rejections: list[str] = []
        """Reasons why early answers were dropped: an answer was invalid or never requested."""
        self.approved_tools: dict[str, str] = {}
        """Tool -> the user who approved all its calls in this run."""
        self.hint_budget = ComputeBudget(MAX_HINTS_PER_ACTIVATION)
        """Number of rejections that may still search for a similar name."""
        self.check_budget = ComputeBudget(CHECK_BUDGET)
        """Budget for checks of nodes that users send. It is separate from the budget of the run's own nodes, so that
        these checks never make a node fail."""
        self.precheck_budget = ComputeBudget(CHECK_BUDGET)
        """Budget for checks before the nodes are in history; nothing in history depends on these checks."""
        self._request_id_by_task: dict[str, str] = {}
        self._alarms: list[tuple[float, int, str]] = []
        self._alarm_count = 0

    def of_task(self, task_id: str) -> Request | None:
        """Return the open request of a node or item."""
        request_id = self._request_id_by_task.get(task_id)
        return None if request_id is None else self.open.get(request_id)

    def add(self, request: Request) -> None:
        """Open a request."""
        self.open[request.id] = request
        self._request_id_by_task[request.task] = request.id
        self.opened_count += 1
        self.request_counts[request.task] = self.request_counts.get(request.task, 0) + 1
        self.schedule_alarm(request)
        self.notifications.append(Notification("opened", request, request.opened_at))

    def close(self, request: Request, closing: Closing) -> None:
        """Close an open request."""
        del self.open[request.id], self._request_id_by_task[request.task]
        closing = replace(
            closing,
            requested_from=request.requested_from,
            requested_at=request.opened_at,
            escalations=request.escalations,
        )
        self.closed[request.id] = closing
        self.notifications.append(Notification(closing.outcome, request, closing.at))

    def drop_open(self) -> None:
        """Drop all open requests: the run has ended and no longer needs answers."""
        self.open.clear()
        self._request_id_by_task.clear()

    def store_early(self, feedback: Feedback, number: int | None) -> None:
        """Store an answer until the node with this number, or one of its items, opens the request. `None` is the number
        for a request that the run opens."""
        self.early_answers[feedback.request_id] = feedback
        self.early_ids_by_node.setdefault(number, []).append(feedback.request_id)

    def move_early(self, base: int, added_count: int) -> None:
        """Renumber early answers after nodes were added: numbers from `base` on move by `added_count`."""
        self.early_ids_by_node = {
            number + added_count if number is not None and number >= base else number: request_ids
            for number, request_ids in self.early_ids_by_node.items()
        }

    def drop_early(self, request_id: str) -> None:
        """Drop an early answer whose request was never opened, and record the rejection."""
        if (feedback := self.early_answers.pop(request_id, None)) is not None:
            sender = feedback.by or "a user without a name"
            self.rejections.append(f"{request_id!r} was never requested: the early answer of {sender} is not needed")

    def take_rejections(self) -> list[str]:
        """Return and clear the rejections of early answers."""
        rejections, self.rejections = self.rejections, []
        return rejections

    # Time.

    def schedule_alarm(self, request: Request) -> None:
        """Schedule the next alarm of an open request."""
        if (at := request.alarm_at) is not None:
            self._alarm_count += 1
            heapq.heappush(self._alarms, (at, self._alarm_count, request.id))

    @property
    def next_alarm(self) -> float | None:
        """Time of the earliest deadline or reminder of all open requests."""
        while self._alarms:
            at, _, request_id = self._alarms[0]
            request = self.open.get(request_id)
            if request is not None and request.alarm_at == at:
                return at
            heapq.heappop(self._alarms)
        return None

    def take_due(self, at: float) -> Request | None:
        """Return the open request with the earliest due alarm, or `None`.

        The caller handles the alarm, then schedules the next alarm of the request.
        """
        alarm = self.next_alarm
        if alarm is None or alarm > at:
            return None
        return self.open[heapq.heappop(self._alarms)[2]]

    # JSON for the next execution of the run.

    def to_json(self) -> dict[str, Any]:
        """Return the registry as JSON, without empty parts."""
        encoded = {
            "open": [_request_to_json(request) for request in self.open.values()],
            "closed": {name: _values_of(closing) for name, closing in self.closed.items()},
            "early": {name: _values_of(feedback) for name, feedback in self.early_answers.items()},
            "early_nodes": [
                [_RUN_NUMBER if number is None else number, request_ids]
                for number, request_ids in self.early_ids_by_node.items()
            ],
            "counts": self.request_counts,
            "notifications": [
                [notification.kind, _request_to_json(notification.request), notification.at]
                for notification in self.notifications
            ],
            "stored_bytes": self.stored_bytes,
            "rejections": self.rejections,
            "remembered": self.approved_tools,
        }
        return {name: part for name, part in encoded.items() if part}


def registry_from_json(encoded: Mapping[str, Any]) -> RequestRegistry:
    """Parse the result of `RequestRegistry.to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the form is invalid.
    """
    registry = RequestRegistry()
    for request in encoded.get("open", ()):
        registry.add(_request_from_json(request))
    registry.closed = {name: Closing(*values) for name, values in encoded.get("closed", {}).items()}
    registry.early_answers = {name: Feedback(*values) for name, values in encoded.get("early", {}).items()}
    registry.early_ids_by_node = {
        None if number == _RUN_NUMBER else number: [*request_ids]
        for number, request_ids in encoded.get("early_nodes", ())
    }
    registry.request_counts = dict(encoded.get("counts", {}))
    open_requests = registry.open
    registry.notifications = [
        Notification(kind, open_requests.get(request["id"]) or _request_from_json(request), at)
        for kind, request, at in encoded.get("notifications", ())
    ]
    registry.stored_bytes = int(encoded.get("stored_bytes", 0))
    registry.rejections = list(encoded.get("rejections", ()))
    registry.approved_tools = dict(encoded.get("remembered", {}))
    return registry


def _values_of(entry: Closing | Feedback) -> list[Any]:
    return [getattr(entry, entry_field.name) for entry_field in fields(entry)]


_REQUEST_DEFAULTS = {part.name: part.default for part in fields(Request)}


def _request_to_json(request: Request) -> dict[str, Any]:
    encoded = {name: getattr(request, name) for name in _REQUEST_DEFAULTS if name != "arguments"}
    encoded = {name: value for name, value in encoded.items() if value != _REQUEST_DEFAULTS[name] or name == "task"}
    if request.arguments is not None:
        encoded["arguments"] = value_to_json(request.arguments)
    return encoded


def _request_from_json(encoded: Mapping[str, Any]) -> Request:
    values = {name: value for name, value in encoded.items() if name in _REQUEST_DEFAULTS}
    if (arguments := values.pop("arguments", None)) is not None:
        values["arguments"] = value_from_json(arguments["value"], arguments.get("stored"))
    return Request(**values)


@dataclass(slots=True)
class FeedbackState:
    """State of the human feedback of one run.

    Args:
        given_inputs: inputs that a person provided after the start.
        approved_node_count: number of nodes, from the first, that were approved together with the plan.
        approved_by: user who approved the plan.
        policy_changed: whether a person changed the policy of the run.
    """

    requests: RequestRegistry = field(default_factory=RequestRegistry)
    given_inputs: dict[str, Any] = field(default_factory=dict)
    approved_node_count: int = 0
    approved_by: str = ""
    policy_changed: bool = False


RunAnswerApplier = Callable[[Any, Feedback, float], None]
"""Function that applies the answer to a request that belongs to no node."""
