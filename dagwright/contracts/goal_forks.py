"""What a fork of a request in words keeps of the plan of its run, if a model is to plan again.

What the run has added since then followed from a plan that the fork does not have. Pure.
"""

from collections.abc import Collection
from dataclasses import replace

from dagwright.contracts.goal_nodes import output_of_plan
from dagwright.contracts.goals import ANSWER, KIND, OWN_IDS, READ, goal_from_json
from dagwright.plan.compiled import CompiledPlan


def pursues_goal(plan: CompiledPlan) -> bool:
    """Tells whether a plan is that of a request in words."""
    return plan.pursuit is not None and plan.pursuit["kind"] == KIND


def without_what_followed(plan: CompiledPlan, rerun: Collection[str]) -> CompiledPlan:
    """Returns the plan of a run without what it has added behind the first of its own nodes that is done again.

    Args:
        plan: of a run, as far as it has grown; one that pursues something else stays as it is.
        rerun: ids of the nodes that a fork does again.
    """
    if not pursues_goal(plan):
        return plan
    own = [node.id.partition("#")[0] for node in plan.nodes]
    again = [number for number, node in enumerate(plan.nodes) if node.id in rerun and own[number] in OWN_IDS]
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
