"""What starts a run and what is sent to it, decoded from plain JSON (docs/internals/messages.md).

Whoever sends these may be the Temporal UI or a program in another language, so every field is checked here
and what is wrong is told in one sentence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from temporalio.api.common.v1 import Payload

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import PLAN_PAGES
from dagwright.core.boundary.usage import NONE, Usage, reported_agents, reported_usage
from dagwright.core.expressions.references import Lookup, suggestion
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.errors import Problem, pointer
from dagwright.core.model.lineage import NO_LINEAGE as NOTHING_SEEN
from dagwright.core.model.lineage import Lineage
from dagwright.core.model.lookups import bound_from_json, bound_to_json
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.times import parse_duration
from dagwright.core.scheduler.ready_queue import MAX_IN_FLIGHT
from dagwright.features.budgets.budget import budget_of_options, options_to_json
from dagwright.planning.extenders import check_extenders
from dagwright.planning.model_calls.calls import model_config_from_json
from dagwright.protocol.lineage import told_seen
from dagwright.protocol.map_batch_inputs import ChunkInput, chunk_input_from_json, chunk_input_to_json
from dagwright.protocol.notes import notes_from_json
from dagwright.protocol.plan_limits import PlanTooLarge, graph_problem, refuse_too_large_inline
from dagwright.protocol.run_snapshot import RunCarry, carry_from_json, carry_to_json

_REF_BYTES = 200


class MessageInvalid(Exception):
    """A message is not what the contract says; the text says what was expected.

    Args:
        code: of the error that a run ends with for it.
        problems: each thing that is wrong, if it can be told apart.
    """

    def __init__(self, message: str, *, code: str = "invalid", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.problems = problems


def read_message(payload: Payload) -> Any:
    """Returns the JSON value of a payload that somebody sent; an empty one is null.

    Raises:
        MessageInvalid: it is no JSON, or holds what could not be written again.
    """
    if payload.metadata.get("encoding") == b"binary/null":
        return None
    try:
        return json_from_bytes(payload.data)
    except ValueError as error:
        raise MessageInvalid(f"the payload is no JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class Parent:
    """The run and the task in it that a sub-plan reports to."""

    workflow_id: str
    task: str


@dataclass(frozen=True, slots=True)
class TurnPlace:
    """Where the run of a turn reports its end.

    Args:
        workflow_id: of the session.
        turn: id of the turn, which is that of its first run.
    """

    workflow_id: str
    turn: str

    def to_json(self) -> dict[str, str]:
        """Returns the place as it travels."""
        return {"session_workflow_id": self.workflow_id, "turn": self.turn}


@dataclass(frozen=True, slots=True)
class RunInput:
    """The input of `RunPlan`.

    Args:
        plan: a plan as written, in any dialect, which is compiled by an activity; or
        dialect: of the plan as written; `None` detects it.
        compiled: a compiled plan; or
        pages: references of its pages in the payload store, if it is large. Exactly one of the three is there.
        inputs, context: values by name; those of a sub-plan may lie in the payload store.
        max_in_flight: tasks at once.
        deadline_s: seconds the whole run may take.
        notifies: whether the hook of the workers is told of what is asked.
        scope: scope of idempotency keys; `None` for a root run, whose own is taken.
        path: typed path of the run from the root, for sub-plans.
        carry: what the execution before this one hands on; `None` for the first of a run.
        chunk: what the run of a chunk of a large map is given beside its plan.
        policy: which calls people are asked about; `None` is what a plan of its author has.
        needs_approval: a model wrote the plan, and somebody has to approve it as a whole before it runs.
        approved_by: who has approved it already; its nodes are not asked about one by one by policy.
        approved_tools: tools of which the run above asks no more, each with who said so.
        notes: on the plan before it runs, such as its repairs; shown with those of the run.
        budget: how much it may use of models, as `plan.budget` reads it; `None` if that is not limited.
        shared_budget: of a sub-plan, what it has to know of the budget of the run above, which it shares.
        compensate: whether what it did is taken back when it ends otherwise than completed. The run above all does
            that; one below tells it with its end what it did.
        only_compensates: of a sub-plan, whether it takes back what the run did whose state is the carry.
        model: JSON of the `ModelConfig` that says which model is asked in the run, and how; `None` leaves it to the
            settings of the workers.
        session: where a run that is a turn of a session reports its end.
        asks: whether people are asked what a lookup means; if not, one that is unclear ends the run.
        bound: lookups that are known before, by a session, with the party of each; they are not searched for.
        reads_starts: whether a `write` that timed out without a recorded start counts as not called, whatever the
            timeout. Inputs of earlier versions do not say so, and their histories must replay.
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
    carry: RunCarry | None = None
    chunk: ChunkInput | None = None
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
    session: TurnPlace | None = None
    asks: bool = True
    bound: Mapping[Lookup, Mapping[str, Any]] = field(default_factory=dict)
    reads_starts: bool = True


