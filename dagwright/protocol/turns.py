"""Messages of the turns of a session: the request that starts a turn, and the report of its end.

The sender may be the Temporal UI or a program in another language, so every field is checked. Data for the state of a
session is cut to the limits of a session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import MAX_RUN_ID_BYTES
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.lookups import has_readable_filters
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.core.model.tools import PLAN_READER
from dagwright.core.text import join_first
from dagwright.planning.context_names import identity_of, is_context_name, line_or_none
from dagwright.protocol.failures import DERIVED_ERROR_CODES
from dagwright.protocol.fairness import Fairness, FairnessInvalid, fairness_from_json
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.plan_limits import is_queue_name
from dagwright.protocol.turn_summaries import answer_ref_from_json, answer_ref_of, effects_summary, response_of

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

MAX_TURN_MESSAGE_BYTES = 1_000_000
"""Maximum size of an encoded message that starts a turn.

The history has the message twice, and one workflow task may send 4 MB.
"""
MAX_TURN_MEMO_BYTES = 16_000
"""Maximum size of the encoded memo of a turn's run."""
MAX_POLICY_BYTES = 4_000
"""Maximum size of the encoded policy of a session."""
MAX_TURN_REQUEST_BYTES = 1_000
"""Maximum size of the text of a request that a session stores."""
MAX_EXPLANATION_BYTES = 400
"""Maximum size of the explanation of a turn that a session stores."""
MAX_OUTCOME_BYTES = 400
"""Maximum size of the outcome of a turn that a session stores."""
MAX_NAMES = 100
"""Maximum number of named entities in a session: a planner accepts no more. The newest entities stay."""
MAX_LOOKUP_BYTES = 2_000
"""Maximum size of an encoded lookup that a session stores; a larger lookup is searched again."""
MAX_LOOKUPS = 100
"""Maximum number of lookups of one run that a session stores."""

_MAX_SHOWN_FAILURES = 3
_LOOKUP_CODE_PREFIX = "lookup_"
"""Prefix of the error codes of runs that failed because of a lookup."""
_RUN_WORKFLOWS = (wire.WORKFLOW_RUN_PLAN, wire.WORKFLOW_PLAN_AND_EXECUTE, wire.WORKFLOW_RUN_AGENT)
_FINAL_STATUSES = [status.value for status in RunStatus if status not in (RunStatus.RUNNING, RunStatus.WAITING)]


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The payload of `start_turn`.

    Args:
        run_id: ID of the run, and id of the turn; a repeated id means the same turn.
        run_input: JSON of the input of the run, as for `RunPlan`.
        request: text of the request.
        version: version of the session for which the turn was prepared; `None` means any version.
        workflow: workflow type of the run.
        memo: memo of the run.
        policy: policy of the session from now on; `None` keeps the policy.
        task_queue: queue of the run; `None` means the queue of the session.
        fairness: fairness group of the run; `None` means the group of the session.
    """

    run_id: str
    run_input: Mapping[str, Any]
    request: str = ""
    version: int | None = None
    workflow: str = wire.WORKFLOW_RUN_PLAN
    memo: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy | None = None
    task_queue: str | None = None
    fairness: Fairness | None = None

    def to_json(self) -> dict[str, Any]:
        encoded: dict[str, Any] = {"run_id": self.run_id, "start": dict(self.run_input), "request": self.request}
        encoded |= {"version": self.version, "workflow": self.workflow, "memo": dict(self.memo)}
        encoded |= {} if self.task_queue is None else {"task_queue": self.task_queue}
        encoded |= {} if self.fairness is None else {"fairness": self.fairness.to_json()}
        return encoded if self.policy is None else {**encoded, "policy": self.policy.to_json()}


def turn_start_from_json(message: Any) -> TurnStart:
    """Decode a message that starts a turn.

    Raises:
        MessageInvalid: the message is invalid.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("start"), Mapping):
        raise MessageInvalid('start_turn must be an object such as {"run_id": "run-1", "start": {"goal": "…"}}')
    if (size := encoded_size(dict(message))) > MAX_TURN_MESSAGE_BYTES:
        raise MessageInvalid(
            f"the turn has {size:,} bytes; at most {MAX_TURN_MESSAGE_BYTES:,} are allowed", code="too_large"
        )
    run_input, version, memo = message["start"], message.get("version"), message.get("memo", {})
    default_workflow = wire.WORKFLOW_PLAN_AND_EXECUTE if "goal" in run_input else wire.WORKFLOW_RUN_PLAN
    workflow = message.get("workflow") or default_workflow
    if workflow not in _RUN_WORKFLOWS:
        raise MessageInvalid(f"'workflow' must be one of {', '.join(_RUN_WORKFLOWS)}, not {workflow!r:.60}")
    if version is not None and type(version) is not int:
        raise MessageInvalid(f"'version' must be the number of a version of the session, not {version!r:.60}")
    if not isinstance(memo, Mapping) or encoded_size(dict(memo)) > MAX_TURN_MEMO_BYTES:
        raise MessageInvalid(f"'memo' must be an object of at most {MAX_TURN_MEMO_BYTES:,} bytes")
    try:
        policy = policy_from_json(message["policy"]) if message.get("policy") is not None else None
    except ValueError as error:
        raise MessageInvalid(f"'policy' is not a policy: {error}") from None
    if policy is not None and (size := encoded_size(policy.to_json())) > MAX_POLICY_BYTES:
        problem = f"the policy has {size:,} bytes; at most {MAX_POLICY_BYTES:,} are allowed for a session"
        raise MessageInvalid(problem, code="too_large")
    queue = message.get("task_queue")
    if queue is not None and not is_queue_name(queue):
        raise MessageInvalid(f"'task_queue' must be the name of a task queue, not {queue!r:.60}")
    try:
        fairness = fairness_from_json(message.get("fairness"))
    except FairnessInvalid as error:
        raise MessageInvalid(f"'fairness' is invalid: {error}") from None
    request = message.get("request") or run_input.get("goal") or ""
    return TurnStart(
        run_id=_run_id(message.get("run_id")),
        run_input=run_input,
        request=line_or_none(str(request), max_bytes=MAX_TURN_REQUEST_BYTES) or "",
        version=version,
        workflow=str(workflow),
        memo=memo,
        policy=policy,
        task_queue=queue,
        fairness=fairness,
    )


