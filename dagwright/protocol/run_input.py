"""The input of a run and its JSON (docs/reference/messages.md).

The sender may be the Temporal UI or a program in another language, so every field is checked, and each problem is
described in one sentence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary.limits import MAX_PLAN_PAGES
from dagwright.core.compiler.node_columns import plan_from_columns, plan_to_columns
from dagwright.core.errors import Problem, pointer
from dagwright.core.expressions.references import Lookup
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_from_json
from dagwright.core.model.lookups import known_entities_from_json, known_entities_to_json
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.name_hints import suggestion
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.features.budgets.budget import budget_of_options, options_to_json
from dagwright.planning.extender_specs import check_extenders
from dagwright.planning.model_calls.model_requests import model_config_from_json
from dagwright.protocol.map_batch_messages import MapBatchInput, map_batch_input_from_json, map_batch_input_to_json
from dagwright.protocol.messages import (
    MessageInvalid,
    Parent,
    ParentSession,
    deadline_from_json,
    max_in_flight_from_json,
)
from dagwright.protocol.notes import notes_from_json
from dagwright.protocol.plan_limits import PlanTooLarge, graph_problem, reject_too_large_json
from dagwright.protocol.run_snapshot import RunSnapshot, snapshot_from_json, snapshot_to_json

_MAX_REF_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class RunInput:
    """Input of `RunPlan`.

    Exactly one of `plan`, `compiled` and `pages` is set.

    Args:
        plan: a plan as written, in any dialect; an activity compiles it.
        compiled: a compiled plan.
        pages: references of the pages of a large compiled plan in the payload store.
        inputs, context: values by name; the values of a sub-plan may be in the payload store.
        max_in_flight: maximum number of tasks in flight.
        deadline_s: deadline of the whole run in seconds.
        notifies: whether the webhook of the workers is notified of requests.
        scope: scope of idempotency keys; `None` for a root run, whose first execution run ID is the scope.
        path: for a sub-plan, the (kind, name) steps from the root run, such as `("node", "archive")`.
        snapshot: state of the previous execution; `None` for the first execution of a run.
        map_batch: additional input of the run of a map batch.
        policy: which calls need approval; `None` means the default of the plan.
        needs_approval: whether a person must approve the whole plan before it runs, because a model wrote it.
        approved_by: person who has approved the plan. If set, the nodes of the plan need no approval.
        approved_tools: tool that needs no further approval in the parent run -> person who allowed it.
        notes: notes about the plan before the run, such as repairs of a model's answer; shown with the run's notes.
        budget: limits of the use of models, as for `budget_from_json`; `None` means no limits.
        shared_budget: for a sub-plan, the part of its parent run's budget that it must know (`budgets.shared_budget`).
        compensate: whether the run compensates its calls if it does not complete. Only the root run compensates; a
            sub-plan reports its calls with its end.
        only_compensates: for a sub-plan, whether it only compensates the calls of the run in the snapshot.
        model: JSON of the `ModelConfig` of the run; `None` means the settings of the workers.
        session: session to which the run of a turn reports its end.
        is_interactive: whether people are asked about an ambiguous lookup; if not, an ambiguous lookup ends the run.
        known_entities: lookup that a session has resolved before -> its entity; such a lookup is not searched again.
    """

    plan: Any = None
    dialect: str | None = None
    compiled: CompiledPlan | None = None
    pages: Sequence[str] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    max_in_flight: int = MAX_IN_FLIGHT
    deadline_s: float | None = None
    notifies: bool = False
    scope: str | None = None
    path: tuple[tuple[str, str], ...] = ()
    parent: Parent | None = None
    snapshot: RunSnapshot | None = None
    map_batch: MapBatchInput | None = None
    policy: Policy | None = None
    needs_approval: bool = False
    approved_by: str | None = None
    approved_tools: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[Mapping[str, Any]] = ()
    budget: Mapping[str, Any] | None = None
    shared_budget: Mapping[str, Any] | None = None
    compensate: bool = False
    only_compensates: bool = False
    model: Mapping[str, Any] | None = None
    session: ParentSession | None = None
    is_interactive: bool = True
    known_entities: Mapping[Lookup, Mapping[str, Any]] = field(default_factory=dict)


def run_input_to_json(run_input: RunInput, *, compiled: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Encode the input of a run.

    Args:
        compiled: JSON form of `run_input.compiled`, if it is known.
    """
    inputs = value_to_json(dict(run_input.inputs))
    encoded: dict[str, Any] = {"inputs": inputs["value"], "stored_inputs": inputs.get("stored")}
    encoded |= {"context": dict(run_input.context), "options": _options_to_json(run_input)}
    encoded = {name: value for name, value in encoded.items() if value}
    optional_fields: dict[str, Any] = {
        "approved_by": run_input.approved_by,
        "approved_tools": dict(run_input.approved_tools),
    }
    optional_fields |= {"scope": run_input.scope, "session": run_input.session and run_input.session.to_json()}
    encoded |= {name: value for name, value in optional_fields.items() if value not in (None, {})}
    if run_input.pages:
        encoded["compiled"] = {"pages": list(run_input.pages)}
    elif run_input.compiled is not None:
        encoded["compiled"] = compiled or plan_to_columns(run_input.compiled)
    else:
        encoded["plan"] = run_input.plan
        encoded |= {"dialect": run_input.dialect} if run_input.dialect is not None else {}
    if run_input.parent is not None:
        encoded["parent"] = {"run_id": run_input.parent.run_id, "task": run_input.parent.task}
    if run_input.path:
        encoded["path"] = [list(step) for step in run_input.path]
    if run_input.known_entities:
        encoded["known_entities"] = known_entities_to_json(run_input.known_entities)
    if run_input.snapshot is not None:
        encoded["snapshot"] = snapshot_to_json(run_input.snapshot)
    if run_input.map_batch is not None:
        encoded["map_batch"] = map_batch_input_to_json(run_input.map_batch)
    if run_input.shared_budget is not None:
        encoded["shared_budget"] = dict(run_input.shared_budget)
    if run_input.only_compensates:
        encoded["only_compensates"] = True
    if run_input.notes:
        encoded["notes"] = [dict(note) for note in run_input.notes]
    return encoded


