"""What a compiled plan has to hold to, whoever made it: one that breaks this would wedge its run.

A plan that Dagwright compiled keeps within these. A compiled plan may come from anywhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.contracts.limits import PLAN_NODES
from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.graph import levels_of
from dagwright.plan.model import MAX_ID_BYTES


def size_problem(encoded: Any) -> str | None:
    """Returns what is wrong with the size of a compiled plan in its JSON form, in one sentence, or `None`.

    To be asked before anything is made of it: workflow code has two seconds (engine-findings.md 6).
    """
    waiting, count = [encoded], 0
    while waiting:
        plan = waiting.pop()
        nodes = plan.get("nodes") if isinstance(plan, Mapping) else None
        if not isinstance(nodes, list):
            continue
        count += len(nodes)
        if count > PLAN_NODES:
            return f"the plan has over {PLAN_NODES:,} nodes, which is more than a run can be given"
        waiting += [node["sub_plan"] for node in nodes if isinstance(node, Mapping) and "sub_plan" in node]
    return None


def graph_problem(plan: CompiledPlan) -> str | None:
    """Returns what is wrong with the ids and edges of a compiled plan, in one sentence, or `None`."""
    seen: set[str] = set()
    for node in plan.nodes:
        if not 0 < len(node.id.encode(errors="replace")) <= MAX_ID_BYTES:
            return f"the id {node.id[:40]!r} has not 1 to {MAX_ID_BYTES} bytes of UTF-8"
        if node.id in seen:
            return f"two nodes have the id {node.id!r}"
        seen.add(node.id)
        if not _are_numbers_of_nodes(node.dependencies, plan):
            return f"the dependencies of {node.id!r} are no numbers of nodes"
        if not _are_numbers_of_nodes(node.members, plan):
            return f"the members of {node.id!r} are no numbers of nodes"
    if levels_of(_waits_of(plan)) is None:
        return "the dependencies of its nodes are a circle"
    if untold := _untold_nodes(plan):
        return f"the node {plan.nodes[untold[0]].id!r} is to be reported by a region that is not there"
    below = (graph_problem(node.sub_plan) for node in plan.nodes if node.sub_plan is not None)
    return next((problem for problem in below if problem is not None), None)


def _waits_of(plan: CompiledPlan) -> list[list[int]]:
    """Returns the numbers that each node waits for: its dependencies, and the region that runs it."""
    waits = [list(node.dependencies) for node in plan.nodes]
    for region in range(plan.written_count, len(plan.nodes)):
        for member in plan.nodes[region].members:
            waits[member].append(region)
    return [list(dict.fromkeys(needed)) for needed in waits]


def _untold_nodes(plan: CompiledPlan) -> list[int]:
    """Returns the nodes whose end nobody would tell."""
    told = {member for node in plan.nodes[plan.written_count :] for member in node.members}
    return [number for number, node in enumerate(plan.nodes) if node.kind == "reported" and number not in told]


def _are_numbers_of_nodes(numbers: Sequence[Any], plan: CompiledPlan) -> bool:
    if not numbers:
        return True
    # Of all edges there may be many thousands, so they are looked at by what runs in C.
    return set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) < len(plan.nodes)
