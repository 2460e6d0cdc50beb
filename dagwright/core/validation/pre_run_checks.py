"""Checks of a plan that only apply before its run: heartbeats, inputs of conditions, values.

The checks only report definite errors. They do not apply to nodes that are added to a running plan.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

from dagwright.core.errors import Note, Problem, pointer
from dagwright.core.expressions.condition_parser import Read, parse_checked_condition
from dagwright.core.expressions.references import Placeholder
from dagwright.core.model.value_schemas import JSON_NAMES
from dagwright.core.name_hints import HintBudget, format_names
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.plan_values import PlanValues
from dagwright.core.validation.value_checks import ValueChecks

MIN_HEARTBEAT = timedelta(seconds=1)
"""Minimum heartbeat timeout. The event loop of a worker with 100 calls may be blocked for almost one second; with a
shorter timeout, the server would time out the running attempts and retry them."""

_KEYWORDS = (
    "type",
    "enum",
    "const",
    "title",
    "description",
    "default",
    "prompt",
    "examples",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "items",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "definitions",
    "dependencies",
    "$ref",
    "$defs",
    "$schema",
    "$id",
    "$anchor",
    "$comment",
    "$vocabulary",
    "$dynamicRef",
    "$dynamicAnchor",
)
"""Keywords of JSON Schema 2020-12, older keywords that validators still support, and keywords of Dagwright."""


def pre_run_problems(checked_plan: CheckedPlan, hint_budget: HintBudget) -> Iterator[Problem]:
    """Yield the problems of a plan and its sub-plans. Invalid conditions are skipped, because validation reports them.

    Args:
        hint_budget: budget for comparing names.

    Complexity: linear in the references of the plan.
    """
    yield from _heartbeat_problems(checked_plan)
    yield from _input_problems(checked_plan, hint_budget)
    yield from _value_problems(checked_plan, hint_budget)
    for sub_plan in checked_plan.sub_plans.values():
        yield from pre_run_problems(sub_plan, hint_budget)


# Heartbeats.


def _heartbeat_problems(checked_plan: CheckedPlan) -> Iterator[Problem]:
    for index, node in enumerate(checked_plan.nodes):
        if node.heartbeat is not None and node.heartbeat < MIN_HEARTBEAT:
            message = "heartbeat: must be at least 1s: a busy worker may miss a shorter timeout"
            hint = "omit 'heartbeat': the default depends on the effects of the tool"
            yield Problem("invalid_field", message, _source_pointer(checked_plan, index, "heartbeat"), node.id, hint)


# Values.


def _value_problems(checked_plan: CheckedPlan, hint_budget: HintBudget) -> Iterator[Problem]:
    checks = ValueChecks(PlanValues.of_plan(checked_plan), hint_budget, JSON_NAMES)
    for index, (node, references) in enumerate(zip(checked_plan.nodes, checked_plan.references, strict=True)):
        tool = checked_plan.tools.get(node.tool or "")
        for problem in checks.problems_of(node, references, tool=tool, sub_plan=checked_plan.sub_plans.get(index)):
            yield Problem(
                problem.code, problem.message, _source_pointer(checked_plan, index, *problem.at), node.id, problem.hint
            )
    for problem in checks.problems_of_output(checked_plan.output_bindings):
        at = checked_plan.document.written_pointer(pointer(*checked_plan.base, *problem.at))
        yield Problem(problem.code, problem.message, at, None, problem.hint)


# Inputs of conditions.


def _input_problems(checked_plan: CheckedPlan, hint_budget: HintBudget) -> Iterator[Problem]:
    """Yield a problem for each undeclared input that a condition reads, if the plan declares inputs.

    A plan without declared inputs accepts all inputs that its conditions read. An input that a condition tests with
    `has(inputs.x)` is optional.
    """
    declared_inputs = _declared_inputs(checked_plan)
    if not declared_inputs:
        return
    known_inputs = {**dict.fromkeys(declared_inputs), **checked_plan.inputs}
    ids = {node.id for node in checked_plan.nodes}
    for index, node in enumerate(checked_plan.nodes):
        reads = _input_reads(node.when, ids) if node.when is not None else ()
        optional_names = {read.steps[0] for read in reads if read.steps and read.aspect == "presence"}
        read_names = dict.fromkeys(
            str(read.steps[0]) for read in reads if read.steps and read.steps[0] not in optional_names
        )
        for name in read_names:
            if name not in known_inputs:
                hint = (
                    hint_budget.suggestion(name, known_inputs)
                    or f"declare it under 'inputs', or write has(inputs.{name})"
                )
                declared_names = format_names(declared_inputs, nearest_to=name, budget=hint_budget)
                message = f"when: there is no input {name!r}; the plan declares {declared_names}"
                yield Problem("invalid_field", message, _source_pointer(checked_plan, index, "when"), node.id, hint)


def _declared_inputs(checked_plan: CheckedPlan) -> Collection[str]:
    """Return the names of the inputs that a plan declares, each once, including invalid declarations."""
    raw_inputs = checked_plan.raw_plan.get("inputs")
    return dict.fromkeys((*checked_plan.plan.inputs, *(raw_inputs if isinstance(raw_inputs, Mapping) else ())))


def _input_reads(condition: str, ids: Collection[str]) -> list[Read]:
    try:
        analysis = parse_checked_condition(condition, ids.__contains__).analysis
    except ValueError:
        return []
    return [read for read in analysis.reads if read.source == "inputs"]


def misspelt_input_notes(checked_plan: CheckedPlan, hint_budget: HintBudget) -> Iterator[Note]:
    """Yield a note for each undeclared placeholder with a name similar to a declared input.

    Args:
        hint_budget: budget for comparing names.
    """
    for name, suggestion in misspelt_inputs(checked_plan, hint_budget).items():
        node_id, path = _first_use(checked_plan, name)
        message = f"PLACEHOLDER_{name} adds the input {name!r}, which the plan does not declare; {suggestion}"
        yield Note("undeclared_input", message, node_id, path)
    for sub_plan in checked_plan.sub_plans.values():
        yield from misspelt_input_notes(sub_plan, hint_budget)


def misspelt_inputs(checked_plan: CheckedPlan, hint_budget: HintBudget) -> dict[str, str]:
    """Return the undeclared inputs with a name similar to a declared input: name -> suggestion."""
    declared_inputs = _declared_inputs(checked_plan)
    undeclared_names = [name for name in checked_plan.inputs if name not in declared_inputs] if declared_inputs else []
    return {
        name: suggestion
        for name in undeclared_names
        if (suggestion := hint_budget.suggestion(name, declared_inputs)) is not None
    }


def misspelt_keyword_notes(checked_plan: CheckedPlan, hint_budget: HintBudget) -> Iterator[Note]:
    """Yield a note for each unknown key in the schema of an input that resembles a keyword of JSON Schema.

    Args:
        hint_budget: budget for comparing names.
    """
    for name, schema in checked_plan.inputs.items():
        for key in schema:
            suggestion = hint_budget.suggestion(key, _KEYWORDS) if key not in _KEYWORDS else None
            if suggestion is not None:
                message = (
                    f"inputs.{name}.{key}: {key!r} is not a keyword of JSON Schema and has no effect; {suggestion}"
                )
                yield Note("unknown_keyword", message, None, pointer("inputs", name, key))
    for sub_plan in checked_plan.sub_plans.values():
        yield from misspelt_keyword_notes(sub_plan, hint_budget)


def _first_use(checked_plan: CheckedPlan, name: str) -> tuple[str | None, str]:
    """Return the ID and the pointer of the first node that reads an input."""
    for index, (node, references) in enumerate(zip(checked_plan.nodes, checked_plan.references, strict=True)):
        if name in references.placeholders:
            at = next((path for path, template in references.argument_bindings if Placeholder(name) in template), None)
            return node.id, _source_pointer(checked_plan, index, *(("arguments", *at) if at is not None else ()))
    return None, ""


def _source_pointer(checked_plan: CheckedPlan, index: int, *path: str | int) -> str:
    return checked_plan.document.written_pointer(pointer(*checked_plan.base, "nodes", index, *path))