def _options_to_json(run_input: RunInput) -> dict[str, Any]:
    """Return the options that differ from their defaults."""
    options: dict[str, Any] = {}
    if run_input.max_in_flight != MAX_IN_FLIGHT:
        options["max_parallel"] = run_input.max_in_flight
    if run_input.deadline_s is not None:
        options["deadline"] = _duration_text(run_input.deadline_s)
    if run_input.notifies:
        options["notify"] = True
    if run_input.policy is not None:
        options["policy"] = run_input.policy.to_json()
    if run_input.needs_approval:
        options["approve_plan"] = True
    if run_input.budget is not None:
        options["budget"] = dict(run_input.budget)
    if run_input.compensate:
        options["compensate"] = True
    if run_input.model:
        options["model"] = dict(run_input.model)
    if not run_input.is_interactive:
        options["interactive"] = False
    return options


def _duration_text(seconds: float) -> str:
    """Return a duration that `parse_duration` accepts.

    `parse_duration` accepts at most nine digits before the point. A duration of at most nine digits of milliseconds is
    exact to the microsecond. A longer duration is in seconds with three decimals.
    """
    microseconds = max(1, round(seconds * 1_000_000))
    if microseconds < 10**12:
        return f"{microseconds // 1000}.{microseconds % 1000:03}ms"
    milliseconds = microseconds // 1000
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}s"


