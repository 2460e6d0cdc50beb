"""What starts a run and what is sent to it, decoded from plain JSON (contract.md section 6).

Whoever sends these may be the Temporal UI or a program in another language, so every field is checked here
and what is wrong is told in one sentence.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from temporalio.api.common.v1 import Payload

from dagwright.contracts.carries import RunCarry, carry_from_json, carry_to_json
from dagwright.contracts.chunk_inputs import ChunkInput, chunk_input_from_json, chunk_input_to_json
from dagwright.contracts.decoding import json_from_bytes
from dagwright.contracts.limits import PLAN_PAGES
from dagwright.contracts.plan_limits import PlanTooLarge, graph_problem, refuse_too_large_inline
from dagwright.plan.compiled import CompiledNode, CompiledPlan, plan_from_json, plan_to_json
from dagwright.plan.durations import parse_duration
from dagwright.plan.errors import Problem, pointer
from dagwright.plan.references import Lookup, suggestion
from dagwright.plan.scheduler import MAX_IN_FLIGHT
from dagwright.plan.unfilled import unfilled_from_json, unfilled_to_json

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
class RunInput:
    """The input of `RunPlan`.

    Args:
        plan: a plan as written, in any dialect, which is compiled by an activity; or
        compiled: a compiled plan; or
        pages: references of its pages in the payload store, if it is large. Exactly one of the three is there.
        inputs, context: values by name; those of a sub-plan may lie in the payload store.
        max_in_flight: tasks at once.
        deadline_s: seconds the whole run may take.
        scope: scope of idempotency keys; `None` for a root run, whose own is taken.
        path: typed path of the run from the root, for sub-plans.
        lookups: parties that the run above, or an execution before, has looked up already.
        carry: what the execution before this one hands on; `None` for the first of a run.
        chunk: what the run of a chunk of a large map is given beside its plan.
    """

    plan: Any = None
    compiled: CompiledPlan | None = None
    pages: Sequence[str] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    max_in_flight: int = MAX_IN_FLIGHT
    deadline_s: float | None = None
    scope: str | None = None
    path: tuple[tuple[str, str], ...] = ()
    parent: Parent | None = None
    lookups: Mapping[Lookup, Any] = field(default_factory=dict)
    carry: RunCarry | None = None
    chunk: ChunkInput | None = None


def run_input_to_json(run_input: RunInput) -> dict[str, Any]:
    """Returns the JSON form of a run's input."""
    inputs = unfilled_to_json(dict(run_input.inputs))
    encoded: dict[str, Any] = {"inputs": inputs["value"], "context": dict(run_input.context)}
    if "stored" in inputs:
        encoded["stored_inputs"] = inputs["stored"]
    options: dict[str, Any] = {}
    if run_input.max_in_flight != MAX_IN_FLIGHT:
        options["max_parallel"] = run_input.max_in_flight
    if run_input.deadline_s is not None:
        options["deadline"] = _duration_text(run_input.deadline_s)
    encoded["options"] = options
    if run_input.pages:
        encoded["compiled"] = {"pages": list(run_input.pages)}
    elif run_input.compiled is not None:
        encoded["compiled"] = plan_to_json(run_input.compiled)
    else:
        encoded["plan"] = run_input.plan
    if run_input.parent is not None:
        encoded["parent"] = {"workflow_id": run_input.parent.workflow_id, "task": run_input.parent.task}
    if run_input.scope is not None:
        encoded["scope"] = run_input.scope
    if run_input.path:
        encoded["path"] = [list(step) for step in run_input.path]
    if run_input.lookups:
        encoded["lookups"] = [
            [lookup.search_text, lookup.entity_type, found] for lookup, found in run_input.lookups.items()
        ]
    if run_input.carry is not None:
        encoded["carry"] = carry_to_json(run_input.carry)
    if run_input.chunk is not None:
        encoded["chunk"] = chunk_input_to_json(run_input.chunk)
    return encoded


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
        MessageInvalid: it is not what contract.md section 6 says.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid('the input must be an object such as {"plan": {…}, "inputs": {}}')
    if ("plan" in message) == ("compiled" in message):
        raise MessageInvalid("the input must hold exactly one of 'plan' and 'compiled'")
    if "carry" in message and "compiled" not in message:
        raise MessageInvalid("the input holds a 'carry', which belongs to a compiled plan")
    options = _options(_object(message, "options"))
    compiled = message.get("compiled")
    try:
        pages = pages_of(compiled)
        return RunInput(
            plan=message.get("plan"),
            compiled=compiled_plan(compiled, told=_told(message)) if "compiled" in message and not pages else None,
            pages=pages,
            inputs=unfilled_from_json(_object(message, "inputs"), message.get("stored_inputs")),
            context=_object(message, "context"),
            max_in_flight=options.get("max_parallel", MAX_IN_FLIGHT),
            deadline_s=options.get("deadline"),
            scope=message.get("scope"),
            path=tuple((str(kind), str(name)) for kind, name in message.get("path", ())),
            parent=_parent(message.get("parent")),
            lookups={Lookup(text, kind): found for text, kind, found in message.get("lookups", ())},
            carry=carry_from_json(message["carry"]) if "carry" in message else None,
            chunk=chunk_input_from_json(message["chunk"]) if message.get("chunk") is not None else None,
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
    given = _object(message, "chunk").get("given", ())
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
        ValueError: its ids or edges are none that a run could follow.
    """
    if (problem := graph_problem(plan, told=told)) is not None:
        raise ValueError(problem)
    return plan


def _object(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MessageInvalid(f"{name!r} must be an object")
    return value


def _parent(value: Any) -> Parent | None:
    if value is None:
        return None
    ids = [value.get("workflow_id"), value.get("task")] if isinstance(value, Mapping) else []
    if not ids or not all(isinstance(part, str) and 0 < len(part.encode(errors="replace")) <= 1000 for part in ids):
        # Temporal would refuse the report to such a run again and again, and this one would never end.
        raise MessageInvalid("'parent' must name a workflow_id and a task, each a text of 1 to 1,000 bytes")
    return Parent(str(ids[0]), str(ids[1]))


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
            problems.append(Problem("invalid_field", f"there is no option {name!r:.60}; {hint}", at, hint=hint))
        elif value is not None:
            try:
                options[name] = _OPTIONS[name](value)
            except ValueError as error:
                problems.append(Problem("invalid_field", f"options.{name} {error}", at))
    if problems:
        raise MessageInvalid("; ".join(problem.message for problem in problems[:20]), problems=problems)
    return options


def _max_in_flight(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a number from 1 to {MAX_IN_FLIGHT}, not {value!r:.60}")
    return min(value, MAX_IN_FLIGHT)


def _deadline_s(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError(f"must be a duration such as 2h, not {value!r:.60}")
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise ValueError(f"must be a duration: {error}") from None


def _policy(_: Any) -> Any:
    raise ValueError("is not available yet")


_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "max_parallel": _max_in_flight,
    "deadline": _deadline_s,
    "policy": _policy,
}
"""Options of a run (contract.md section 6) -> what reads the value, or says in a ValueError how it goes on."""


@dataclass(frozen=True, slots=True)
class CancelMessage:
    """The payload of `cancel`; whatever cannot be read is left out, for a cancel must always work."""

    reason: str | None = None
    by: str | None = None


def cancel_request_from_json(message: Any) -> CancelMessage:
    """Returns what a `cancel` says; never raises, since an empty payload works too."""
    if not isinstance(message, Mapping):
        return CancelMessage(reason=message if isinstance(message, str) else None)
    reason, by = message.get("reason"), message.get("by")
    return CancelMessage(
        reason=str(reason)[:1000] if reason is not None else None,
        by=str(by)[:200] if by is not None else None,
    )


@dataclass(frozen=True, slots=True)
class SubPlanEnd:
    """The payload of `sub_plan_ended`: how a sub-plan ended, for the task that started it.

    Args:
        chunk: of the run of a chunk of a large map, what became of its items, as `chunk_runs` reads it.
    """

    task: str
    status: str
    output: Any
    error: Mapping[str, Any] | None
    chunk: Any = None


def sub_plan_end_from_json(message: Any) -> SubPlanEnd:
    """Returns the report of a sub-plan.

    Raises:
        MessageInvalid: it is none.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("task"), str):
        raise MessageInvalid("a report of a sub-plan must be an object with the id of its task")
    error = message.get("error")
    try:
        output = unfilled_from_json(message.get("output"), message.get("stored_output"))
    except ValueError as unreadable:
        raise MessageInvalid(f"the output of a sub-plan cannot be read: {unreadable}") from None
    return SubPlanEnd(
        task=message["task"],
        status=str(message.get("status")),
        output=output,
        error=error if isinstance(error, Mapping) else None,
        chunk=message.get("chunk"),
    )
