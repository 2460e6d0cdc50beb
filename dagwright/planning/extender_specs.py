"""Parse the spec of a plan extender, and select the workflow type of the plan's runs.

The spec is the field `extender` of a compiled plan, as JSON; `protocol.run_start` creates the extender from it. The
kind of the spec determines the workflow type. All workflow types run the same code, but lists and the Temporal UI can
distinguish agents from plans.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import policy_of_extender
from dagwright.core.model.tools import AGENT_KIND, GOAL_KIND, ROUNDS_KIND
from dagwright.planning.agent_loop.spec import AgentSpec, agent_spec_from_json
from dagwright.planning.plan_and_execute.goal_spec import Goal, goal_from_json
from dagwright.planning.rounds.rounds_spec import RoundsSpec, rounds_from_json

ExtenderSpec = AgentSpec | Goal | RoundsSpec
"""Parsed spec of an extender: of an agent's loop, of plan and execute (`Goal`), or of rounds."""

_KINDS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], ExtenderSpec]]] = {
    AGENT_KIND: (wire.WORKFLOW_RUN_AGENT, agent_spec_from_json),
    GOAL_KIND: (wire.WORKFLOW_PLAN_AND_EXECUTE, goal_from_json),
    ROUNDS_KIND: (wire.WORKFLOW_PLAN_AND_EXECUTE, rounds_from_json),
}
"""Kind of a spec -> workflow type of the runs, and parser of the spec, which raises ValueError for invalid JSON."""


def extender_spec_of(plan: CompiledPlan) -> ExtenderSpec | None:
    """Parse the spec of the extender of a plan; `None` if the plan has no extender.

    Raises:
        ValueError: the spec is invalid or its kind is unknown.
    """
    encoded: Any = plan.extender
    if encoded is None:
        return None
    kind = encoded.get("kind") if isinstance(encoded, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown extender {kind!r:.60}; expected {', '.join(_KINDS)}")
    # Raises if the policy is invalid.
    policy_of_extender(encoded)
    return _KINDS[kind][1](encoded)


def check_extenders(plan: CompiledPlan) -> None:
    """Validate the specs of the extenders of a plan and its sub-plans.

    Raises:
        ValueError: a spec is invalid or its kind is unknown.
    """
    extender_spec_of(plan)
    for node in plan.nodes:
        if node.sub_plan is not None:
            check_extenders(node.sub_plan)


def workflow_type_of(plan: CompiledPlan | None) -> str:
    """Return the workflow type of the runs of a plan.

    Args:
        plan: `None` if the plan is not known yet.
    """
    extender = plan.extender if plan is not None else None
    return wire.WORKFLOW_RUN_PLAN if extender is None else _KINDS[extender["kind"]][0]
