"""Read, check and compile a plan that a Python program starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dagwright.client.options import PlanOptions, model_config, run_options
from dagwright.client.starts import StartRequest
from dagwright.core.boundary.limits import MAX_NOTES
from dagwright.core.compiler.plan_text import changing_node_count
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.policy import default_policy
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.dialects.json_reader import json_problems
from dagwright.dialects.reading import inline_files, parse_plan_text, read_plan_file, read_text_file
from dagwright.dialects.written_values import TRUNCATED, Repair, summarize_repairs
from dagwright.plans.plan import Plan
from dagwright.plans.preparation import (
    check_plan,
    check_written_plan,
    policy_problems,
    prepare_plan,
    prepare_plan_with_missing_inputs,
    unused_input_problems,
)
from dagwright.protocol.sessions import SessionRecord
from dagwright.tools.spec import ToolSpec

_FILE_SUFFIXES = (".yaml", ".yml", ".json", ".txt", ".plan")


PlanSource = Plan | Mapping[str, Any] | str | Path
"""A `Plan`, a JSON object, the text of a plan, or the path of a file. A path may be a string if it ends in one of
`_FILE_SUFFIXES`.
"""


def plan_tools(plan: PlanSource) -> Sequence[ToolSpec]:
    """Return the tools that were added to a plan built in Python."""
    return plan.tools if isinstance(plan, Plan) else ()


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """A plan as its author wrote it.

    Args:
        document: JSON value of the plan, including sub-plans from files. If the plan is to be repaired: its text.
        file_name: name of the file with the plan; `None` if the plan is not from a file.
        dialect: `None` to detect the dialect.
    """

    document: Any
    file_name: str | None = None
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class PlanStart:
    """A plan with the inputs and options of its run.

    Args:
        allow_unknown_tools: accept unknown tools. Used only to find an existing run of the plan.
    """

    plan: WrittenPlan
    inputs: Mapping[str, Any] = field(default_factory=dict)
    options: PlanOptions = field(default_factory=PlanOptions)
    allow_unknown_tools: bool = False


def read_plan(plan: PlanSource) -> WrittenPlan:
    """Read a plan.

    Only a plan in a file may name files as sub-plans, by paths relative to its folder. An object or a text may come
    from an untrusted source, so no files are read for it.

    Raises:
        PlanInvalid: the plan cannot be read.
    """
    if isinstance(plan, Mapping):
        return WrittenPlan(dict(plan))
    if (file := _file_of(plan)) is not None:
        return WrittenPlan(inline_files(read_plan_file(file), base=file.parent), file.name)
    if isinstance(plan, str):
        return WrittenPlan(parse_plan_text(plan, name="the plan"))
    if isinstance(plan, Plan):
        return WrittenPlan(plan.document, dialect=plan.dialect)
    message = f"a plan is a Plan, an object, a text or a file, not {type(plan).__name__}"
    raise PlanInvalid([Problem("invalid_field", message)])


def read_plan_to_repair(plan: PlanSource) -> WrittenPlan:
    """Read the text of a plan that a model wrote.

    Raises:
        PlanInvalid: the plan cannot be read, or is not a text.
    """
    if (file := _file_of(plan)) is not None:
        return WrittenPlan(read_text_file(file), file.name)
    if isinstance(plan, str):
        return WrittenPlan(plan)
    message = f"repair=True repairs the text of a plan, not {type(plan).__name__}"
    raise PlanInvalid([Problem("invalid_field", message)])


def _file_of(plan: PlanSource) -> Path | None:
    if isinstance(plan, Path):
        return plan
    is_file = isinstance(plan, str) and "\n" not in plan and plan.strip().lower().endswith(_FILE_SUFFIXES)
    return Path(str(plan)) if is_file else None


def _problems_of_inputs(inputs: object) -> list[Problem]:
    if not isinstance(inputs, Mapping):
        return [Problem("invalid_inputs", f"inputs are an object, not {type(inputs).__name__}", "/inputs")]
    return [
        replace(problem, message=f"inputs: {problem.message}") for problem in json_problems(dict(inputs), at="/inputs")
    ]


def prepare_start(
    start: PlanStart, tools: Mapping[str, ToolDeclaration], session: SessionRecord | None = None
) -> StartRequest:
    """Check and compile a plan.

    Args:
        session: state of the session in which the run is a turn; `None` outside of sessions.

    Raises:
        PlanInvalid: the plan or its inputs are invalid; `problems` has every problem.
        OptionInvalid: an option is invalid.
    """
    if problems := _problems_of_inputs(start.inputs):
        raise PlanInvalid(problems)
    caller_options = start.options
    options, model = run_options(caller_options), model_config(caller_options).to_json() or None
    context = {name.removeprefix("@"): value for name, value in caller_options.get("context", {}).items()}
    session_context = {**(session.names if session is not None else {}), **context}
    checked_plan, repairs = _check_plan(start, tools, context=session_context)
    chosen_policy = options.policy or (session.policy if session is not None else None)
    needs_plan_approval = caller_options.get("approve_plan", False)
    policy = chosen_policy or default_policy("model" if needs_plan_approval else "person")
    if problems := [*policy_problems(checked_plan, policy), *unused_input_problems(checked_plan, start.inputs)]:
        raise PlanInvalid(problems)
    prepare = (
        prepare_plan_with_missing_inputs
        if caller_options.get("request_inputs") and options.input_fields.is_interactive
        else prepare_plan
    )
    compiled_plan = prepare(checked_plan, start.inputs)
    notes = tuple(repair.to_note().to_json() for repair in summarize_repairs(repairs)[:MAX_NOTES])
    options = replace(
        options,
        policy=chosen_policy,
        needs_approval=needs_plan_approval
        or (policy.changes_need_plan_approval and changing_node_count(compiled_plan) > 0),
        input_fields=replace(options.input_fields, model=model, notes=notes),
    )
    # The session may change before the run starts, so only the arguments of the caller identify the run.
    source = {"plan": start.plan.document, "dialect": checked_plan.dialect, "context": context}
    title = caller_options.get("title") or start.plan.file_name
    return StartRequest(compiled_plan, source, start.inputs, options, title=title)


def _check_plan(
    start: PlanStart, tools: Mapping[str, ToolDeclaration], *, context: Mapping[str, Any]
) -> tuple[CheckedPlan, Sequence[Repair]]:
    """Return the checked plan and its repairs."""
    document, allow_unknown_tools = start.plan.document, start.allow_unknown_tools
    dialect = start.options.get("dialect") or start.plan.dialect
    if not start.options.get("repair"):
        return check_plan(
            document, tools, dialect=dialect, context=context, allow_unknown_tools=allow_unknown_tools
        ), ()
    checked_plan, repairs = check_written_plan(
        document, tools, dialect=dialect, context=context, allow_unknown_tools=allow_unknown_tools
    )
    if cut_repairs := [repair for repair in repairs if repair.code == TRUNCATED]:
        raise PlanInvalid([Problem(TRUNCATED, f"a part of the plan is missing: {cut_repairs[0].message}")])
    return checked_plan, repairs
