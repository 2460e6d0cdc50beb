"""The graph of a question in rounds as people look at it: which round a node is of, and what leads to it.

Every sub-goal waits for the call of the planner that wants it, and the next call for all of a round. A picture of all
of that hides what was wired; so it has a group for each round, and of the edges those that are told here.
"""

from collections.abc import Mapping, Sequence

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.plan_extension.extender import GivenUp
from dagwright.planning.rounds.loop import RoundsPursuit
from dagwright.planning.rounds.rounds import PLAN, is_own
from dagwright.planning.rounds.state import RoundsSoFar


def groups_of(scheduler: Scheduler) -> Mapping[str, str]:
    """Returns the group of each node of a run that answers a question in rounds; nothing of any other run.

    Returns:
        id of a node -> `round 1`; what puts the question into words, and what answers it, is of no round.
    """
    pursuit = scheduler.pursuit
    if not isinstance(pursuit, RoundsPursuit):
        return {}
    run = RoundsSoFar(scheduler, pursuit.rounds)
    try:
        rounds = {call.node.id: call.round for call in run.calls}
        rounds |= {node.id: number for number, node, _ in run.tries}
    except GivenUp:
        # Something else stands where an answer of the planner should; the run has ended by that.
        return {}
    return {node: f"round {number}" for node, number in rounds.items()}


def drawn_needs(scheduler: Scheduler, node: CompiledNode) -> Sequence[int]:
    """Returns the numbers of the nodes from which an edge is drawn to a node of a question in rounds.

    To a sub-goal they lead from those whose slots it gets, to a call of the planner from the one before.
    """
    nodes = scheduler.plan.nodes
    needed = scheduler.needed_by(node)
    if node.is_worker:
        return [number for number in needed if nodes[number].is_worker or not is_own(nodes[number].id)]
    if node.id.partition("#")[0] == PLAN:
        return [number for number in needed if not nodes[number].is_worker]
    return needed
