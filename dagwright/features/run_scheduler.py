"""The scheduler of a run with every feature: the one place where components are composed.

The scheduler itself imports no components.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import ALLOW_ALL, Policy
from dagwright.core.scheduler.component import RunOptions
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.budgets.admission import BudgetAdmission
from dagwright.features.compensation.component import Compensation
from dagwright.features.deadline import RunDeadline
from dagwright.features.feedback.component import HumanFeedback
from dagwright.features.fork_reuse.component import ForkReuse
from dagwright.features.lookups.component import LookupNodes
from dagwright.features.lookups.entity_resolver import EntityResolver
from dagwright.features.node_cancellation import NodeCancellation
from dagwright.features.output_check import OutputCheck
from dagwright.features.plan_edits.edits import checked_extension
from dagwright.features.plan_extension.component import PlanExtension
from dagwright.features.region_batches import RegionBatchHandler
from dagwright.features.worker_tools import WorkerTools


@dataclass(frozen=True, slots=True)
class RunFeatures:
    """The components of a run."""

    workers: WorkerTools
    extension: PlanExtension
    output: OutputCheck
    compensation: Compensation
    budget: BudgetAdmission
    reuse: ForkReuse
    feedback: HumanFeedback
    lookups: LookupNodes
    cancellation: NodeCancellation
    deadline: RunDeadline
    regions: RegionBatchHandler


RunScheduler = Scheduler[RunFeatures]
"""Scheduler with every feature; a feature that a run does not use costs nothing."""


def create_scheduler(
    plan: CompiledPlan,
    inputs: Mapping[str, Any],
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    policy: Policy = ALLOW_ALL,
    options: RunOptions | None = None,
) -> RunScheduler:
    """Return the scheduler of a run that has not started.

    Args:
        inputs: values of the inputs; missing values get their defaults.
        max_in_flight: maximum number of tasks in flight, 1 to `MAX_IN_FLIGHT`.
        policy: approval rules for calls.
    """
    options = options or RunOptions(resolver=EntityResolver())
    state = RunState(plan, inputs, max_in_flight=max_in_flight, policy=policy, options=options)
    scheduler = RunScheduler(state)
    check_nodes = partial(checked_extension, state=state)
    feedback, deadline = HumanFeedback(scheduler, check_nodes), RunDeadline(scheduler)
    features = RunFeatures(
        workers=WorkerTools(scheduler),
        extension=PlanExtension(scheduler, check_nodes),
        output=OutputCheck(scheduler),
        compensation=Compensation(scheduler, lift_deadline=deadline.lift),
        budget=BudgetAdmission(scheduler, feedback.run_requests),
        reuse=ForkReuse(scheduler),
        feedback=feedback,
        lookups=LookupNodes(scheduler),
        cancellation=NodeCancellation(scheduler),
        deadline=deadline,
        regions=RegionBatchHandler(scheduler),
    )
    # Each hook is called in this order. A call is prepared first, then it reserves budget, then it gets its idempotency
    # key. Extension of the plan, the check of the output and compensation come before the admission of waiting calls.
    # The reuse of a result comes before the opening of a request to a person.
    order = (
        features.workers,
        features.extension,
        features.output,
        features.compensation,
        features.budget,
        features.reuse,
        features.feedback,
        features.lookups,
        features.cancellation,
    )
    scheduler.attach(features, order)
    return scheduler
