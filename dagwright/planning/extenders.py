"""What a compiled plan pursues: from the JSON that travels with it to the code that adds nodes.

A plan that pursues nothing is whole as it is. The kind of a pursuit also says as what workflow type its run starts, so
that lists and the Temporal UI tell an agent from a plan; the workflows are the same.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import AGENT_KIND, GOAL_KIND, ROUNDS_KIND
from dagwright.core.validation.model_policy import policy_of_extension
from dagwright.features.plan_extension.extender import PlanExtender
from dagwright.planning.agent_loop.loop import AgentPursuit
from dagwright.planning.plan_and_execute.loop import GoalPursuit
from dagwright.planning.rounds.loop import RoundsPursuit

_KINDS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], PlanExtender]]] = {
    AGENT_KIND: (wire.WORKFLOW_RUN_AGENT, AgentPursuit.from_json),
    GOAL_KIND: (wire.WORKFLOW_PLAN_AND_EXECUTE, GoalPursuit.from_json),
    ROUNDS_KIND: (wire.WORKFLOW_PLAN_AND_EXECUTE, RoundsPursuit.from_json),
}
"""Kind of a pursuit -> workflow type of its runs, and what reads it or says in a ValueError what is wrong."""


def extender_of(plan: CompiledPlan) -> PlanExtender | None:
    """Returns what a plan pursues.

    Raises:
        ValueError: it is nothing that this program knows.
    """
    encoded: Any = plan.pursuit
    if encoded is None:
        return None
    kind = encoded.get("kind") if isinstance(encoded, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"there is no pursuit {kind!r:.60}; there are {', '.join(_KINDS)}")
    policy_of_extension(encoded)
    return _KINDS[kind][1](encoded)


def check_pursuits(plan: CompiledPlan) -> None:
    """Checks what a plan pursues, and its sub-plans.

    Raises:
        ValueError: one of them pursues nothing that this program knows.
    """
    extender_of(plan)
    for node in plan.nodes:
        if node.sub_plan is not None:
            check_pursuits(node.sub_plan)


def workflow_type_of(plan: CompiledPlan | None) -> str:
    """Returns the workflow type as which a run of a plan starts; `None` is a plan that is not known yet."""
    pursuit = plan.pursuit if plan is not None else None
    return wire.WORKFLOW_RUN_PLAN if pursuit is None else _KINDS[pursuit["kind"]][0]