def run_input_to_json(run_input: RunInput, *, compiled: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the JSON form of a run's input.

    Args:
        compiled: the JSON form of its plan, where that is made already.
    """
    inputs = value_to_json(dict(run_input.inputs))
    encoded: dict[str, Any] = {"inputs": inputs["value"], "context": dict(run_input.context)}
    if "stored" in inputs:
        encoded["stored_inputs"] = inputs["stored"]
    encoded["options"] = _options_to_json(run_input)
    given: dict[str, Any] = {"approved_by": run_input.approved_by, "approved_tools": dict(run_input.approved_tools)}
    given |= {"scope": run_input.scope, "session": run_input.session and run_input.session.to_json()}
    encoded |= {name: value for name, value in given.items() if value not in (None, {})}
    if run_input.pages:
        encoded["compiled"] = {"pages": list(run_input.pages)}
    elif run_input.compiled is not None:
        encoded["compiled"] = compiled or plan_to_json(run_input.compiled)
    else:
        encoded["plan"] = run_input.plan
        encoded |= {"dialect": run_input.dialect} if run_input.dialect is not None else {}
    if run_input.parent is not None:
        encoded["parent"] = {"run_id": run_input.parent.workflow_id, "task": run_input.parent.task}
    if run_input.path:
        encoded["path"] = [list(step) for step in run_input.path]
    if run_input.bound:
        encoded["bound"] = bound_to_json(run_input.bound)
    if run_input.carry is not None:
        encoded["snapshot"] = carry_to_json(run_input.carry)
    if run_input.chunk is not None:
        encoded["map_batch"] = chunk_input_to_json(run_input.chunk)
    if run_input.shared_budget is not None:
        encoded["shared_budget"] = dict(run_input.shared_budget)
    flags = {"only_compensates": run_input.only_compensates, "reads_starts": run_input.reads_starts}
    encoded |= {name: True for name, is_set in flags.items() if is_set}
    if run_input.notes:
        encoded["notes"] = [dict(note) for note in run_input.notes]
    return encoded


def _options_to_json(run_input: RunInput) -> dict[str, Any]:
    """Returns the options that have not their default."""
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
    if not run_input.asks:
        options["interactive"] = False
    return options


def _duration_text(seconds: float) -> str:
    """Returns a duration as `parse_duration` takes it back, exact to its microseconds.

    A number there has nine digits before the point at most, so what is long is told in seconds; no plan can write a
    long duration that has parts of a millisecond.
    """
    microseconds = max(1, round(seconds * 1_000_000))
    if microseconds < 10**12:
        return f"{microseconds // 1000}.{microseconds % 1000:03}ms"
    milliseconds = microseconds // 1000
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}s"


def run_input_from_json(message: Any) -> RunInput:
    """Returns the input that a message stands for.

    Raises:
        MessageInvalid: it is not what docs/internals/messages.md says.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid('the input must be an object such as {"plan": {…}, "inputs": {}}')
    if "goal" in message and "plan" not in message and "compiled" not in message:
        # A request in words, which is compiled as a plan is.
        message = {**message, "plan": {"goal": message["goal"]}}
    if ("plan" in message) == ("compiled" in message):
        raise MessageInvalid("the input must hold exactly one of 'plan' and 'compiled'")
    if "snapshot" in message and "compiled" not in message:
        raise MessageInvalid("the input holds a 'snapshot', which belongs to a compiled plan")
    options = _options(_object(message, "options"))
    compiled = message.get("compiled")
    try:
        pages = pages_of(compiled)
        return RunInput(
            plan=message.get("plan"),
            dialect=_text_or_none(message, "dialect"),
            compiled=compiled_plan(compiled, told=_told(message)) if "compiled" in message and not pages else None,
            pages=pages,
            inputs=value_from_json(_object(message, "inputs"), message.get("stored_inputs")),
            context=_object(message, "context"),
            max_in_flight=options.get("max_parallel", MAX_IN_FLIGHT),
            deadline_s=options.get("deadline"),
            notifies=options.get("notify", False),
            scope=message.get("scope"),
            path=tuple((str(kind), str(name)) for kind, name in message.get("path", ())),
            parent=_parent(message.get("parent")),
            carry=carry_from_json(message["snapshot"]) if "snapshot" in message else None,
            chunk=chunk_input_from_json(message["map_batch"]) if message.get("map_batch") is not None else None,
            policy=options.get("policy"),
            needs_approval=options.get("approve_plan", False),
            approved_by=_approved_by(message.get("approved_by")),
            approved_tools={str(tool): str(by) for tool, by in _object(message, "approved_tools").items()},
            notes=notes_from_json(message.get("notes", ())),
            budget=options.get("budget"),
            shared_budget=_object(message, "shared_budget") if message.get("shared_budget") is not None else None,
            compensate=options.get("compensate", False),
            only_compensates=message.get("only_compensates") is True,
            model=options.get("model"),
            session=_turn_place(message.get("session")),
            asks=options.get("interactive", True),
            bound=bound_from_json(message.get("bound", ())),
            reads_starts=message.get("reads_starts") is True,
        )
    except PlanTooLarge as error:
        raise MessageInvalid(str(error), code="too_large") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise MessageInvalid(f"the input cannot be read: {error}") from None


def pages_of(encoded: Any) -> tuple[str, ...]:
    """Returns the references of a plan that travels in pages, none for a plan that stands where it is.

    Raises:
        ValueError: they are none.
    """
    pages = encoded.get("pages") if isinstance(encoded, Mapping) else None
    if pages is None:
        return ()
    if not isinstance(pages, list) or not all(isinstance(page, str) and len(page) < _REF_BYTES for page in pages):
        raise ValueError("the pages of a plan must be a list of references")
    if not 1 <= len(pages) <= PLAN_PAGES:
        raise ValueError(f"a plan has 1 to {PLAN_PAGES:,} pages, not {len(pages):,}")
    return tuple(pages)


def _told(message: Mapping[str, Any]) -> list[str]:
    """Returns the ids of the nodes whose ends the run of a chunk is given beside its plan."""
    given = _object(message, "map_batch").get("given", ())
    return [str(end[0]) for end in given]


def compiled_plan(encoded: Any, *, told: Collection[str] = ()) -> CompiledPlan:
    """Returns a compiled plan of anybody's, checked against what the engine takes for granted.

    Args:
        told: ids of nodes whose ends stand beside the plan.

    Raises:
        PlanTooLarge: it should not stand in the input of a run.
        ValueError: it is none.
    """
    refuse_too_large_inline(encoded)
    return checked_graph(plan_from_json(encoded), told=told)


def plan_of_pages(head: Any, nodes: Sequence[CompiledNode]) -> CompiledPlan:
    """Returns a compiled plan that travelled in pages, checked against what the engine takes for granted.

    Args:
        head: the first page, which holds the plan without its nodes.
        nodes: those of the other pages.

    Raises:
        PlanTooLarge: a run could not hold it.
        ValueError: the pages are no plan.
    """
    if not isinstance(head, Mapping):
        raise ValueError("the first of its pages is no object")
    try:
        return checked_graph(replace(plan_from_json({**head, "nodes": []}), nodes=tuple(nodes)))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"its pages are no compiled plan: {error!r}") from None


