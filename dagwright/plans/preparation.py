"""Compile a document with its inputs: shared by `check`, `run` and the activity `compile_plan`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import INPUTS_LIMIT_BYTES, MAX_PLAN_PART_BYTES
from dagwright.core.compiler.compilation import compile_plan, compiled_form, unavailable_features
from dagwright.core.compiler.regions import REGION_PREFIX, with_regions
from dagwright.core.errors import MAX_PROBLEMS, Note, PlanInvalid, Problem, pointer
from dagwright.core.expressions.condition_parser import parse_checked_condition
from dagwright.core.expressions.references import Lookup
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.agents import AgentCard, tool_of_agent
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.document import Document
from dagwright.core.model.policy import INLINE_AGENT_HINT, INLINE_AGENT_NOT_ALLOWED, Policy
from dagwright.core.model.tools import AGENT_PREFIX, Effects, ToolDeclaration, is_inline_agent
from dagwright.core.name_hints import (
    DEFAULT_HINT_COST,
    HintBudget,
    cut_name,
    format_names,
    suggestion,
)
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.inputs import problems_of_inputs, problems_of_missing_inputs
from dagwright.core.validation.pre_run_checks import (
    misspelt_input_notes,
    misspelt_inputs,
    misspelt_keyword_notes,
    pre_run_problems,
)
from dagwright.core.validation.validation import inspect_document
from dagwright.dialects import to_document
from dagwright.dialects.json_reader import json_problems
from dagwright.dialects.written_plan import read_written_plan
from dagwright.dialects.written_values import TRUNCATED, Repair
from dagwright.features.plan_edits.accepted_nodes import append_accepted_nodes
from dagwright.features.plan_edits.sent_tools import with_tools_for_answers
from dagwright.planning.agent_loop.agent_nodes import with_agent_sub_plans
from dagwright.protocol.plan_limits import PlanTooLarge, reject_too_large

_MAX_PRE_RUN_PROBLEMS = 100
_MAX_NOTES = 20


def check_plan(
    source: Any,
    tools: Mapping[str, ToolDeclaration],
    *,
    dialect: str | None = None,
    context: Mapping[str, Any] | None = None,
    allow_unknown_tools: bool = False,
    accepted_nodes: Sequence[Any] = (),
) -> CheckedPlan:
    """Check a document in any dialect and return the checked plan.

    Args:
        source: JSON value of the document, or the error that was raised when its text was read. The parts that could be
            read, in `document` of the error, are checked too.
        accepted_nodes: nodes that have started already, as in `dagwright.features.plan_edits.accepted_nodes`.

    Raises:
        PlanInvalid: with all problems of the plan.
    """
    read_error = source if isinstance(source, PlanInvalid) else None
    if read_error is not None and read_error.document is None:
        raise read_error
    if read_error is None:
        _reject_surrogates(source)
    try:
        document = to_document(
            read_error.document if read_error else source, dialect=dialect, context=context, tools=tools
        )
        checked = _check_document(
            append_accepted_nodes(document, accepted_nodes), tools, allow_unknown_tools=allow_unknown_tools
        )
    except PlanInvalid as invalid:
        raise (_merged_errors(read_error, invalid) if read_error else invalid) from None
    if read_error is not None:
        raise read_error
    return checked


def _reject_surrogates(value: Any) -> None:
    """Reject a value with lone surrogates, which no library can encode.

    Raises:
        PlanInvalid: the value has a lone surrogate.
    """
    try:
        pydantic_core.to_json(value)
    except ValueError:
        if problems := json_problems(value):
            raise PlanInvalid(problems) from None


def _check_document(
    document: Document, tools: Mapping[str, ToolDeclaration], *, allow_unknown_tools: bool
) -> CheckedPlan:
    """Return the checked plan of a document.

    Raises:
        PlanInvalid: single values are invalid, or the whole plan has problems that would certainly make a run fail.
    """
    checked, problems = inspect_document(document, tools=tools, allow_unknown_tools=allow_unknown_tools)
    hint_budget = HintBudget(DEFAULT_HINT_COST)
    plan_problems = islice(pre_run_problems(checked, hint_budget), _MAX_PRE_RUN_PROBLEMS) if checked is not None else ()
    pointers = {problem.pointer for problem in problems}
    all_problems = [*problems, *(problem for problem in plan_problems if problem.pointer not in pointers)]
    if checked is None or all_problems:
        raise PlanInvalid(all_problems)
    possible_notes = chain(misspelt_input_notes(checked, hint_budget), misspelt_keyword_notes(checked, hint_budget))
    if notes := [*islice(possible_notes, _MAX_NOTES)]:
        return replace(checked, notes=[*checked.notes, *notes])
    return checked


def check_written_plan(
    text: str,
    tools: Mapping[str, ToolDeclaration],
    *,
    dialect: str | None = None,
    context: Mapping[str, Any] | None = None,
    allow_unknown_tools: bool = False,
    accepted_nodes: Sequence[Any] = (),
) -> tuple[CheckedPlan, Sequence[Repair]]:
    """Check the plan in a model's response. Return the checked plan, and the repairs that were needed to read the text.

    Args:
        allow_unknown_tools: accept unknown tools, and do not repair the names of tools.
        accepted_nodes: nodes that have started already, as in `dagwright.features.plan_edits.accepted_nodes`.

    Raises:
        PlanInvalid: with all problems and ambiguities.
    """
    known_tools = {} if allow_unknown_tools else tools
    document, repairs = read_written_plan(text, dialect=dialect, context=context, tools=known_tools)
    try:
        return _check_document(
            append_accepted_nodes(document, accepted_nodes), tools, allow_unknown_tools=allow_unknown_tools
        ), repairs
    except PlanInvalid as invalid:
        # A truncated plan often has further problems that result from the missing part.
        cut_off_problems = [
            Problem(repair.code, repair.message, repair.pointer) for repair in repairs if repair.code == TRUNCATED
        ]
        raise PlanInvalid([*cut_off_problems, *invalid.problems]) from None


def unknown_tools(
    document: Any,
    tools: Mapping[str, ToolDeclaration],
    *,
    context: Mapping[str, Any] | None = None,
    dialect: str | None = None,
) -> list[str]:
    """Return the tools of a plan and its sub-plans that are not among `tools`, in the order of their nodes.

    An unknown agent is returned as two names: its own name, and its name with `AGENT_PREFIX`.

    Raises:
        PlanInvalid: the plan has other problems.
    """
    unknown_names: dict[str, None] = {}
    plans_to_visit = [check_plan(document, tools, context=context, dialect=dialect, allow_unknown_tools=True)]
    while plans_to_visit:
        checked = plans_to_visit.pop()
        unknown_names |= dict.fromkeys(node.tool for node in checked.nodes if node.tool and node.tool not in tools)
        agent_names = list(filter(None, (node.agent_name for node in checked.nodes)))
        unknown_agents = [name for name in agent_names if tool_of_agent(name, checked.tools) is None]
        cards = [card for card in map(partial(inline_card, checked), agent_names) if card is not None]
        unknown_names |= dict.fromkeys(name for card in cards for name in card.tools if name not in tools)
        unknown_names |= dict.fromkeys(name for agent in unknown_agents for name in (AGENT_PREFIX + agent, agent))
        plans_to_visit += checked.sub_plans.values()
    return list(unknown_names)


def _merged_errors(read_error: PlanInvalid, check_error: PlanInvalid) -> PlanInvalid:
    """Merge two errors; a value that could not be read is reported only once."""
    reported_pointers = {problem.pointer for problem in read_error.problems}
    return PlanInvalid(
        [
            *read_error.problems,
            *(problem for problem in check_error.problems if problem.pointer not in reported_pointers),
        ]
    )


def inline_card(checked: CheckedPlan, agent: str | None) -> AgentCard | None:
    """Return the card of an agent that is defined in the plan itself; `None` for other agents."""
    if agent is None or not is_inline_agent(agent):
        return None
    tool = checked.tools.get(AGENT_PREFIX + agent)
    return tool.agent if tool is not None else None


def policy_problems(checked: CheckedPlan, policy: Policy) -> list[Problem]:
    """Return a problem for each inline agent of a plan that the policy of the run rejects."""
    problems = []
    for index, node in enumerate(checked.nodes):
        card = inline_card(checked, node.agent_name)
        if card is not None and policy.verdict_on_inline_agent(card.tools) == "deny":
            at = checked.document.written_pointer(pointer(*checked.base, "nodes", index, "agent"))
            problems.append(Problem("not_allowed", INLINE_AGENT_NOT_ALLOWED, at, node.id, INLINE_AGENT_HINT))
    return [
        *problems,
        *(problem for sub_plan in checked.sub_plans.values() for problem in policy_problems(sub_plan, policy)),
    ]


def unused_names(checked: CheckedPlan, names: Iterable[str]) -> list[str]:
    """Return the names of inputs that the plan neither declares nor reads."""
    undeclared_names = [name for name in names if name not in checked.inputs]
    read_names = _inputs_of_conditions(checked) if undeclared_names else frozenset[str]()
    return [name for name in undeclared_names if name not in read_names] if _ALL_NAMES not in read_names else []


def unused_input_problems(checked: CheckedPlan, names: Iterable[str]) -> list[Problem]:
    """Return a problem for each input name that the plan neither declares nor reads, at most `MAX_PROBLEMS + 1`."""
    unused = unused_names(checked, names)
    used_names = [*checked.inputs, *sorted(_inputs_of_conditions(checked))] if unused else []
    return unknown_input_problems(unused, used_names)


def unknown_input_problems(names: Sequence[str], known_names: Collection[str]) -> list[Problem]:
    """Return a problem for each unknown input name, for at most `MAX_PROBLEMS + 1` names.

    Args:
        names: names that are not inputs of the plan.
        known_names: names of the inputs, for hints.
    """
    hint_budget = HintBudget(DEFAULT_HINT_COST)
    return [
        Problem(
            "invalid_field",
            f"the plan has no input {name!r}",
            pointer("inputs", name),
            hint=hint_budget.suggestion(name, known_names)
            or (f"it has {format_names(known_names)}" if known_names else "it has none"),
        )
        for name in map(cut_name, names[: MAX_PROBLEMS + 1])
    ]


def notes_of_context(checked: CheckedPlan, names: Iterable[str]) -> list[Note]:
    """Return a note for each name of the context that the plan does not use.

    Args:
        names: names that the context defines, without `@`.
    """
    used_names = list(dict.fromkeys(_context_names(checked.document)))
    names_text = f"it uses {', '.join(f'@{name}' for name in used_names)}" if used_names else "it uses no context names"
    return [
        Note(
            "unused_context",
            f"the plan does not use @{name:.80}, which `context` gives; {suggestion(name, used_names) or names_text}",
        )
        for name in names
        if name not in used_names
    ]


def _context_names(document: Document) -> Iterator[str]:
    for part in document.bindings.values():
        if isinstance(part, Lookup) and part.known_as is not None:
            yield part.known_as.removeprefix("@")
    for inner in document.sub_documents.values():
        yield from _context_names(inner)


_ALL_NAMES = ""
"""Wildcard for all names; not a valid name."""


def _inputs_of_conditions(checked: CheckedPlan) -> frozenset[str]:
    """Return the names of the inputs that conditions read. Such inputs need no declaration."""
    ids = {node.id for node in checked.nodes}
    reads = (parse_checked_condition(node.when, ids.__contains__).analysis.reads for node in checked.nodes if node.when)
    return frozenset(
        str(read.steps[0]) if read.steps else _ALL_NAMES
        for node_reads in reads
        for read in node_reads
        if read.source == "inputs"
    )


def input_problems(checked: CheckedPlan, values: Mapping[str, Any], *, given_names: Collection[str]) -> list[Problem]:
    """Return a problem for each missing input and for each invalid input value.

    Args:
        given_names: names of the inputs that will have a value, even if the value is not known yet.
    """
    missing_problems = problems_of_missing_inputs(checked.inputs, dict.fromkeys(given_names))
    if missing_problems:
        hint_by_name = misspelt_inputs(checked, HintBudget(DEFAULT_HINT_COST))
        problems = {pointer("inputs", name): _misspelt_problem(name, hint) for name, hint in hint_by_name.items()}
        missing_problems = [problems.get(problem.pointer, problem) for problem in missing_problems]
    return [*missing_problems, *problems_of_inputs(checked.inputs, values)]


def _misspelt_problem(name: str, hint: str) -> Problem:
    message = f"the input {name!r} is missing: PLACEHOLDER_{name} uses it, and the plan does not declare it"
    return Problem("missing_input", message, pointer("inputs", name), hint=hint)


def prepare_plan(checked: CheckedPlan, inputs: Mapping[str, Any]) -> CompiledPlan:
    """Compile a checked plan with its inputs.

    Raises:
        PlanInvalid: an input is missing or has the wrong type; the plan uses features that cannot run yet; or it is too
            large for the input of a run.
    """
    return _compile_checked_plan(checked, inputs, input_problems(checked, inputs, given_names=inputs))


def prepare_plan_with_missing_inputs(checked: CheckedPlan, inputs: Mapping[str, Any]) -> CompiledPlan:
    """Compile a checked plan whose run requests missing inputs.

    Raises:
        PlanInvalid: as `prepare_plan`, except for missing inputs.
    """
    return _compile_checked_plan(checked, inputs, problems_of_inputs(checked.inputs, inputs))


def _compile_checked_plan(checked: CheckedPlan, inputs: Mapping[str, Any], problems: Sequence[Problem]) -> CompiledPlan:
    if problems:
        raise PlanInvalid([*problems, *unavailable_features(checked)])
    compiled = with_regions(with_agent_sub_plans(compile_plan(checked), checked.tools))
    compiled = with_tools_for_answers(compiled, checked.tools)
    if (size := encoded_size(dict(inputs))) > INPUTS_LIMIT_BYTES:
        message = f"the inputs have {size:,} bytes; at most {INPUTS_LIMIT_BYTES:,} can be given to a run"
        raise PlanInvalid([Problem("too_large", message, hint="put them into a file and give its name")])
    _reject_too_large(compiled, checked)
    return compiled


def compile_within_limits(checked: CheckedPlan) -> CompiledPlan:
    """Return the compiled form of a valid plan, or reject the plan if it is too large for a run.

    If the plan certainly becomes a single region that fits into a run, compiling it would only take time. For such a
    plan, the result has only the node of the region, without inner nodes.

    Raises:
        PlanInvalid: the plan is too large.
    """
    if _fits_as_one_region(checked):
        return CompiledPlan(nodes=(CompiledNode(REGION_PREFIX, kind="region", inner_count=len(checked.nodes)),))
    compiled = with_regions(with_agent_sub_plans(compiled_form(checked), checked.tools))
    _reject_too_large(compiled, checked)
    return compiled


def _fits_as_one_region(checked: CheckedPlan) -> bool:
    """Return whether a plan certainly becomes a single region that fits into a run."""
    tools = [checked.tools.get(name or "") for name in {node.tool for node in checked.nodes}]
    region_tools = [
        tool
        for tool in tools
        if tool is not None and tool.effects is Effects.PURE and not tool.is_foreign and tool.max_parallel is None
    ]
    if len(region_tools) < len(tools) or len({tool.task_queue for tool in region_tools}) != 1:
        return False
    if any(node.for_each or node.join != "all" or node.retry or node.heartbeat for node in checked.nodes):
        return False
    plan = checked.plan
    other_parts = [plan.title, plan.metadata, plan.output, checked.inputs, [tool.input_schema for tool in region_tools]]
    # The compiled form of a reference has a few times as many bytes as its text.
    return encoded_size(other_parts) < MAX_PLAN_PART_BYTES // 8


def _reject_too_large(compiled: CompiledPlan, checked: CheckedPlan) -> None:
    try:
        reject_too_large(compiled)
    except PlanTooLarge as error:
        node_index = next((number for number, node in enumerate(checked.nodes) if node.id == error.node_id), None)
        node_pointer = checked.document.written_pointer(pointer("nodes", node_index)) if node_index is not None else ""
        raise PlanInvalid([Problem("too_large", str(error), node_pointer, error.node_id)]) from None
