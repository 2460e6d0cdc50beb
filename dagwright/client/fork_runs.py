"""Build and start the fork of a run: shared by the command `fork` and the gateway."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import ForkRejected, RunIdInUse
from dagwright.client.forks import retooled
from dagwright.client.starts import RunStartOptions, Started, StartRequest
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.inputs import invalid_inputs
from dagwright.plans.posted import PostedPlan, read_posted
from dagwright.plans.preparation import check_plan, prepare_plan, unknown_input_problems, unused_inputs, unused_names

if TYPE_CHECKING:
    from dagwright.client.forks import ForkDraft, Forks
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

Declared = Mapping[str, Mapping[str, Any]]
Typing = Callable[[Declared, Mapping[str, Any]], tuple[Mapping[str, Any], Sequence[Problem]]]
"""Converts inputs to values according to the declared inputs of a plan; returns the values and the problems found."""


def as_given(declared: Declared, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[Problem]]:
    """Return inputs that are values already."""
    return {name: value for name, value in inputs.items() if name in declared}, ()


@dataclass(frozen=True, slots=True)
class ForkChanges:
    """Requested changes of a fork.

    Args:
        plans: at most one plan: as written, as sent by a program, or the reason it could not be read; empty to use the
            plan of the run.
        inputs: inputs that differ from those of the run.
        rerun: nodes and items to execute again.
        typing: converts the inputs.
        check_runner: runs the check of a new plan outside of the event loop.
    """

    plans: Sequence[Any] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    rerun: Sequence[str] = ()
    typing: Typing = as_given
    check_runner: Callable[..., Awaitable[Any]] = asyncio.to_thread


async def draft_of(
    workflow_id: str, changes: ForkChanges, *, runs: "Runs", forks: "Forks", tools: Mapping[str, ToolDeclaration]
) -> "ForkDraft":
    """Return the draft of a fork.

    Args:
        tools: tools that the fork may call.

    Raises:
        RunNotFound: there is no such run.
        PlanInvalid: the plan or the inputs are invalid.
        ForkRejected: the run cannot be forked with these changes.
    """
    view = await runs.reader(workflow_id).read()
    if view.scheduler is None:
        raise ForkRejected(f"the plan of {workflow_id!r} is not known; start the plan again with `run`")
    run_inputs = dict(view.scheduler.state.inputs)
    # The check of a large plan must not block the event loop.
    if changes.plans:
        context = view.run_input.context if view.run_input is not None else {}
        change = PlanChange(changes.plans[0], changes.inputs, changes.typing, context=context, known=run_inputs)
        plan, inputs = await changes.check_runner(plan_of_change, change, tools)
    else:
        plan, inputs = await asyncio.to_thread(_changed, view, changes, tools, run_inputs=run_inputs)
    return await forks.draft(view, plan, inputs=inputs, rerun=changes.rerun)


def _changed(
    view: "RunView", changes: ForkChanges, tools: Mapping[str, ToolDeclaration], *, run_inputs: Mapping[str, Any]
) -> tuple[CompiledPlan, dict[str, Any]]:
    """Return the plan and the inputs of the fork.

    Raises:
        PlanInvalid: the plan or the inputs are invalid.
    """
    assert view.scheduler is not None
    plan = retooled(view.scheduler.plan, tools, rerun=changes.rerun)
    typed, problems_of_types = changes.typing(plan.inputs, changes.inputs)
    unknown = [name for name in changes.inputs if name not in plan.inputs and name not in run_inputs]
    problems = [*problems_of_types, *unknown_input_problems(unknown, {**plan.inputs, **run_inputs})]
    inputs = {**run_inputs, **typed}
    if problems := [*problems, *invalid_inputs(plan.inputs, inputs)]:
        raise PlanInvalid(problems)
    return plan, inputs


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A new plan for a fork, with everything that its check needs; can be pickled.

    Args:
        plan: as written, as sent by a program, or the reason it could not be read.
        inputs: inputs that differ from those of the run.
        typing: converts the inputs.
        context: values of the names defined in the session.
        known: inputs of the run.
    """

    plan: Any
    inputs: Mapping[str, Any]
    typing: Typing
    context: Mapping[str, Any]
    known: Mapping[str, Any]


def plan_of_change(change: PlanChange, tools: Mapping[str, ToolDeclaration]) -> tuple[CompiledPlan, dict[str, Any]]:
    """Return the plan and the inputs of a fork with a new plan.

    Raises:
        PlanInvalid: the plan or the inputs are invalid.
    """
    plan = read_posted(change.plan) if isinstance(change.plan, PostedPlan) else change.plan
    checked = check_plan(plan, tools, context=change.context)
    typed, problems_of_types = change.typing(checked.inputs, change.inputs)
    if problems := [*unused_inputs(checked, change.inputs), *problems_of_types]:
        raise PlanInvalid(problems)
    unused = {*unused_names(checked, change.known)}
    inputs = {**{name: value for name, value in change.known.items() if name not in unused}, **typed}
    return prepare_plan(checked, inputs), inputs


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


async def start_fork(draft: "ForkDraft", *, runs: "Runs", forks: "Forks", options: ForkOptions) -> Started:
    """Start a fork with the owner of its original run; starting the same fork twice returns the same run.

    Raises:
        ForkRejected: a reused result is lost.
        RunIdInUse: `run_id` belongs to another run, or the same fork was started with other tags than those in the
            options.
        StoreUnavailable: the store is unavailable.
    """
    input_fields = await forks.ready(draft)
    origin = await runs.group_of(draft.origin)
    tags = origin.tags if options.tags is None else options.tags
    run_options = RunStartOptions(
        deadline_s=input_fields.deadline_s,
        policy=input_fields.policy,
        needs_approval=input_fields.needs_approval,
        approved_by=input_fields.approved_by,
        owner=origin.owner,
        input_fields=input_fields,
        tags=tags,
        fairness=origin.fairness,
    )
    title = f"fork of {draft.origin}"
    request = StartRequest(
        draft.plan,
        dict(draft.content),
        draft.inputs,
        run_options,
        options.run_id or draft.workflow_id,
        title,
        tools=options.tools,
    )
    started = await runs.start(request)
    if options.tags is not None and not started.is_new and await runs.tags_of(started.workflow_id) != tags:
        message = f"the fork {started.workflow_id!r} was started with other tags; choose another id for a second fork"
        raise RunIdInUse(message)
    return started