def _run_id(value: Any) -> str:
    size = len(value.encode(errors="replace")) if isinstance(value, str) else 0
    if not 0 < size <= MAX_RUN_ID_BYTES or any("\ud800" <= char <= "\udfff" or char < " " for char in value):
        raise MessageInvalid(f"'run_id' must be the id of a run, a string of 1 to {MAX_RUN_ID_BYTES} bytes")
    return str(value)


# End of a turn.


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """End of the run of a turn, as a session stores it.

    Args:
        outcome: outcome on one line.
        response: answer of the run, if `outcome` does not contain the whole answer.
        response_ref: reference of the full answer, `{"ref", "paths"}`, if the answer is in the payload store.
        names: name of each entity that the run set -> `{"id", "name", "kind"}`.
        resolved_lookups: entities found by lookups of the run.
        has_failed_lookup: whether the run failed because of a lookup, whose entity may no longer exist.
    """

    status: str
    outcome: str | None = None
    response: str | None = None
    response_ref: Mapping[str, Any] | None = None
    explanation: str | None = None
    names: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resolved_lookups: Sequence[Mapping[str, Any]] = ()
    has_failed_lookup: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "outcome": self.outcome,
            "response": self.response,
            **({"response_ref": dict(self.response_ref)} if self.response_ref is not None else {}),
            "explanation": self.explanation,
            "names": {name: dict(value) for name, value in self.names.items()},
            "bindings": [dict(lookup) for lookup in self.resolved_lookups],
            "unbound": self.has_failed_lookup,
        }


def turn_end_from_json(message: Any) -> TurnEnd:
    """Decode the report of the end of a turn. Parts that a session cannot store are cut or dropped.

    Raises:
        MessageInvalid: the report is invalid.
    """
    if not isinstance(message, Mapping) or message.get("status") not in _FINAL_STATUSES:
        raise MessageInvalid("a report of a turn must be an object with the final status of its run")
    names, lookups = message.get("names"), message.get("bindings")
    return TurnEnd(
        status=message["status"],
        outcome=line_or_none(message.get("outcome"), max_bytes=MAX_OUTCOME_BYTES),
        response=response_of(message.get("response")),
        response_ref=answer_ref_from_json(message.get("response_ref")),
        explanation=line_or_none(message.get("explanation"), max_bytes=MAX_EXPLANATION_BYTES),
        names=_names_from_json(names if isinstance(names, Mapping) else {}),
        resolved_lookups=_lookups_from_json(lookups if isinstance(lookups, list) else []),
        has_failed_lookup=message.get("unbound") is True,
    )


