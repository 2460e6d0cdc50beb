"""What a fork of a request in words keeps of the plan of its run, if a model is to plan again.

What the run has added since then followed from a plan that the fork does not have. Pure.
"""

from collections.abc import Collection
from dataclasses import replace

from dagwright.core.model.compiled import CompiledPlan
from dagwright.planning.plan_and_execute.goals import ANSWER, READ, goal_from_json, own_id
from dagwright.planning.plan_and_execute.nodes import output_of_plan


def without_what_followed(plan: CompiledPlan, rerun: Collection[str]) -> CompiledPlan:
    """Returns the plan of a run without what it has added behind the first of its own nodes that is done again.

    Args:
        plan: of a run, as far as it has grown; one that pursues something else stays as it is.
        rerun: ids of the nodes that a fork does again.
    """
    if not plan.has_planner:
        return plan
    own = [own_id(node.id) for node in plan.nodes]
    again = [number for number, node in enumerate(plan.nodes) if node.id in rerun and own[number] is not None]
    if not again:
        return plan
    # A call that plans is of no use without what reads its answer.
    reads = [number for number, name in enumerate(own) if name == READ]
    count = max(again[0], *(number for number in reads if number <= again[0] + 1)) + 1
    if ANSWER in own[:count]:
        return replace(plan, nodes=plan.nodes[:count])
    last = plan.nodes[max(number for number in reads if number < count)].id
    output, holes = output_of_plan(goal_from_json(plan.pursuit), last) or (None, ())
    return replace(plan, nodes=plan.nodes[:count], output=output, output_holes=holes)
