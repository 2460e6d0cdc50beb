"""Create the scheduler of a run from its input and start it. The workflow and the history reader share this code."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.compiler.plan_text import changing_node_count
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import ALLOW_ALL, ASK_FOR_WRITES, policy_of_extender
from dagwright.core.model.resolvers import resolver_of
from dagwright.core.scheduler.component import RunOptions
from dagwright.features.deadline import Deadline
from dagwright.features.lookups.entity_resolver import EntityResolver
from dagwright.features.plan_extension.extender import PlanExtender
from dagwright.features.run_scheduler import create_scheduler
from dagwright.planning.agent_loop.agent_extender import AgentLoop
from dagwright.planning.agent_loop.agent_nodes import with_agent_sub_plans
from dagwright.planning.agent_loop.spec import AgentSpec
from dagwright.planning.extender_specs import extender_spec_of
from dagwright.planning.plan_and_execute.goal_extender import PlanAndExecute
from dagwright.planning.plan_and_execute.goal_spec import Goal
from dagwright.planning.rounds.rounds_extender import Rounds
from dagwright.protocol.budgets import initial_budget, shared_budget
from dagwright.protocol.run_input import RunInput

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


def deadline_of(plan: CompiledPlan | None, run_input: RunInput) -> float | None:
    """Return the deadline of a run in seconds: the shorter of the deadlines in its plan and in its input.

    People may change the deadline during a run, so a later execution takes the deadline from the snapshot.

    Args:
        plan: `None` while the run has not loaded its plan.
    """
    snapshot_deadline_s = run_input.snapshot.deadline_s if run_input.snapshot is not None else None
    if snapshot_deadline_s is not None:
        return None if math.isinf(snapshot_deadline_s) else snapshot_deadline_s
    limits = (plan.deadline_s if plan is not None else None, run_input.deadline_s)
    return min((limit for limit in limits if limit is not None), default=None)


def changed_deadline(scheduler: "RunScheduler", run_input: RunInput) -> float | None:
    """Return the deadline that people have set during the run, as a snapshot stores it; `None` without a change."""
    limit_s = scheduler.features.deadline.deadline.limit_s
    if limit_s == deadline_of(scheduler.plan, replace(run_input, snapshot=None)):
        return None
    return math.inf if limit_s is None else limit_s


def initial_deadline(plan: CompiledPlan, run_input: RunInput, *, started_at: float) -> Deadline:
    """Return the deadline at the start of a run. The error message of a sub-plan names the task in the parent run.

    Args:
        started_at: start of the first execution of the run, in seconds since the epoch.
    """
    limit_s = deadline_of(plan, run_input)
    if run_input.parent is None:
        return Deadline(started_at, limit_s)
    subject = repr(run_input.parent.task)
    if limit_s is None:
        return Deadline(started_at, None, subject)
    if limit_s == run_input.deadline_s:
        return Deadline(started_at, limit_s, subject, f"its timeout of {limit_s:g} s")
    return Deadline(started_at, limit_s, subject, f"the deadline of its plan, {limit_s:g} s")


def scheduler_for_run(
    plan: CompiledPlan,
    run_input: RunInput,
    *,
    started_at: float,
    inputs: Mapping[str, Any],
) -> "RunScheduler":
    """Return the scheduler of a run that has not started.

    Args:
        started_at: start of the first execution of the run, in seconds since the epoch.
        inputs: inputs of the run, with the items of a map batch.
    """
    extender = extender_of(plan)
    # The nodes that an extender adds are requested by a model.
    has_model_nodes = extender is not None or is_model_written(run_input)
    scheduler = create_scheduler(
        plan,
        inputs,
        max_in_flight=run_input.max_in_flight,
        policy=run_input.policy
        or policy_of_extender(plan.extender)
        or (ASK_FOR_WRITES if has_model_nodes else ALLOW_ALL),
        options=_options_of(run_input, plan),
    )
    scheduler.features.extension.set_extender(extender)
    scheduler.features.budget.set_budget(initial_budget(run_input))
    scheduler.features.deadline.deadline = initial_deadline(plan, run_input, started_at=started_at)
    scheduler.features.feedback.requests.approved_tools.update(run_input.approved_tools)
    if run_input.approved_by is not None:
        scheduler.features.feedback.run_requests.approve_plan(run_input.approved_by)
    return scheduler


def _options_of(run_input: RunInput, plan: CompiledPlan) -> RunOptions:
    return RunOptions(
        is_interactive=run_input.is_interactive,
        compensate=run_input.compensate,
        is_child=run_input.parent is not None,
        only_compensates=run_input.only_compensates,
        with_agent_sub_plans=with_agent_sub_plans,
        resolver=EntityResolver(resolver_of(plan.tools), run_input.known_entities),
    )


def is_model_written(run_input: RunInput) -> bool:
    """Return whether the input declares that a model wrote the plan, so that it needs approval or has been approved."""
    return run_input.needs_approval or run_input.approved_by is not None


def inherited_input(run_input: RunInput, scheduler: "RunScheduler", *, number: int) -> RunInput:
    """Return the input of a sub-plan, with the decisions that people have made about the parent run.

    Args:
        run_input: input of the sub-plan without these decisions.
        number: number of the node that starts the sub-plan.
    """
    feedback = scheduler.features.feedback
    return replace(
        run_input,
        # The identity is compared, so that a policy set by a person is inherited even if it allows all calls. Without
        # a policy, calls that models request in the sub-plan would need approval.
        policy=scheduler.state.policy if scheduler.state.policy is not ALLOW_ALL else None,
        approved_by=feedback.state.approved_by if number < feedback.state.approved_node_count else None,
        approved_tools=dict(feedback.requests.approved_tools),
        shared_budget=shared_budget(scheduler),
        compensate=scheduler.state.options.compensate,
    )


def start_run(scheduler: "RunScheduler", run_input: RunInput, *, at: float) -> None:
    """Start a run, or first request its approval and its missing inputs."""
    if run_input.needs_approval or _needs_approval(scheduler, run_input):
        scheduler.features.feedback.run_requests.ask_for_approval(at)
    elif run_input.parent is None:
        scheduler.features.feedback.run_requests.start_or_request_inputs(at)
    else:
        # The parent run has provided the inputs.
        scheduler.start(at)


def _needs_approval(scheduler: "RunScheduler", run_input: RunInput) -> bool:
    """Return whether the policy requires approval of the plan; extensions by an extender are approved separately."""
    may_need_approval = run_input.parent is None and run_input.approved_by is None and scheduler.plan.extender is None
    return (
        may_need_approval
        and scheduler.state.policy.changes_need_plan_approval
        and changing_node_count(scheduler.plan) > 0
    )


def start_restored_run(scheduler: "RunScheduler", run_input: RunInput | None, *, at: float) -> None:
    """Start a restored run that only compensates or is a fork. Other restored runs continue by themselves."""
    if run_input is not None and run_input.only_compensates:
        scheduler.features.compensation.start(at)
    elif run_input is not None and run_input.snapshot is not None and run_input.snapshot.origin is not None:
        start_run(scheduler, run_input, at=at)


def extender_of(plan: CompiledPlan) -> PlanExtender | None:
    """Return the extender of a plan. A plan without an extender is complete.

    Raises:
        ValueError: the spec of the extender is invalid or its kind is unknown.
    """
    spec = extender_spec_of(plan)
    if spec is None:
        return None
    if isinstance(spec, AgentSpec):
        return AgentLoop(spec)
    return PlanAndExecute(spec) if isinstance(spec, Goal) else Rounds(spec)
