"""A turn of a session, as it travels: what starts its run, where the run reports, and what the report says.

Whoever sends these may be the Temporal UI or a program in another language: every field is checked, and what goes into
the state of a session is cut to what it may hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import WORKFLOW_ID_BYTES
from dagwright.core.model.lookups import has_readable_filters
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.core.model.tools import PLAN_READER
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.conversation import identified, is_session_name, line_or_none
from dagwright.protocol.documents import encoded_size
from dagwright.protocol.failures import FROM_NODES
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.plan_limits import is_queue
from dagwright.protocol.turn_summaries import done_words, place_from_json, place_of, response_of

TURN_BYTES = 1_000_000
"""Encoded message that starts a turn. It stands in history twice, and one workflow task may send 4 MB."""
MEMO_BYTES = 16_000
"""Encoded memo of its run."""
POLICY_BYTES = 4_000
"""Encoded policy of a session."""
REQUEST_BYTES = 1_000
"""Of the words of a request that a session remembers."""
EXPLANATION_BYTES = 400
OUTCOME_BYTES = 400
NAMES = 100
"""Names that a session holds, the newest of them: a planner takes no more."""
LOOKUP_BYTES = 2_000
"""Encoded entity that a search text was bound to; a larger one is looked up again."""
LOOKUPS_KEPT = 100
"""Parties of one run that a session takes over."""

_FAILURES_TOLD = 3
_LOOKUP_CODES = "lookup_"
"""Begins the codes of runs that failed because something could not be looked up."""
_KINDS_OF_RUN = (wire.WORKFLOW_RUN_PLAN, wire.WORKFLOW_PLAN_AND_EXECUTE, wire.WORKFLOW_RUN_AGENT)
_ENDS = [status.value for status in RunStatus if status not in (RunStatus.RUNNING, RunStatus.WAITING)]


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The payload of `start_turn`.

    Args:
        run: workflow id of the run, and id of the turn: the same one twice is one turn.
        start: what the run is started with, as `RunPlan` takes it.
        request: what was asked, in words.
        version: of the session for which it was prepared; `None` for one that takes it as it is.
        workflow: type of the run.
        memo: of the run.
        policy: of the session from now on; `None` leaves it as it is.
        task_queue: queue of the run; `None` is the queue of the session.
    """

    run: str
    start: Mapping[str, Any]
    request: str = ""
    version: int | None = None
    workflow: str = wire.WORKFLOW_RUN_PLAN
    memo: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy | None = None
    task_queue: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the message."""
        encoded = {"run_id": self.run, "start": dict(self.start), "request": self.request, "version": self.version}
        encoded |= {"workflow": self.workflow, "memo": dict(self.memo)}
        encoded |= {} if self.task_queue is None else {"task_queue": self.task_queue}
        return encoded if self.policy is None else {**encoded, "policy": self.policy.to_json()}


def turn_start_from_json(message: Any) -> TurnStart:
    """Returns what a message asks for.

    Raises:
        MessageInvalid: it asks for nothing that a session could start.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("start"), Mapping):
        raise MessageInvalid('start_turn takes an object such as {"run_id": "run-1", "start": {"goal": "…"}}')
    if (size := encoded_size(dict(message))) > TURN_BYTES:
        raise MessageInvalid(f"the turn has {size:,} bytes; at most {TURN_BYTES:,} can be sent", code="too_large")
    start, version, memo = message["start"], message.get("version"), message.get("memo", {})
    usual = wire.WORKFLOW_PLAN_AND_EXECUTE if "goal" in start else wire.WORKFLOW_RUN_PLAN
    workflow = message.get("workflow") or usual
    if workflow not in _KINDS_OF_RUN:
        raise MessageInvalid(f"'workflow' must be one of {', '.join(_KINDS_OF_RUN)}, not {workflow!r:.60}")
    if version is not None and type(version) is not int:
        raise MessageInvalid(f"'version' must be the number of a version of the session, not {version!r:.60}")
    if not isinstance(memo, Mapping) or encoded_size(dict(memo)) > MEMO_BYTES:
        raise MessageInvalid(f"'memo' must be an object of at most {MEMO_BYTES:,} bytes")
    try:
        policy = policy_from_json(message["policy"]) if message.get("policy") is not None else None
    except ValueError as error:
        raise MessageInvalid(f"'policy' is no policy: {error}") from None
    if policy is not None and (size := encoded_size(policy.to_json())) > POLICY_BYTES:
        message = f"the policy has {size:,} bytes; at most {POLICY_BYTES:,} can be that of a session"
        raise MessageInvalid(message, code="too_large")
    queue = message.get("task_queue")
    if queue is not None and not is_queue(queue):
        raise MessageInvalid(f"'task_queue' must be the name of a task queue, not {queue!r:.60}")
    request = message.get("request") or start.get("goal") or ""
    return TurnStart(
        run=_run_id(message.get("run_id")),
        start=start,
        request=line_or_none(str(request), max_bytes=REQUEST_BYTES) or "",
        version=version,
        workflow=str(workflow),
        memo=memo,
        policy=policy,
        task_queue=queue,
    )


def _run_id(value: Any) -> str:
    size = len(value.encode(errors="replace")) if isinstance(value, str) else 0
    if not 0 < size <= WORKFLOW_ID_BYTES or any("\ud800" <= sign <= "\udfff" or sign < " " for sign in value):
        raise MessageInvalid(f"'run_id' must be the id of a run, a text of 1 to {WORKFLOW_ID_BYTES} bytes")
    return str(value)