def run_input_from_json(message: Any) -> RunInput:
    """Decode the input of a run.

    Raises:
        MessageInvalid: the message differs from docs/reference/messages.md.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid('the input must be an object such as {"plan": {…}, "inputs": {}}')
    if "goal" in message and "plan" not in message and "compiled" not in message:
        # A request in words is compiled like a plan.
        message = {**message, "plan": {"goal": message["goal"]}}
    if ("plan" in message) == ("compiled" in message):
        raise MessageInvalid("the input must contain exactly one of 'plan' and 'compiled'")
    if "snapshot" in message and "compiled" not in message:
        raise MessageInvalid("the input contains a 'snapshot', which requires a compiled plan")
    options = _options(_object(message, "options"))
    compiled = message.get("compiled")
    try:
        pages = page_refs_from_json(compiled)
        return RunInput(
            plan=message.get("plan"),
            dialect=_text_or_none(message, "dialect"),
            compiled=compiled_plan_from_json(compiled, reported_ids=_reported_ids(message))
            if "compiled" in message and not pages
            else None,
            pages=pages,
            inputs=value_from_json(_object(message, "inputs"), message.get("stored_inputs")),
            context=_object(message, "context"),
            max_in_flight=options.get("max_parallel", MAX_IN_FLIGHT),
            deadline_s=options.get("deadline"),
            notifies=options.get("notify", False),
            scope=message.get("scope"),
            path=tuple((str(kind), str(name)) for kind, name in message.get("path", ())),
            parent=_parent(message.get("parent")),
            snapshot=snapshot_from_json(message["snapshot"]) if "snapshot" in message else None,
            map_batch=map_batch_input_from_json(message["map_batch"]) if message.get("map_batch") is not None else None,
            policy=options.get("policy"),
            needs_approval=options.get("approve_plan", False),
            approved_by=_approved_by(message.get("approved_by")),
            approved_tools={str(tool): str(person) for tool, person in _object(message, "approved_tools").items()},
            notes=notes_from_json(message.get("notes", ())),
            budget=options.get("budget"),
            shared_budget=_object(message, "shared_budget") if message.get("shared_budget") is not None else None,
            compensate=options.get("compensate", False),
            only_compensates=message.get("only_compensates") is True,
            model=options.get("model"),
            session=_parent_session(message.get("session")),
            is_interactive=options.get("interactive", True),
            known_entities=known_entities_from_json(message.get("known_entities", ())),
        )
    except PlanTooLarge as error:
        raise MessageInvalid(str(error), code="too_large") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise MessageInvalid(f"invalid input: {error}") from None


def page_refs_from_json(encoded: Any) -> tuple[str, ...]:
    """Return the references of the pages of a plan; an empty tuple for a plan without pages.

    Raises:
        ValueError: the references are invalid.
    """
    pages = encoded.get("pages") if isinstance(encoded, Mapping) else None
    if pages is None:
        return ()
    if not isinstance(pages, list) or not all(
        isinstance(page, str) and len(page) < _MAX_REF_CHARACTERS for page in pages
    ):
        raise ValueError("the pages of a plan must be a list of references")
    if not 1 <= len(pages) <= MAX_PLAN_PAGES:
        raise ValueError(f"a plan has 1 to {MAX_PLAN_PAGES:,} pages, not {len(pages):,}")
    return tuple(pages)


def _reported_ids(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the nodes whose ends are part of a map batch's input."""
    entries = _object(message, "map_batch").get("node_ends", ())
    return [str(end[0]) for end in entries]


def compiled_plan_from_json(encoded: Any, *, reported_ids: Collection[str] = ()) -> CompiledPlan:
    """Decode a compiled plan from any source, and check the assumptions of the engine about it.

    Args:
        reported_ids: ids of the nodes whose ends are part of the input of a map batch.

    Raises:
        PlanTooLarge: the plan is too large for the input of a run.
        ValueError: the plan is invalid.
    """
    reject_too_large_json(encoded)
    return require_valid_plan(plan_from_columns(encoded), reported_ids=reported_ids)


def plan_from_pages(head: Any, nodes: Sequence[CompiledNode]) -> CompiledPlan:
    """Return a compiled plan from its pages, and check the assumptions of the engine about it.

    Args:
        head: the first page, which contains the plan without its nodes.
        nodes: nodes of the other pages.

    Raises:
        PlanTooLarge: the plan is too large for a run.
        ValueError: the pages are not a plan.
    """
    if not isinstance(head, Mapping):
        raise ValueError("the first page of the plan is not an object")
    try:
        return require_valid_plan(replace(plan_from_json({**head, "nodes": []}), nodes=tuple(nodes)))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"the pages are not a compiled plan: {error!r}") from None


def require_valid_plan(plan: CompiledPlan, *, reported_ids: Collection[str] = ()) -> CompiledPlan:
    """Return the plan if it is valid.

    Args:
        reported_ids: ids of the nodes whose ends are part of the input of a map batch.

    Raises:
        PlanTooLarge: the plan is too large for a run.
        ValueError: an id, an edge or the extender of the plan is invalid.
    """
    if (problem := graph_problem(plan, reported_ids=reported_ids)) is not None:
        raise ValueError(problem)
    check_extenders(plan)
    return plan


