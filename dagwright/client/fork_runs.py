"""Prepare and start the fork of a run, for the command `fork`, the HTTP API and the Python client."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import ForkRejected, RunIdInUse
from dagwright.client.forks import with_current_tools
from dagwright.client.starts import RunStartOptions, StartedRun, StartRequest
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.inputs import problems_of_inputs
from dagwright.plans.posted_plans import PostedPlan, read_posted_plan
from dagwright.plans.preparation import (
    check_plan,
    prepare_plan,
    unknown_input_problems,
    unused_input_problems,
    unused_names,
)

if TYPE_CHECKING:
    from dagwright.client.forks import ForkDraft, Forks
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

DeclaredInputs = Mapping[str, Mapping[str, Any]]
InputConverter = Callable[[DeclaredInputs, Mapping[str, Any]], tuple[Mapping[str, Any], Sequence[Problem]]]
"""Converts inputs to the types that a plan declares; returns the values and the problems."""


def keep_inputs(
    declared_inputs: DeclaredInputs, inputs: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Sequence[Problem]]:
    """Return the values of declared inputs without conversion, because they have the right types already."""
    return {name: value for name, value in inputs.items() if name in declared_inputs}, ()


@dataclass(frozen=True, slots=True)
class ForkChanges:
    """Requested changes of a fork.

    Args:
        plans: the new plan (see `PlanChange`) as the only entry; empty to use the plan of the run.
        inputs: changed inputs.
        rerun: nodes and items to execute again.
        convert_inputs: converts the changed inputs.
        check_runner: runs the check of a new plan outside of the event loop.
    """

    plans: Sequence[Any] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    rerun: Sequence[str] = ()
    convert_inputs: InputConverter = keep_inputs
    check_runner: Callable[..., Awaitable[Any]] = asyncio.to_thread


async def draft_fork(
    run_id: str, changes: ForkChanges, *, runs: "Runs", forks: "Forks", tools: Mapping[str, ToolDeclaration]
) -> "ForkDraft":
    """Return the draft of a fork.

    Args:
        tools: tools that the fork may call.

    Raises:
        RunNotFound: there is no such run.
        PlanInvalid: the plan or the inputs are invalid.
        ForkRejected: the run cannot be forked with these changes.
    """
    view = await runs.reader(run_id).read()
    if view.scheduler is None:
        raise ForkRejected(f"the plan of {run_id!r} is not known; start the plan again with `run`")
    run_inputs = dict(view.scheduler.state.inputs)
    # The check of a large plan must not block the event loop.
    if changes.plans:
        context = view.run_input.context if view.run_input is not None else {}
        change = PlanChange(
            changes.plans[0], changes.inputs, changes.convert_inputs, context=context, run_inputs=run_inputs
        )
        plan, inputs = await changes.check_runner(prepare_changed_plan, change, tools)
    else:
        plan, inputs = await asyncio.to_thread(_plan_with_changed_inputs, view, changes, tools, run_inputs=run_inputs)
    return await forks.draft(view, plan, inputs=inputs, rerun=changes.rerun)


def _plan_with_changed_inputs(
    view: "RunView", changes: ForkChanges, tools: Mapping[str, ToolDeclaration], *, run_inputs: Mapping[str, Any]
) -> tuple[CompiledPlan, dict[str, Any]]:
    """Return the plan and the inputs of the fork.

    Raises:
        PlanInvalid: the plan or the inputs are invalid.
    """
    assert view.scheduler is not None
    plan = with_current_tools(view.scheduler.plan, tools, rerun=changes.rerun)
    converted_inputs, conversion_problems = changes.convert_inputs(plan.inputs, changes.inputs)
    unknown_names = [name for name in changes.inputs if name not in plan.inputs and name not in run_inputs]
    problems = [*conversion_problems, *unknown_input_problems(unknown_names, {**plan.inputs, **run_inputs})]
    inputs = {**run_inputs, **converted_inputs}
    if problems := [*problems, *problems_of_inputs(plan.inputs, inputs)]:
        raise PlanInvalid(problems)
    return plan, inputs


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A new plan for a fork, with everything that its check needs; can be pickled.

    Args:
        plan: the plan as written, a `PostedPlan`, or the `PlanInvalid` that was raised when the text of the plan was
            read.
        inputs: changed inputs.
        convert_inputs: converts the changed inputs.
        context: values of the names defined in the session.
        run_inputs: inputs of the run.
    """

    plan: Any
    inputs: Mapping[str, Any]
    convert_inputs: InputConverter
    context: Mapping[str, Any]
    run_inputs: Mapping[str, Any]


def prepare_changed_plan(
    change: PlanChange, tools: Mapping[str, ToolDeclaration]
) -> tuple[CompiledPlan, dict[str, Any]]:
    """Return the plan and the inputs of a fork with a new plan.

    Raises:
        PlanInvalid: the plan or the inputs are invalid.
    """
    plan = read_posted_plan(change.plan) if isinstance(change.plan, PostedPlan) else change.plan
    checked_plan = check_plan(plan, tools, context=change.context)
    converted_inputs, conversion_problems = change.convert_inputs(checked_plan.inputs, change.inputs)
    if problems := [*unused_input_problems(checked_plan, change.inputs), *conversion_problems]:
        raise PlanInvalid(problems)
    names_to_drop = {*unused_names(checked_plan, change.run_inputs)}
    inputs = {
        **{name: value for name, value in change.run_inputs.items() if name not in names_to_drop},
        **converted_inputs,
    }
    return prepare_plan(checked_plan, inputs), inputs


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """Options of a fork that do not change its content.

    Args:
        tools: values of `--tools` of the original run.
        run_id: ID of the fork; `None` derives it from the original run and the change.
        tags: tags of the fork; `None` to use those of the original run.
    """

    tools: Sequence[str] = ()
    run_id: str | None = None
    tags: Mapping[str, str] | None = None


async def start_fork(draft: "ForkDraft", *, runs: "Runs", forks: "Forks", options: ForkOptions) -> StartedRun:
    """Start a fork with the owner of its original run; if the same fork exists, return its run.

    Raises:
        ForkRejected: a reused result is lost.
        RunIdInUse: `run_id` belongs to another run, or the same fork was started with other tags than those in the
            options.
        StoreUnavailable: the store is unavailable.
    """
    input_fields = await forks.create_run_input(draft)
    shared_properties = await runs.shared_properties_of(draft.origin)
    tags = shared_properties.tags if options.tags is None else options.tags
    run_options = RunStartOptions(
        deadline_s=input_fields.deadline_s,
        policy=input_fields.policy,
        needs_approval=input_fields.needs_approval,
        approved_by=input_fields.approved_by,
        owner=shared_properties.owner,
        input_fields=input_fields,
        tags=tags,
        fairness=shared_properties.fairness,
    )
    title = f"fork of {draft.origin}"
    request = StartRequest(
        draft.plan,
        dict(draft.content),
        draft.inputs,
        run_options,
        options.run_id or draft.run_id,
        title,
        tools=options.tools,
    )
    started_run = await runs.start(request)
    if options.tags is not None and not started_run.is_new and await runs.tags_of(started_run.run_id) != tags:
        message = f"the fork {started_run.run_id!r} was started with other tags; choose another id for a second fork"
        raise RunIdInUse(message)
    return started_run
