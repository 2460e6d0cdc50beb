"""`RunAgent` and `PlanAndExecute`: runs whose plans grow by themselves, as workflow types of their own.

They run plans as `RunPlan` does and take every message that it takes; what they add to their plans is decided by the
extender that the plan names (`dagwright.features.plan_extension.extender`). The names tell them apart in lists and in
the Temporal UI.
"""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import wire
from dagwright.workflows.run_plan import PlanWorkflow, RunPlanWorkflow


@workflow.defn(name=wire.WORKFLOW_RUN_AGENT, sandboxed=False)
class RunAgentWorkflow(PlanWorkflow):
    """Runs an agent: its plan grows by what its model wants called."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Runs the plan of the message."""
        return await self.run_to_end(message)


@workflow.defn(name=wire.WORKFLOW_PLAN_AND_EXECUTE, sandboxed=False)
class PlanAndExecuteWorkflow(PlanWorkflow):
    """Pursues a goal: its plan grows by what a model plans."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Runs the plan of the message."""
        return await self.run_to_end(message)


RUN_WORKFLOWS: Sequence[type[PlanWorkflow]] = (RunPlanWorkflow, RunAgentWorkflow, PlanAndExecuteWorkflow)
"""All kinds of runs; a worker serves each of them."""
