"""`RunAgent` and `PlanAndExecute`: workflow types of runs whose plans are extended while they run.

They run plans like `RunPlan` and handle the same messages; the extender that the plan names adds nodes
(`dagwright.features.plan_extension.extender`). The names distinguish the runs in lists and in the Temporal UI.
"""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from dagwright.core.boundary import wire
from dagwright.workflows.run_plan import PlanWorkflow, RunPlanWorkflow


@workflow.defn(name=wire.WORKFLOW_RUN_AGENT, sandboxed=False)
class RunAgentWorkflow(PlanWorkflow):
    """Run of an agent: its plan is extended by the tool calls that its model requests."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Run the plan of the message."""
        return await self.run_to_end(message)


@workflow.defn(name=wire.WORKFLOW_PLAN_AND_EXECUTE, sandboxed=False)
class PlanAndExecuteWorkflow(PlanWorkflow):
    """Run of a goal: its plan is extended by the plans that a model writes."""

    @workflow.run
    async def run(self, message: RawValue) -> Any:
        """Run the plan of the message."""
        return await self.run_to_end(message)


RUN_WORKFLOWS: Sequence[type[PlanWorkflow]] = (RunPlanWorkflow, RunAgentWorkflow, PlanAndExecuteWorkflow)
"""All kinds of runs; a worker serves each of them."""
