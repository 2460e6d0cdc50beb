"""Plan extenders: the code that adds nodes to a plan, for each kind of spec."""

from dagwright.core.model.compiled import CompiledPlan
from dagwright.features.plan_extension.extender import PlanExtender
from dagwright.planning.agent_loop.agent_extender import AgentLoop
from dagwright.planning.agent_loop.spec import AgentSpec
from dagwright.planning.extender_specs import extender_spec_of
from dagwright.planning.plan_and_execute.goal_extender import PlanAndExecute
from dagwright.planning.plan_and_execute.goal_spec import Goal
from dagwright.planning.rounds.rounds_extender import Rounds


def extender_of(plan: CompiledPlan) -> PlanExtender | None:
    """Return the extender of a plan; a plan without an extender is complete.

    Raises:
        ValueError: the spec of the extender is invalid or its kind is unknown.
    """
    spec = extender_spec_of(plan)
    if spec is None:
        return None
    if isinstance(spec, AgentSpec):
        return AgentLoop(spec)
    return PlanAndExecute(spec) if isinstance(spec, Goal) else Rounds(spec)
