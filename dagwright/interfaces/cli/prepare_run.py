"""Prepare a run before there is a server: read the plan, load its tools, get its inputs, compile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from dagwright.client.starts import NO_INPUT_FIELDS, RunStartOptions, StartRequest
from dagwright.core.boundary.limits import MAX_NOTES
from dagwright.core.compiler.plan_text import changing_node_count, plan_summary
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import default_policy
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.dialects.written_values import TRUNCATED, Repair, summarize_repairs
from dagwright.features.compensation.compensation import compensation_notes
from dagwright.interfaces.cli.command_arguments import account_name, seconds_of_option
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.interfaces.cli.input_prompts import ask_approval, ask_inputs
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plan_input import (
    PlanSource,
    convert_inputs,
    parse_budget,
    parse_context,
    parse_fairness,
    parse_pairs,
    parse_tags,
    read_inputs_file,
    read_plan,
    read_policy,
    read_raw_text,
)
from dagwright.interfaces.cli.run_commands import RunArguments
from dagwright.plans.preparation import (
    check_plan,
    check_written_plan,
    input_problems,
    notes_of_context,
    policy_problems,
    prepare_plan,
    prepare_plan_with_missing_inputs,
    unused_input_problems,
    unused_names,
)
from dagwright.protocol.sessions import SessionRecord
from dagwright.toolset.toolset import Toolset


def prepare_run(
    arguments: RunArguments,
    toolset: Toolset,
    output: Output,
    session: SessionRecord | None = None,
    *,
    source: PlanSource | None = None,
    allow_unknown_tools: bool = False,
) -> StartRequest:
    """Prepare the run of a plan, and ask the user for missing inputs if possible.

    Args:
        session: session in which the run is a turn. A turn may be prepared again, so this function does not ask for
            missing inputs: the run requests them.
        source: plan of a batch; the user is not asked for its inputs. `None` means the file in `arguments`.
        allow_unknown_tools: accept unknown tools and agents, in order to find an existing run.

    Raises:
        PlanInvalid: the plan or its inputs are invalid.
        CommandError: an option is invalid.
    """
    budget = parse_budget(arguments.budget, is_interactive=not arguments.non_interactive)
    model = None if arguments.model is None else {"model": arguments.model}
    is_compensating, is_interactive = arguments.is_compensating, not arguments.non_interactive
    input_fields = replace(
        NO_INPUT_FIELDS, budget=budget, model=model, compensate=is_compensating, is_interactive=is_interactive
    )
    selected_policy = read_policy(arguments.policy_file) or (session.policy if session is not None else None)
    options = RunStartOptions(
        deadline_s_of(arguments.deadline),
        selected_policy,
        input_fields=input_fields,
        tags=parse_tags(arguments.tags),
        fairness=parse_fairness(arguments.fairness_key, arguments.fairness_weight),
    )
    context = parse_context(arguments.context)
    values_by_name: dict[str, Any] = {**(session.names if session is not None else {}), **context}
    input_texts = parse_pairs(arguments.inputs, option="--input")
    inputs = read_inputs_file(arguments.inputs_file)
    if arguments.is_repairing:
        source_plan, checked_plan, repairs = _repair_plan(
            arguments, toolset, output, context=values_by_name, allow_unknown_tools=allow_unknown_tools
        )
    else:
        source_plan, checked_plan, repairs = _check_plan(
            arguments, toolset, source, context=values_by_name, allow_unknown_tools=allow_unknown_tools
        )
    policy = options.policy or default_policy("model" if arguments.approve_plan else "person")
    if problems := policy_problems(checked_plan, policy):
        raise PlanInvalid(problems)
    if source is not None:
        # The plans of a batch may have different inputs; `run_batch` reports inputs that no plan of the batch has.
        input_texts, inputs = _used_values(checked_plan, input_texts), _used_values(checked_plan, inputs)
    for note in notes_of_context(checked_plan, context) if source is None else ():
        output.log(one_line(f"note: {note.message}", limit=500))
    converted_inputs, conversion_problems = convert_inputs(checked_plan.inputs, input_texts)
    problems = [*unused_input_problems(checked_plan, input_texts), *conversion_problems]
    for problem in unused_input_problems(checked_plan, inputs):
        output.log(f"--input-file: {arguments.inputs_file}: ignored, {problem.message}; {problem.hint}")
    values: dict[str, JsonValue] = {**inputs, **converted_inputs}
    if problems:
        input_errors = input_problems(checked_plan, values, given_names=[*values, *input_texts])
        raise PlanInvalid([*problems, *input_errors])
    run_can_request_inputs = arguments.is_detached or session is not None
    can_ask = not arguments.non_interactive and not run_can_request_inputs and source is None and output.can_ask
    if can_ask:
        values = ask_inputs(checked_plan.inputs, values)
    # A repeated start must have an equal document, so the document omits the names of the session, which may change.
    source_document = {"plan": source_plan, "dialect": checked_plan.dialect, "context": context}
    # Detached runs and turns start without the missing inputs, and request them from a person.
    prepare = (
        prepare_plan_with_missing_inputs if run_can_request_inputs and not arguments.non_interactive else prepare_plan
    )
    plan = prepare(checked_plan, values)
    if arguments.approve_plan or (policy.changes_need_plan_approval and changing_node_count(plan)):
        options = _with_approval(options, plan, can_ask=can_ask)
    notes = [repair.to_note().to_json() for repair in summarize_repairs(repairs)[:MAX_NOTES]]
    if arguments.is_compensating:
        for note in compensation_notes(plan)[:MAX_NOTES]:
            output.log(one_line(f"note: {note.message}", limit=500))
    if notes:
        options = replace(options, input_fields=replace(options.input_fields, notes=notes))
    return StartRequest(plan, source_document, values, options, tools=toolset.references)


def _used_values(checked_plan: CheckedPlan, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the inputs that the plan has."""
    unused_input_names = {*unused_names(checked_plan, values)}
    return {name: value for name, value in values.items() if name not in unused_input_names}