def _object(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MessageInvalid(f"{name!r} must be an object")
    return value


def _parent(value: Any) -> Parent | None:
    return None if value is None else Parent(*_report_target(value, name="parent", parts=("run_id", "task")))


def _parent_session(value: Any) -> ParentSession | None:
    return (
        None
        if value is None
        else ParentSession(*_report_target(value, name="session", parts=("session_workflow_id", "turn")))
    )


def _report_target(value: Any, *, name: str, parts: tuple[str, str]) -> tuple[str, str]:
    """Return the id of the workflow to which a run reports, and the id of its task or turn in the workflow."""
    ids = [value.get(part) for part in parts] if isinstance(value, Mapping) else []
    if not ids or not all(isinstance(text, str) and 0 < len(text.encode(errors="replace")) <= 1000 for text in ids):
        # Temporal would reject every report to an id of another form, and the run would never end.
        raise MessageInvalid(f"{name!r} must have {parts[0]!r} and {parts[1]!r}, each a string of 1 to 1,000 bytes")
    return str(ids[0]), str(ids[1])


def _options(document: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the options; null means the default.

    Raises:
        MessageInvalid: an option is invalid; the exception has all problems of the options.
    """
    options: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in document.items():
        location = pointer("options", name)
        if name not in START_OPTIONS:
            hint = suggestion(name, START_OPTIONS) or f"the options are {', '.join(START_OPTIONS)}"
            problems.append(Problem("invalid_field", f"unknown option {name!r:.60}", location, hint=hint))
        elif value is not None:
            try:
                options[name] = START_OPTIONS[name].decode(value)
            except ValueError as error:
                problems.append(Problem("invalid_field", f"options.{name} {error}", location))
    if problems:
        raise MessageInvalid("; ".join(problem.text for problem in problems[:20]), problems=problems)
    return options


def _policy(value: Any) -> Policy:
    try:
        return policy_from_json(value)
    except ValueError as error:
        raise ValueError(f"is not a policy: {error}") from None


def _budget(value: Any) -> Mapping[str, Any]:
    try:
        return options_to_json(budget_of_options(value))
    except ValueError as error:
        raise ValueError(f"is not a budget: {error}") from None


def _model(value: Any) -> Mapping[str, Any]:
    """Decode the configuration of the model: its name, or an object."""
    try:
        return model_config_from_json({"model": value} if isinstance(value, str) else value).to_json()
    except ValueError as error:
        raise ValueError(f"is not a model configuration: {error}") from None


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r:.60}")
    return value


def _text_or_none(message: Mapping[str, Any], field: str) -> str | None:
    value = message.get(field)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{field!r} must be a string")
    return value


def _approved_by(value: Any) -> str | None:
    return None if value is None else str(value)[:200]


@dataclass(frozen=True, slots=True)
class StartOption:
    """An option of a new run.

    Args:
        decode: decoder. The caller puts the name of the option before the message of a ValueError.
        meaning: description in Markdown, from which the reference is generated.
    """

    decode: Callable[[Any], Any]
    meaning: str


START_OPTIONS: Mapping[str, StartOption] = {
    "max_parallel": StartOption(max_in_flight_from_json, "Limit of the calls in flight, at most 500."),
    "deadline": StartOption(deadline_from_json, "Deadline of the whole run, a duration such as `2h`."),
    "notify": StartOption(
        _boolean, "Whether requests to people are sent to the [webhook](../guides/notifications.md)."
    ),
    "policy": StartOption(_policy, "Which calls need an [approval](../guides/approvals.md), and which are denied."),
    "approve_plan": StartOption(_boolean, "Whether a person approves the plan before its first node starts."),
    "interactive": StartOption(
        _boolean, "Whether people are asked for missing inputs and unclear lookups; `true` by default."
    ),
    "budget": StartOption(
        _budget, "[Limits](../guides/budgets.md) of tokens, cost, model calls, added nodes and time."
    ),
    "compensate": StartOption(
        _boolean, "Whether a run that does not complete [undoes](../guides/compensation.md) its changes."
    ),
    "model": StartOption(
        _model, "Name of the [model](../guides/models.md#choose-a-model), or an object with its options."
    ),
}
"""Options of a new run by name, from which the reference is generated."""


@dataclass(frozen=True, slots=True)
class StartField:
    """A field of the input of a run that other programs send.

    Args:
        json_type: type in the reference.
        meaning: description in Markdown, from which the reference is generated.
    """

    json_type: str
    meaning: str


START_FIELDS: Mapping[str, StartField] = {
    "plan": StartField("object, list or string", "A [plan](plan.md) in any dialect."),
    "goal": StartField(
        "string",
        "In place of `plan`, for the workflow type `PlanAndExecute`: a "
        "[request in words](../guides/asking.md#from-other-programs).",
    ),
    "dialect": StartField("string", "The [dialect](dialects.md) of the plan; detected by default."),
    "inputs": StartField("object", "Inputs of the plan by name."),
    "context": StartField("object", "Values of `@name` in the plan."),
    "options": StartField("object", "Options of the run."),
}
"""Public fields of the input by name; all other fields are internal, and may change."""