# How a turn ended.


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How the run of a turn ended, as a session remembers it.

    Args:
        outcome: what came of it, in words on one line.
        response: its answer, if it gave one of which the outcome does not say all.
        response_at: where all of that answer lies, `{"ref", "paths"}`, if it is too long for a run to hold.
        names: names that it set -> `{"id", "name", "kind"}`.
        bindings: entities that its lookups were bound to.
        is_unbound: it failed because not all of them could be, which an entity may have been that is gone since.
    """

    status: str
    outcome: str | None = None
    response: str | None = None
    response_at: Mapping[str, Any] | None = None
    explanation: str | None = None
    names: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resolved_lookups: Sequence[Mapping[str, Any]] = ()
    is_unbound: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the end as it travels."""
        return {
            "status": self.status,
            "outcome": self.outcome,
            "response": self.response,
            **({"response_at": dict(self.response_at)} if self.response_at is not None else {}),
            "explanation": self.explanation,
            "names": {name: dict(found) for name, found in self.names.items()},
            "bindings": [dict(lookup) for lookup in self.resolved_lookups],
            "unbound": self.is_unbound,
        }


def turn_end_from_json(message: Any) -> TurnEnd:
    """Returns a report; what in it no session could hold is cut or left out.

    Raises:
        MessageInvalid: it is none.
    """
    if not isinstance(message, Mapping) or message.get("status") not in _ENDS:
        raise MessageInvalid("a report of a turn must be an object with the status that its run ended with")
    names, lookups = message.get("names"), message.get("bindings")
    return TurnEnd(
        status=message["status"],
        outcome=line_or_none(message.get("outcome"), max_bytes=OUTCOME_BYTES),
        response=response_of(message.get("response")),
        response_at=place_from_json(message.get("response_at")),
        explanation=line_or_none(message.get("explanation"), max_bytes=EXPLANATION_BYTES),
        names=_names_read(names if isinstance(names, Mapping) else {}),
        resolved_lookups=_lookups_read(lookups if isinstance(lookups, list) else []),
        is_unbound=message.get("unbound") is True,
    )


def _names_read(told: Mapping[Any, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, value in told.items():
        if is_session_name(name) and isinstance(value, Mapping) and (known := identified(value)) is not None:
            found[name] = known
    return dict([*found.items()][-NAMES:])


def _lookups_read(told: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns the newest of them that a session can hold."""
    found = [
        dict(lookup)
        for lookup in told
        if isinstance(lookup, Mapping)
        and all(isinstance(lookup.get(key), str) for key in ("search_text", "entity_type"))
        and has_readable_filters(lookup)
        and isinstance(lookup.get("party"), Mapping)
        and isinstance(lookup["party"].get("id"), str)
        and encoded_size(dict(lookup)) <= LOOKUP_BYTES
    ]
    return found[-LOOKUPS_KEPT:]


def end_of_turn(document: Mapping[str, Any], scheduler: RunScheduler | None = None) -> TurnEnd:
    """Returns what a session remembers of a run.

    Args:
        document: the result document of the run.
        scheduler: of the run, if it is there: it knows the plan of a model, and what it is for.
    """
    status = document.get("status")
    names, lookups, error = document.get("context"), document.get("lookups"), document.get("error")
    if isinstance(lookups, list) and scheduler is not None and scheduler.state.phase.is_compensated:
        # They may be gone with the rest that was taken back; one that stands is found again.
        lookups = [each for each in lookups if not (isinstance(each, Mapping) and each.get("created"))]
    code = error.get("code") if isinstance(error, Mapping) else None
    response = response_of(document.get("output"))
    outcome = _outcome(document, response, scheduler)
    return TurnEnd(
        status=status if status in _ENDS else RunStatus.FAILED.value,
        outcome=outcome,
        response=response if response != outcome else None,
        response_at=place_of(document.get("output")),
        explanation=line_or_none(scheduler and _explanation(scheduler), max_bytes=EXPLANATION_BYTES),
        names=_names_read(names if isinstance(names, Mapping) else {}),
        resolved_lookups=_lookups_read(lookups if isinstance(lookups, list) else []),
        is_unbound=isinstance(code, str) and code.startswith(_LOOKUP_CODES),
    )


def _explanation(scheduler: RunScheduler) -> Any:
    """Returns what a plan says that it is for: that of a model the newest one."""
    for node, record in reversed(list(scheduler.state.shown())):
        if node.tool == PLAN_READER and isinstance(record.result, Mapping):
            return record.result.get("explanation")
    return scheduler.plan.metadata.get("explanation")


def _outcome(document: Mapping[str, Any], response: str | None, scheduler: RunScheduler | None) -> str | None:
    error, nodes = document.get("error"), document.get("nodes")
    # An error that is derived from the nodes says less than the nodes do.
    if isinstance(error, Mapping) and error.get("message") and error.get("code") not in FROM_NODES:
        return line_or_none(f"{error.get('code')}: {error['message']}", max_bytes=OUTCOME_BYTES)
    failed = [
        f"{name!r} failed: {(node.get('error') or {}).get('message')}"
        for name, node in (nodes.items() if isinstance(nodes, Mapping) else ())
        if node.get("status") == NodeStatus.FAILED.value
    ]
    done = done_words(scheduler) if scheduler is not None else None
    if failed:
        more = f"; and {len(failed) - _FAILURES_TOLD:,} more" if len(failed) > _FAILURES_TOLD else ""
        went_well = f"; done: {done}" if done else ""
        return line_or_none("; ".join(failed[:_FAILURES_TOLD]) + more + went_well, max_bytes=OUTCOME_BYTES)
    return line_or_none(response or done, max_bytes=OUTCOME_BYTES)
