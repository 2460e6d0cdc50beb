"""What a fork of a question in rounds keeps of the plan of its run, if some of it is to be done again.

The rounds behind that followed from results that the fork does not have. Pure.
"""

from collections.abc import Collection
from dataclasses import replace

from dagwright.core.model.compiled import CompiledPlan
from dagwright.planning.rounds.nodes import OUTPUT_BEFORE
from dagwright.planning.rounds.rounds import INTENTION, PLAN, is_own


def without_later_rounds(plan: CompiledPlan, rerun: Collection[str]) -> CompiledPlan:
    """Returns the plan of a run without the calls of the planner that follow what is done again, and all behind them.

    Args:
        plan: of a run, as far as it has grown; one that pursues something else stays as it is.
        rerun: ids of the nodes that a fork does again.
    """
    if not plan.asks_nobody:
        return plan
    own = [node.id.partition("#")[0] if is_own(node.id) else None for node in plan.nodes]
    again = [number for number, node in enumerate(plan.nodes) if node.id in rerun and own[number] is not None]
    if not again:
        return plan
    calls = [number for number, name in enumerate(own) if name == PLAN]
    # A call that is made again is kept itself, and so is the first one behind the intention.
    least = 1 if own[again[0]] == INTENTION else again[0]
    kept = least + 1 if own[least] == PLAN else next((call for call in calls if call > least), len(plan.nodes))
    value, holes = OUTPUT_BEFORE
    return replace(plan, nodes=plan.nodes[:kept], output=value, output_holes=holes)