def _check_plan(
    arguments: RunArguments,
    toolset: Toolset,
    source: PlanSource | None,
    *,
    context: Mapping[str, Any],
    allow_unknown_tools: bool,
) -> tuple[Any, CheckedPlan, Sequence[Repair]]:
    """Return the plan as written, the checked plan, and an empty list of repairs."""
    source_plan = read_plan(arguments.plan) if source is None else source.plan
    checked_plan = check_plan(
        source_plan,
        toolset.declarations(),
        dialect=arguments.dialect,
        context=context,
        allow_unknown_tools=allow_unknown_tools,
    )
    return source_plan, checked_plan, ()


def _repair_plan(
    arguments: RunArguments, toolset: Toolset, output: Output, *, context: Mapping[str, Any], allow_unknown_tools: bool
) -> tuple[Any, CheckedPlan, Sequence[Repair]]:
    """Return the model's response, the repaired plan and the repairs; log the repairs.

    Raises:
        PlanInvalid: the plan is invalid, ambiguous or incomplete.
    """
    text = read_raw_text(arguments.plan)
    if isinstance(text, PlanInvalid):
        raise text
    tools = toolset.declarations()
    checked_plan, repairs = check_written_plan(
        text, tools, dialect=arguments.dialect, context=context, allow_unknown_tools=allow_unknown_tools
    )
    for repair in summarize_repairs(repairs):
        output.log(f"repaired: {one_line(repair.message, limit=500)}")
        if repair.code == TRUNCATED:
            hint = "ask the model for the rest, or complete the plan manually"
            raise PlanInvalid([Problem(TRUNCATED, f"a part of the plan is missing: {repair.message}", hint=hint)])
    return text, checked_plan, repairs


def _with_approval(options: RunStartOptions, plan: CompiledPlan, *, can_ask: bool) -> RunStartOptions:
    """Return the options with the approval of the user, or with `needs_approval` if the user cannot be asked now.

    Raises:
        CommandError: the user rejects the plan.
    """
    if not can_ask:
        return replace(options, needs_approval=True)
    if not ask_approval(plan_summary(plan)):
        raise CommandError("the plan was not approved; nothing has run", code=CommandErrorCode.REJECTED)
    return replace(options, approved_by=account_name() or "terminal")


def deadline_s_of(deadline: str | None) -> float | None:
    """Return the seconds of `--deadline`.

    Raises:
        CommandError: the value is not a duration.
    """
    return seconds_of_option("--deadline", deadline)
