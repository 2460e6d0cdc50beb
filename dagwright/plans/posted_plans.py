"""Plans sent by programs: parse, complete with published sub-plans, check and compile.

All functions of this module accept and return plain data that can be pickled, so they can run in a separate process
(`dagwright.process.process_pool`). Files of clients are never read: a sub-plan that a node names is a published
plan.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from dagwright.core.errors import PlanInvalid, Problem, ProblemList, pointer
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import Policy
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.core.text import join_first
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.validation import WRITE_SUB_PLAN
from dagwright.dialects.line_numbers import lines_of_problems
from dagwright.dialects.reading import parse_plan_text
from dagwright.plans.check_reports import invalid_plan_report, valid_plan_report
from dagwright.plans.preparation import (
    check_plan,
    compile_within_limits,
    policy_problems,
    prepare_plan_with_missing_inputs,
    unused_input_problems,
)

ToolDeclarations = Mapping[str, ToolDeclaration]
_MAX_NAMES_SHOWN = 10


class PlanFile(Protocol):
    """A plan of the plan directory: the name of its file, and the unchanged document of the plan."""

    @property
    def file_name(self) -> str: ...

    @property
    def document(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class PostedPlan:
    """A plan as a program sent it.

    Args:
        plan: a JSON value, or a text in JSON, YAML or a text dialect.
        dialect: its dialect; `None` detects it.
        published: the published plans that this plan can use as sub-plans: name or file name -> unchanged document.
        names: names of all published plans that can be sub-plans, for hints.
    """

    plan: Any
    dialect: str | None = None
    published: Mapping[str, Any] = field(default_factory=dict)
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan that is ready to run.

    Args:
        source: identifies the plan. A second start with the same source and run ID is recognized as the same run.
    """

    compiled: CompiledPlan
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RejectedPlan:
    """A rejected plan.

    Args:
        invalid: the error with its problems.
        errors: the problems in the response format. If the plan is a text, each problem has its line.
    """

    invalid: PlanInvalid
    errors: Sequence[Mapping[str, Any]]


def posted_plan(plan: Any, dialect: str | None, published: Mapping[str, PlanFile]) -> PostedPlan:
    """Return a posted plan with the published plans whose names or file names occur in it.

    Args:
        published: published plans by name.
    """
    # A text is not parsed here: each name that occurs anywhere in the text counts.
    names_in_plan = plan if isinstance(plan, str) else {*_sub_plan_names(plan)}
    # A plan in a text dialect cannot be a sub-plan.
    usable_plans = {name: file for name, file in published.items() if not isinstance(file.document, str)}
    named_plans = [(alias, file.document) for name, file in usable_plans.items() for alias in (name, file.file_name)]
    return PostedPlan(
        plan,
        dialect,
        {alias: published_plan for alias, published_plan in named_plans if alias in names_in_plan},
        [*usable_plans],
    )


def read_posted_plan(posted: PostedPlan) -> Any:
    """Return the document of a posted plan with its sub-plans. If a sub-plan is missing, return the error.

    `check_plan` accepts the document or the error.

    Raises:
        PlanInvalid: the text cannot be parsed.
    """
    plan = posted.plan
    document = parse_plan_text(plan, name="the plan") if isinstance(plan, str) else plan
    try:
        return include_published_plans(document, posted.published, names=posted.names)
    except PlanInvalid as invalid:
        return invalid


def check_posted_plan(posted: PostedPlan, tools: ToolDeclarations) -> tuple[CheckedPlan, Any]:
    """Return the checked plan, and the document of the plan with its sub-plans.

    Raises:
        PlanInvalid: the plan is invalid.
    """
    document = read_posted_plan(posted)
    return check_plan(document, tools, dialect=posted.dialect), document


def check_response(posted: PostedPlan, tools: ToolDeclarations) -> dict[str, Any]:
    """Return the response body of `POST /v1/plans/check`. If the plan is a text, each problem has its line."""
    try:
        checked, _ = check_posted_plan(posted, tools)
        compile_within_limits(checked)
    except PlanInvalid as invalid:
        return {**invalid_plan_report(()), "errors": _errors(posted.plan, invalid)}
    return valid_plan_report(checked)