def checked_graph(plan: CompiledPlan, *, told: Collection[str] = ()) -> CompiledPlan:
    """Returns the plan.

    Args:
        told: ids of nodes whose ends stand beside the plan.

    Raises:
        PlanTooLarge: a run could not hold it.
        ValueError: its ids or edges are none that a run could follow, or what it pursues is not known.
    """
    if (problem := graph_problem(plan, told=told)) is not None:
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
    return None if value is None else Parent(*_place(value, name="parent", parts=("run_id", "task")))


def _turn_place(value: Any) -> TurnPlace | None:
    return None if value is None else TurnPlace(*_place(value, name="session", parts=("session_workflow_id", "turn")))


def _place(value: Any, *, name: str, parts: tuple[str, str]) -> tuple[str, str]:
    """Returns the workflow that a run reports to, and what in it."""
    ids = [value.get(part) for part in parts] if isinstance(value, Mapping) else []
    if not ids or not all(isinstance(text, str) and 0 < len(text.encode(errors="replace")) <= 1000 for text in ids):
        # Temporal would refuse the report to such a run again and again, and this one would never end.
        raise MessageInvalid(f"{name!r} must have {parts[0]!r} and {parts[1]!r}, each a text of 1 to 1,000 bytes")
    return str(ids[0]), str(ids[1])