def _names_from_json(encoded: Mapping[Any, Any]) -> dict[str, dict[str, Any]]:
    names: dict[str, dict[str, Any]] = {}
    for name, value in encoded.items():
        if is_context_name(name) and isinstance(value, Mapping) and (entity := identity_of(value)) is not None:
            names[name] = entity
    return dict([*names.items()][-MAX_NAMES:])


def _lookups_from_json(encoded: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the newest lookups that a session can store."""
    lookups = [
        dict(lookup)
        for lookup in encoded
        if isinstance(lookup, Mapping)
        and all(isinstance(lookup.get(key), str) for key in ("search_text", "entity_type"))
        and has_readable_filters(lookup)
        and isinstance(lookup.get("entity"), Mapping)
        and isinstance(lookup["entity"].get("id"), str)
        and encoded_size(dict(lookup)) <= MAX_LOOKUP_BYTES
    ]
    return lookups[-MAX_LOOKUPS:]


def end_of_turn(document: Mapping[str, Any], scheduler: "RunScheduler | None" = None) -> TurnEnd:
    """Return the end of a turn from its run.

    Args:
        document: result document of the run.
        scheduler: scheduler of the run, if it is known; it has the explanation of a generated plan.
    """
    status = document.get("status")
    names, lookups, error = document.get("context"), document.get("lookups"), document.get("error")
    if isinstance(lookups, list) and scheduler is not None and scheduler.state.phase.forbids_compensation:
        # Created entities may have been compensated; the next lookup finds the entities that still exist.
        lookups = [lookup for lookup in lookups if not (isinstance(lookup, Mapping) and lookup.get("created"))]
    code = error.get("code") if isinstance(error, Mapping) else None
    response = response_of(document.get("output"))
    outcome = _outcome(document, response, scheduler)
    return TurnEnd(
        status=status if status in _FINAL_STATUSES else RunStatus.FAILED.value,
        outcome=outcome,
        response=response if response != outcome else None,
        response_ref=answer_ref_of(document.get("output")),
        explanation=line_or_none(scheduler and _explanation(scheduler), max_bytes=MAX_EXPLANATION_BYTES),
        names=_names_from_json(names if isinstance(names, Mapping) else {}),
        resolved_lookups=_lookups_from_json(lookups if isinstance(lookups, list) else []),
        has_failed_lookup=isinstance(code, str) and code.startswith(_LOOKUP_CODE_PREFIX),
    )


def _explanation(scheduler: "RunScheduler") -> Any:
    """Return the explanation of the plan, or of the newest plan if models generated several."""
    for node, record in reversed(list(scheduler.state.visible_nodes())):
        if node.tool == PLAN_READER and isinstance(record.result, Mapping):
            return record.result.get("explanation")
    return scheduler.plan.metadata.get("explanation")


def _outcome(document: Mapping[str, Any], response: str | None, scheduler: "RunScheduler | None") -> str | None:
    error, nodes = document.get("error"), document.get("nodes")
    # An error that is derived from the nodes has less information than the nodes.
    if isinstance(error, Mapping) and error.get("message") and error.get("code") not in DERIVED_ERROR_CODES:
        return line_or_none(f"{error.get('code')}: {error['message']}", max_bytes=MAX_OUTCOME_BYTES)
    failure_texts = [
        f"{name!r} failed: {(node.get('error') or {}).get('message')}"
        for name, node in (nodes.items() if isinstance(nodes, Mapping) else ())
        if node.get("status") == NodeStatus.FAILED.value
    ]
    effects = effects_summary(scheduler) if scheduler is not None else None
    if failure_texts:
        effects_text = f"; done: {effects}" if effects else ""
        return line_or_none(
            join_first(failure_texts, _MAX_SHOWN_FAILURES, separator="; ") + effects_text, max_bytes=MAX_OUTCOME_BYTES
        )
    return line_or_none(response or effects, max_bytes=MAX_OUTCOME_BYTES)
