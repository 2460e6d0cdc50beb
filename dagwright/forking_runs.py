"""From a run to a fork of it that can be started: what the command `fork` does, and the gateway."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.client import Origin, Runs, Started, Terms
from dagwright.feed import RunView
from dagwright.forks import Draft, ForkRefused, Forks, retooled
from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.errors import PlanInvalid, Problem, pointer
from dagwright.plan.inputs import wrong_inputs
from dagwright.preparation import check_plan, prepare_plan, unused_inputs
from dagwright.toolset import Toolset

Declared = Mapping[str, Mapping[str, Any]]
Typing = Callable[[Declared, Mapping[str, Any]], tuple[Mapping[str, Any], Sequence[Problem]]]
"""Returns inputs as values, by the inputs that a plan declares, and what is wrong with them."""


def as_given(declared: Declared, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[Problem]]:
    """Returns inputs that are values already."""
    return {name: value for name, value in inputs.items() if name in declared}, ()


@dataclass(frozen=True, slots=True)
class ForkWish:
    """How a fork is to differ from its run.

    Args:
        plans: one, as it was written, or why it could not be read; none is that of the run.
        inputs: those that are others than in the run.
        rerun: nodes and items to do again.
        typing: reads the inputs.
    """

    plans: Sequence[Any] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    rerun: Sequence[str] = ()
    typing: Typing = as_given


async def draft_of(workflow_id: str, wish: ForkWish, *, runs: Runs, forks: Forks, toolset: Toolset) -> Draft:
    """Returns a fork, before it is started.

    Raises:
        RunNotFound: there is no such run.
        PlanInvalid: the plan or the inputs are wrong.
        ForkRefused: it must not be made so.
    """
    view = await runs.feed(workflow_id).read()
    if view.scheduler is None:
        raise ForkRefused(f"nothing is known of the plan of {workflow_id!r}; start it anew with `run`")
    # Nobody else waits for as long as a large plan is checked.
    plan, inputs = await asyncio.to_thread(_changed, view, wish, toolset, known=dict(view.scheduler.inputs))
    return await forks.draft(view, plan, inputs=inputs, rerun=wish.rerun)


def _changed(
    view: RunView, wish: ForkWish, toolset: Toolset, *, known: Mapping[str, Any]
) -> tuple[CompiledPlan, dict[str, Any]]:
    """Returns the plan and the inputs of the fork.

    Raises:
        PlanInvalid: they are wrong.
    """
    assert view.scheduler is not None
    if not wish.plans:
        plan = retooled(view.scheduler.plan, toolset.declarations(), rerun=wish.rerun)
        typed, found = wish.typing(plan.inputs, wish.inputs)
        problems = [*found]
        problems += [
            Problem("invalid_field", f"the plan has no input {name!r}", pointer("inputs", name))
            for name in wish.inputs
            if name not in plan.inputs and name not in known
        ]
        inputs = {**known, **typed}
        if problems := [*problems, *wrong_inputs(plan.inputs, inputs)]:
            raise PlanInvalid(problems)
        return plan, inputs
    context = view.run_input.context if view.run_input is not None else {}
    checked = check_plan(wish.plans[0], toolset.declarations(), context=context)
    typed, found = wish.typing(checked.inputs, wish.inputs)
    if problems := [*unused_inputs(checked, wish.inputs), *found]:
        raise PlanInvalid(problems)
    unused = {str(problem.pointer).rpartition("/")[2] for problem in unused_inputs(checked, known)}
    inputs = {**{name: value for name, value in known.items() if name not in unused}, **typed}
    return prepare_plan(checked, inputs), inputs


async def start_fork(draft: Draft, *, runs: Runs, forks: Forks, tools: Sequence[str]) -> Started:
    """Starts a fork, which belongs to whom its run belongs; the same one twice is one run.

    Args:
        tools: values of `--tools` that its run remembers.

    Raises:
        ForkRefused: a result that it takes over is lost.
        StoreUnavailable: the store cannot be used now.
    """
    beside = await forks.ready(draft)
    terms = Terms(
        deadline_s=beside.deadline_s,
        policy=beside.policy,
        needs_approval=beside.needs_approval,
        approved_by=beside.approved_by,
        owner=await runs.owner_of(draft.origin),
        beside=beside,
    )
    return await runs.start(
        draft.plan,
        draft.inputs,
        workflow_id=draft.workflow_id,
        origin=Origin(dict(draft.content), f"fork of {draft.origin}"),
        tools=tools,
        terms=terms,
    )
