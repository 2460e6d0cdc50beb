"""What `run` does before there is a server: read the plan, find its tools, get its inputs, compile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from dagwright.client.starts import NO_EXTRAS, RunOptions, StartRequest
from dagwright.core.boundary.limits import NOTES
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.model.policy import default_policy
from dagwright.core.model.times import parse_duration
from dagwright.core.validation.checked_plan import Checked
from dagwright.dialects.written_values import CUT_OFF, Repair, folded
from dagwright.features.compensation.compensation import compensation_notes
from dagwright.features.feedback.plan_text import changes_of, plan_words
from dagwright.interfaces.cli.account import account_name
from dagwright.interfaces.cli.asking import ask_inputs, ask_leave
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plans import (
    PlanSource,
    read_context,
    read_inputs_file,
    read_pairs,
    read_plan,
    read_policy,
    read_tags,
    read_written,
    typed_inputs,
)
from dagwright.interfaces.cli.requests import RunRequest
from dagwright.interfaces.cli.terms import read_budget
from dagwright.plans.preparation import (
    check_plan,
    check_written_plan,
    input_problems,
    notes_of_context,
    policy_problems,
    prepare_plan,
    prepare_to_ask,
    unused_inputs,
    unused_names,
)
from dagwright.protocol.sessions import Session
from dagwright.toolset.toolset import Toolset


def prepare_run(
    request: RunRequest,
    toolset: Toolset,
    output: Output,
    session: Session | None = None,
    *,
    source: PlanSource | None = None,
    any_tool: bool = False,
) -> StartRequest:
    """Returns what the request asks for, asking a person for missing inputs if one is there.

    Args:
        session: whose turn it is. Such a run asks itself for what is missing: it may have to be prepared again.
        source: one plan of a batch, which asks for no inputs here; `None` reads the file of the request.
        any_tool: accept tools and agents that are missing: enough to find a run of the plan, not to start one.

    Raises:
        PlanInvalid: the plan or its inputs are wrong.
        CommandRefused: an option is.
    """
    budget = read_budget(request.budget, is_asking=request.is_asking)
    model = None if request.model is None else {"model": request.model}
    is_whole, asks = request.is_all_or_nothing, request.is_asking
    beside = replace(NO_EXTRAS, budget=budget, model=model, compensate=is_whole, asks=asks)
    chosen = read_policy(request.policy_file) or (session.policy if session is not None else None)
    options = RunOptions(deadline_s_of(request.timeout), chosen, beside=beside, tags=read_tags(request.tags))
    context = read_context(request.context)
    known: dict[str, Any] = {**(session.names if session is not None else {}), **context}
    texts = read_pairs(request.inputs, option="--input")
    given = read_inputs_file(request.inputs_file)
    if request.is_repairing:
        raw, checked, repairs = _repaired(request, toolset, output, context=known, any_tool=any_tool)
    else:
        raw, checked, repairs = _strict(request, toolset, source, context=known, any_tool=any_tool)
    policy = options.policy or default_policy("model" if request.is_by_model else "person")
    if refused := policy_problems(checked, policy):
        raise PlanInvalid(refused)
    if source is not None:
        # The plans of a batch may have different inputs; `run_batch` reports the inputs that none of them has.
        texts, given = _used_by(checked, texts), _used_by(checked, given)
    for note in notes_of_context(checked, context) if source is None else ():
        output.tell(one_line(f"note: {note.message}", limit=500))
    typed, problems = typed_inputs(checked.inputs, texts)
    problems = [*unused_inputs(checked, texts), *problems]
    for problem in unused_inputs(checked, given):
        output.tell(f"--input-file: {request.inputs_file}: {problem.message}, so it is not used; {problem.hint}")
    values: dict[str, JsonValue] = {**given, **typed}
    if problems:
        wrong = input_problems(checked, values, given=[*values, *texts])
        raise PlanInvalid([*problems, *wrong])
    asks_itself = request.is_detached or session is not None
    can_ask = request.is_asking and not asks_itself and source is None and output.can_ask
    if can_ask:
        values = ask_inputs(checked.inputs, values)
    # What tells the run from others of its id is what was asked, and not what the session knew then.
    source_document = {"plan": raw, "dialect": checked.dialect, "context": context}
    # A run that is left to the background asks for what is missing itself.
    prepare = prepare_to_ask if asks_itself and request.is_asking else prepare_plan
    plan = prepare(checked, values)
    if request.is_by_model or (policy.approves_changes and changes_of(plan)):
        options = _with_approval(options, plan, can_ask=can_ask)
    notes = [repair.to_note().to_json() for repair in folded(repairs)[:NOTES]]
    if request.is_all_or_nothing:
        for note in compensation_notes(plan)[:NOTES]:
            output.tell(one_line(f"note: {note.message}", limit=500))
    if notes:
        options = replace(options, beside=replace(options.beside, notes=notes))
    return StartRequest(plan, source_document, values, options, tools=toolset.references)


def _used_by(checked: Checked, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of inputs that a plan has."""
    unused = {*unused_names(checked, values)}
    return {name: value for name, value in values.items() if name not in unused}


def _strict(
    request: RunRequest, toolset: Toolset, source: PlanSource | None, *, context: Mapping[str, Any], any_tool: bool
) -> tuple[Any, Checked, Sequence[Repair]]:
    """Return the plan as written and as checked, without repairs."""
    raw = read_plan(request.plan) if source is None else source.plan
    tools, dialect = toolset.declarations(), request.dialect
    return raw, check_plan(raw, tools, dialect=dialect, context=context, any_tool=any_tool), ()


def _repaired(
    request: RunRequest, toolset: Toolset, output: Output, *, context: Mapping[str, Any], any_tool: bool
) -> tuple[Any, Checked, Sequence[Repair]]:
    """Returns a model's answer, the plan in it, and what was repaired to read it, which is told too.

    Raises:
        PlanInvalid: it is wrong or ambiguous, or only a part of a plan.
    """
    text = read_written(request.plan)
    if isinstance(text, PlanInvalid):
        raise text
    tools = toolset.declarations()
    checked, repairs = check_written_plan(text, tools, dialect=request.dialect, context=context, any_tool=any_tool)
    for repair in folded(repairs):
        output.tell(f"repaired: {one_line(repair.message, limit=500)}")
        if repair.code == CUT_OFF:
            hint = "have the rest written, or close the plan by hand if this is all of it"
            raise PlanInvalid([Problem(CUT_OFF, f"a part of the plan is missing: {repair.message}", hint=hint)])
    return text, checked, repairs


def _with_approval(options: RunOptions, plan: CompiledPlan, *, can_ask: bool) -> RunOptions:
    """Return the options with the approval of a plan that a model wrote: given here, or requested by the run.

    Raises:
        CommandRefused: the person says no.
    """
    if not can_ask:
        return replace(options, needs_approval=True)
    if not ask_leave(plan_words(plan)):
        raise CommandRefused("the plan was not approved; nothing has run", status="rejected")
    return replace(options, approved_by=account_name() or "somebody at the terminal")


def deadline_s_of(timeout: str | None) -> float | None:
    """Returns the seconds of a `--deadline`.

    Raises:
        CommandRefused: it is no duration.
    """
    return seconds_of_option("--deadline", timeout)


def seconds_of_option(name: str, written: str | None) -> float | None:
    """Returns the seconds of an option that is a duration; `None` if it was not given.

    Raises:
        CommandRefused: it is no duration.
    """
    if written is None:
        return None
    try:
        return parse_duration(written).total_seconds()
    except ValueError as error:
        raise CommandRefused(f"{name}: {error}") from None