def _options(written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that are given, each as the run takes it; null is none.

    Raises:
        MessageInvalid: with everything that is wrong with them.
    """
    options: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in written.items():
        at = pointer("options", name)
        if name not in _OPTIONS:
            hint = suggestion(name, _OPTIONS) or f"there are {', '.join(_OPTIONS)}"
            problems.append(Problem("invalid_field", f"there is no option {name!r:.60}", at, hint=hint))
        elif value is not None:
            try:
                options[name] = _OPTIONS[name](value)
            except ValueError as error:
                problems.append(Problem("invalid_field", f"options.{name} {error}", at))
    if problems:
        raise MessageInvalid("; ".join(problem.text for problem in problems[:20]), problems=problems)
    return options


def max_in_flight_from_json(value: Any) -> int:
    """Returns how many tasks may run at once.

    Raises:
        ValueError: it is no such number; the text goes on from the name of the field.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a number from 1 to {MAX_IN_FLIGHT}, not {value!r:.60}")
    return min(value, MAX_IN_FLIGHT)


def deadline_from_json(value: Any) -> float:
    """Returns the seconds that a run may take.

    Raises:
        ValueError: it is no duration; the text goes on from the name of the field.
    """
    if not isinstance(value, str):
        raise ValueError(f"must be a duration such as 2h, not {value!r:.60}")
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise ValueError(f"must be a duration: {error}") from None


def _policy(value: Any) -> Policy:
    try:
        return policy_from_json(value)
    except ValueError as error:
        raise ValueError(f"is no policy: {error}") from None


def _budget(value: Any) -> Mapping[str, Any]:
    try:
        return options_to_json(budget_of_options(value))
    except ValueError as error:
        raise ValueError(f"is no budget: {error}") from None


def _model(value: Any) -> Mapping[str, Any]:
    """Returns what says which model is asked: its name alone, or an object with more."""
    try:
        return model_config_from_json({"model": value} if isinstance(value, str) else value).to_json()
    except ValueError as error:
        raise ValueError(f"is no way to ask a model: {error}") from None


def _is_true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r:.60}")
    return value


def _text_or_none(message: Mapping[str, Any], field: str) -> str | None:
    value = message.get(field)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{field!r} must be a text")
    return value


def _approved_by(value: Any) -> str | None:
    return None if value is None else str(value)[:200]


_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "max_parallel": max_in_flight_from_json,
    "deadline": deadline_from_json,
    "notify": _is_true,
    "policy": _policy,
    "approve_plan": _is_true,
    "interactive": _is_true,
    "budget": _budget,
    "compensate": _is_true,
    "model": _model,
}
"""Options of a run (docs/internals/messages.md) -> what reads the value, or says in a ValueError how it goes on."""


@dataclass(frozen=True, slots=True)
class SubPlanEnd:
    """The payload of `sub_plan_ended`: how a sub-plan ended.

    Args:
        task: id of the call that started it, `archive`, and `archive#2` of a second try.
        chunk: of the run of a chunk of a large map, what became of its items, as `map_batch_runs` reads it.
        usage: what it has used of models, and `agents` what of it each agent has.
        seen: what it has looked at, and called if it is the run of an agent.
        child_snapshot: for a run with compensation, the snapshot from which another run compensates its effects, as
            JSON; `{}` if it has no effects, `None` if they are unknown.
    """

    task: str
    status: str
    output: Any
    error: Mapping[str, Any] | None
    chunk: Any = None
    usage: Usage = NONE
    agents: Mapping[str, Usage] = field(default_factory=dict)
    seen: Lineage = NOTHING_SEEN
    child_snapshot: Any = None


def sub_plan_end_from_json(message: Any) -> SubPlanEnd:
    """Returns the report of a sub-plan.

    Raises:
        MessageInvalid: it is none.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("task"), str):
        raise MessageInvalid("a report of a sub-plan must be an object with the id of its task")
    error = message.get("error")
    try:
        output = value_from_json(message.get("output"), message.get("stored_output"))
    except ValueError as unreadable:
        raise MessageInvalid(f"the output of a sub-plan cannot be read: {unreadable}") from None
    return SubPlanEnd(
        task=message["task"],
        status=str(message.get("status")),
        output=output,
        error=error if isinstance(error, Mapping) else None,
        chunk=message.get("map_batch"),
        usage=reported_usage(message),
        agents=reported_agents(message),
        seen=told_seen(message),
        child_snapshot=message.get("child_snapshot"),
    )
