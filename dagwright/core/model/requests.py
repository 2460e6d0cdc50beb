"""Records of human-in-the-loop requests: a request to a person, an answer as received, and the end of a request.

A request is a record, not a task: it holds no slot and has no timer of its own. `dagwright.features.feedback` opens,
answers and closes the requests of a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dagwright.core.expressions.value_refs import format_value_refs, ref_for_display
from dagwright.core.model.actor import Actor
from dagwright.core.model.times import format_time

ANYONE = "anyone"
"""Name for the assignee of a request without an assignee."""
INPUTS = "inputs"
"""Id of the request for the inputs of a run; no node can have this id."""

PLAN = "plan"
"""Id of the request for approval of the plan; `plan#0` if the plan has a node with the id `plan`."""

BUDGET = "budget"
"""Id of the request for more budget; `budget#0` and so on if the plan has a node with the id `budget`."""
BUDGET_TASK = "~budget"
"""Task id of a request for more budget; no node can have this id."""

Purpose = Literal["answer", "approval", "error", "raised", "inputs", "plan", "budget"]
"""Use of the answer. `answer`: result of a human node. `approval`: approval of a call. `error`: action for a failed
node. `raised`: answer to a question of a running tool. `inputs`: missing inputs of the run. `plan`: approval of the
plan. `budget`: more budget."""
Channel = Literal["any", "inbox"]
"""Accepted sources of answers: any, or only the inbox (command line, console, API, Temporal UI)."""
ClientChannel = Literal["tool_result", "mcp"]
"""Sources of answers that a model client relays: the result of an `answer_feedback` call, or an MCP tool
call or MCP form."""
CLIENT_CHANNELS: tuple[ClientChannel, ...] = get_args(ClientChannel)
MessageSource = Literal["update", "signal", "deadline", "policy", ClientChannel]
"""Source of a command or an answer. `update`, `signal`: kind of the Temporal message. `deadline`: the default answer
after the deadline of a request. `policy`: an answer by the policy of the run. `ClientChannel`: a model client relayed
the answer."""
MayAnswer = Literal["all", "unassigned", "assigned"]
"""Requests that a user may answer; see `Feedback`."""
RequestType = Literal["APPROVAL", "SELECTION", "GUIDANCE", "CLARIFICATION", "INFORMATION"]

_ON_TIMEOUT_FAIL = "fail"


def is_labelled(option: Any) -> bool:
    """Return whether an option of a SELECTION has the form `{"id", "label"}`, so that the `id` selects it."""
    return isinstance(option, Mapping) and {*option} == {"id", "label"}


@dataclass(slots=True)
class Request:
    """A request to a person. Times are seconds since the epoch.

    Args:
        id: the id of the task, with the suffix `#2` and so on for later requests of the same task.
        task: id of the node or item that waits; empty for a request for the inputs or the plan of the run.
        schema: for an INFORMATION, JSON Schema of the data.
        options: for a SELECTION, the options; `multiple` allows several, `allow_text` allows a text instead.
        deadline_s: seconds from the request to its deadline, and from an escalation to the next deadline.
        on_timeout: `fail`, `{"default": answer}` or `{"escalate": assignee, "then": next step}`; after an escalation,
            the `then` of that escalation, or `fail`.
        tool, arguments: for an approval, the tool and the arguments of the call, with references to stored values.
        entities: for an approval, names of the entities in the arguments: id -> name and kind; `None` if none is known.
        checkpoint: for a question of a running tool, the state that the tool saved for its next call.
        channel: `inbox` rejects answers that a model client relays.
    """

    id: str
    task: str
    purpose: Purpose
    type: RequestType
    prompt: str
    opened_at: float
    schema: Mapping[str, Any] | None = None
    options: Sequence[Any] | None = None
    multiple: bool = False
    allow_text: bool = False
    assignee: str | None = None
    deadline_s: float | None = None
    deadline_at: float | None = None
    reminder_s: float | None = None
    next_reminder_at: float | None = None
    on_timeout: str | Mapping[str, Any] = _ON_TIMEOUT_FAIL
    tool: str = ""
    arguments: Any = None
    entities: Mapping[str, str] | None = None
    checkpoint: Any = None
    channel: Channel = "any"
    escalations: Sequence[Mapping[str, Any]] = ()
    """Escalations of the request, in order: `{"from", "to", "at"}`."""

    def rejection_of(self, feedback: "Feedback") -> str | None:
        """Return why the author or channel of an answer is rejected; `None` if both are accepted."""
        if feedback.may_answer != "all" and self.assignee != feedback.by:
            if self.assignee is not None:
                return (
                    f"{self.id!r} waits for {self.assignee}: only a key of the owner {self.assignee!r}, or of this "
                    "run's owner with the scope 'operate', may answer it"
                )
            if feedback.may_answer == "assigned":
                return f"{self.id!r} is not assigned to {feedback.by}"
        if self.channel == "any" or feedback.source not in CLIENT_CHANNELS:
            return None
        return (
            f"{self.id!r} must be answered in the inbox: the plan rejects answers that arrive as a tool result or "
            "through MCP. Use `dagwright feedback`, the console, or POST /v1/runs/ID/feedback"
        )

    @property
    def alarm_at(self) -> float | None:
        """Time of the next alarm of the request: the deadline or the next reminder, whichever is earlier."""
        times = [at for at in (self.deadline_at, self.next_reminder_at) if at is not None]
        return min(times, default=None)

    @property
    def escalates_to(self) -> str | None:
        """The next assignee if the deadline passes."""
        return self.on_timeout.get("escalate") if isinstance(self.on_timeout, Mapping) else None

    def escalate(self, assignee: str, at: float) -> None:
        """Assign the request to the next assignee with a new deadline, and move to the next step of `on_timeout`."""
        assert self.deadline_s is not None
        assert isinstance(self.on_timeout, Mapping)
        self.escalations = (*self.escalations, {"from": self.assignee, "to": assignee, "at": at})
        self.assignee, self.on_timeout = assignee, self.on_timeout.get("then", _ON_TIMEOUT_FAIL)
        self.deadline_at = at + self.deadline_s
        self.next_reminder_at = None if self.reminder_s is None else at + self.reminder_s

    @property
    def requested_from(self) -> str | None:
        """The first assignee."""
        return self.escalations[0]["from"] if self.escalations else self.assignee

    @property
    def node_id(self) -> str | None:
        """ID of the node or item that waits; `None` for a request of the run itself."""
        return None if self.task in ("", BUDGET_TASK) else self.task

    @property
    def waiting_reason(self) -> str:
        """Reason why the node waits, such as `waits for ann: Publish it?`."""
        return f"waits for {self.assignee or 'anyone'}: {self.prompt}"

    def to_json(self, run_id: str) -> dict[str, Any]:
        """Return the JSON form for documents."""
        document: dict[str, Any] = {
            "request_id": self.id,
            "node_id": self.node_id,
            "type": self.type,
            "prompt": self.prompt,
            "schema": self.schema,
            "options": None if self.options is None else list(self.options),
            "assignee": self.assignee,
            "opened_at": format_time(self.opened_at),
            "deadline": None if self.deadline_at is None else format_time(self.deadline_at),
            "run_id": run_id,
            "purpose": self.purpose,
            "multiple": self.multiple,
            "allow_text": self.allow_text,
        }
        if self.channel != "any":
            document["channel"] = self.channel
        if self.escalations:
            document["escalations"] = _escalations_to_json(self.escalations)
        if self.purpose == "approval":
            document |= {"tool": self.tool, "arguments": format_value_refs(self.arguments, ref_for_display)}
            document |= {"entities": dict(self.entities)} if self.entities else {}
        return document


@dataclass(frozen=True, slots=True)
class Feedback:
    """An answer as received.

    Args:
        request_id: ID of the request; the ID of a node with `for_each` means the requests of all its items.
        by, note: the author of the answer, and a note from the author.
        may_answer: requests that the author may answer. `all`: every request. `unassigned`: requests without an
            assignee or assigned to `by`. `assigned`: only requests assigned to `by`.
    """

    request_id: str
    answer: Any
    by: str = ""
    note: str = ""
    source: MessageSource = "signal"
    may_answer: MayAnswer = "all"

    @property
    def author(self) -> Actor:
        """The author of the answer."""
        return Actor(self.by or None, self.note or None, self.source)


@dataclass(frozen=True, slots=True)
class Closing:
    """End of a request.

    Args:
        outcome: `answered`; `expired`: the deadline passed; `closed`: the node ended before an answer.
        answer: one word for the answer: `approved`, `rejected`, `retry`, …
        arguments: arguments in the answer, which replace the arguments in the plan. Long arguments are cut and stored
            as a text.
        requested_from, requested_at, escalations: first assignee, time of the request, and its escalations, as in
            `Request`.
    """

    outcome: Literal["answered", "expired", "closed"]
    at: float
    by: str = ""
    source: MessageSource = "signal"
    answer: str = ""
    note: str = ""
    arguments: Any = None
    requested_from: str | None = None
    requested_at: float | None = None
    escalations: Sequence[Mapping[str, Any]] = ()

    def reason(self, request_id: str) -> str:
        """Return the reason why the request accepts no further answer."""
        if self.outcome == "expired":
            return f"the deadline of {request_id!r} passed at {format_time(self.at)}"
        if self.outcome == "closed":
            return f"{request_id!r} is closed: its node ended at {format_time(self.at)}"
        if self.source == "deadline":
            deadline_text = f"the deadline of {request_id!r} passed at {format_time(self.at)}"
            return f"{deadline_text}, and the default of the plan was used ({self.answer})"
        by = self.by or "a user without a name"
        return f"{request_id!r} was answered by {by} at {format_time(self.at)} ({self.answer}, through {self.source})"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for documents and notifications; unknown values are null."""
        document: dict[str, Any] = {
            "outcome": self.outcome,
            "answer": self.answer or None,
            "by": self.by or None,
            "at": format_time(self.at),
            "source": self.source,
            "note": self.note or None,
        }
        if self.arguments is not None:
            document["arguments"] = self.arguments
        if self.requested_from is not None or self.escalations:
            document["requested_from"] = self.requested_from
            document["requested_at"] = format_time(self.requested_at)
            document["escalations"] = _escalations_to_json(self.escalations)
        return document


def _escalations_to_json(escalations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**escalation, "at": format_time(escalation["at"])} for escalation in escalations]


def task_id_without_number(numbered_id: str) -> str:
    """Return the task id of a request or call (`check#2` -> `check`); an id without a number is returned unchanged."""
    task_id, _, number = numbered_id.rpartition("#")
    return task_id if number.isdecimal() and number.isascii() else numbered_id


@dataclass(frozen=True, slots=True)
class RaisedQuestion:
    """A question of a running tool, before it becomes a `Request`.

    Args:
        request: a text, or an object with the fields of `human` in a plan.
        checkpoint: JSON for the tool's next call.
    """

    request: Any
    checkpoint: Any = None