def prepare_posted_plan(
    posted: PostedPlan, tools: ToolDeclarations, *, inputs: Mapping[str, Any], policy: Policy | None
) -> PreparedPlan | RejectedPlan:
    """Compile a plan, or return its problems. The run will request missing inputs.

    Args:
        policy: policy of the run.

    Raises:
        PlanInvalid: the inputs are invalid, or the policy rejects the plan.
    """
    try:
        checked, document = check_posted_plan(posted, tools)
    except PlanInvalid as invalid:
        return RejectedPlan(invalid, _errors(posted.plan, invalid))
    if policy is not None and (rejections := policy_problems(checked, policy)):
        raise PlanInvalid(rejections)
    return PreparedPlan(compile_for_requests(checked, inputs), source_of(document, checked.dialect))


def compile_for_requests(checked: CheckedPlan, inputs: Mapping[str, Any]) -> CompiledPlan:
    """Compile a posted plan whose run requests missing inputs.

    Raises:
        PlanInvalid: inputs are invalid or unknown, or the plan is too large.
    """
    if unused_problems := unused_input_problems(checked, inputs):
        raise PlanInvalid(unused_problems)
    return prepare_plan_with_missing_inputs(checked, inputs)


def source_of(document: Any, dialect: str) -> dict[str, Any]:
    """Return the identity of a plan that was sent: the plan, its dialect and an empty context."""
    return {"plan": document, "dialect": dialect, "context": {}}


def include_published_plans(document: Any, published: Mapping[str, Any], *, names: Sequence[str] = ()) -> Any:
    """Return a document that includes the published plans that its nodes name as sub-plans (`plan: "NAME"`).

    Args:
        document: in Dagwright's own dialect; a document in another dialect has no sub-plans, and is returned unchanged.
        names: names of all published plans, for the hint.

    Raises:
        PlanInvalid: a sub-plan is not published; `document` of the error is for checking the rest of the plan.
    """
    problems = ProblemList()
    completed_document = _include_sub_plans(
        document, published, at="", report_unknown=partial(_report_unknown_plan, problems, names)
    )
    if problems:
        raise PlanInvalid(problems, document=completed_document)
    return completed_document


def _include_sub_plans(
    document: Any, published: Mapping[str, Any], *, at: str, report_unknown: Callable[[str, str, Any], None]
) -> Any:
    """Return a document with its sub-plans.

    Args:
        report_unknown: called with the name, pointer and node ID of each unknown sub-plan.
    """
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        return document
    nodes = list(document["nodes"])
    for index, node in enumerate(nodes):
        plan = node.get("plan") if isinstance(node, dict) else None
        plan_pointer = at + pointer("nodes", index, "plan")
        if isinstance(plan, dict):
            nodes[index] = {
                **node,
                "plan": _include_sub_plans(plan, published, at=plan_pointer, report_unknown=report_unknown),
            }
        elif isinstance(plan, str) and plan in published:
            nodes[index] = {**node, "plan": published[plan]}
        elif isinstance(plan, str):
            report_unknown(plan, plan_pointer, node.get("id"))
    return {**document, "nodes": nodes}


def _report_unknown_plan(problems: list[Problem], names: Sequence[str], plan: str, at: str, node: Any) -> None:
    message = f"the sub-plan {plan!r:.200} is a file name, but files of clients are not read: {WRITE_SUB_PLAN}"
    if names:
        message += f", or name a published plan: {join_first(names, _MAX_NAMES_SHOWN)}"
    hint = suggestion(plan.rpartition("/")[2].partition(".")[0][:200], names)
    problems.append(Problem("unreadable", message, at, node if isinstance(node, str) else None, hint))


def _sub_plan_names(plan: Any) -> Iterator[str]:
    nodes = plan.get("nodes") if isinstance(plan, dict) else None
    for node in nodes if isinstance(nodes, list) else ():
        sub_plan = node.get("plan") if isinstance(node, dict) else None
        if isinstance(sub_plan, str):
            yield sub_plan
        else:
            yield from _sub_plan_names(sub_plan)


def _errors(plan: Any, invalid: PlanInvalid) -> list[dict[str, Any]]:
    errors = [problem.to_json() for problem in invalid.problems]
    if not isinstance(plan, str):
        return errors
    lines: Sequence[int | None] = lines_of_problems(plan, invalid.problems)
    return [{**error, "line": line} for error, line in zip(errors, lines, strict=True)]
