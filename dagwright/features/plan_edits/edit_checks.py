"""Checks of nodes that are sent to a running plan, within a compute budget.

After an outage, hundreds of messages may arrive in one activation, for which a workflow has about 2 s. Therefore the
cost of a check is estimated from the size of the nodes and charged to a budget before the check. The checks do not
change the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.compute_budget import ComputeBudget
from dagwright.core.model.plan import NODE_FIELDS, PLAN_FIELDS
from dagwright.core.model.requests import CHECK_BUDGET
from dagwright.core.model.tools import AGENT_PREFIX, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.features.plan_edits.edits import MAX_STUBS, MOST_NODES, extension_of, format_problems
from dagwright.features.plan_edits.extension_checks import refusal_of_extension, refusal_of_own_ids

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

_LISTED_TOOLS = 20
_MOST_COMPARED = 20_000
"""Budget of all hints, about 5 ms; the command line shows the full hints before it sends nodes."""

# Costs in units of the compute budget, each measured with the most expensive input of its kind.
_WORK_OF_CHECK = 600
_WORK_OF_NODE = 100
_WORK_OF_BYTE = 2
_WORK_OF_CONDITION = 15
"""Cost of each character of a `when`."""
_WORK_OF_BRACES = 12
"""Cost of each `{{`, the start of a reference."""
_WORK_OF_HINTS = _MOST_COMPARED // 2
"""Charged only after a check has found problems, because hints cost more than most checks."""
_WORK_OF_FIELD = 200
"""Cost of an unknown field, which is compared with all known fields."""
_WORK_OF_STUB = 50
_WORK_OF_EXISTING_NODE = 5


def checked_extension(
    nodes: Sequence[Any], state: "RunState", *, tools: Mapping[str, ToolDeclaration], budget: ComputeBudget
) -> Extension | str:
    """Return the extension of a running plan by some nodes, or why the nodes are refused.

    Args:
        nodes: nodes as JSON, as in a plan.
        tools: tools that the nodes may use in addition to those of the plan.
        budget: compute budget of the current activation.

    Raises:
        ComputeBudgetExceeded: the remaining budget is too small.
    """
    if (refusal := state.refusal_of_rebuild()) is not None:
        return refusal
    if len(nodes) <= MOST_NODES:
        work = work_of_nodes(nodes, existing_count=len(state.plan.nodes))
        if work > CHECK_BUDGET:
            return "checking these nodes would take too long: send fewer or smaller nodes at once"
        budget.spend(work)
    try:
        extension = extension_of(nodes, state, tools=tools, hint_budget=_MOST_COMPARED)
    except PlanInvalid as invalid:
        budget.remaining = max(0, budget.remaining - _WORK_OF_HINTS)
        return format_problems(PlanInvalid([_with_hint(problem, state, tools) for problem in invalid.problems]))
    return refusal_of_own_ids(state, extension) or refusal_of_extension(state, extension) or extension


def _with_hint(problem: Problem, state: "RunState", tools: Mapping[str, ToolDeclaration]) -> Problem:
    """Add a hint to a problem of nodes that are sent to a run, where the usual hints about options do not apply."""
    if problem.code != "unknown_tool" or (problem.hint or "").startswith("did you mean"):
        return problem
    known = sorted(name for name in {**state.plan.tools, **tools} if not name.startswith(AGENT_PREFIX))
    left = f" and {len(known) - _LISTED_TOOLS} more" if len(known) > _LISTED_TOOLS else ""
    listed = f"{', '.join(known[:_LISTED_TOOLS])}{left}"
    hint = (
        f"the run knows {listed or 'no tool'}; `dagwright feedback` and `dagwright add-nodes` add others with --tools, "
        "Python does with the tools of a Worker(client, tools=[...])"
    )
    return replace(problem, hint=hint)


def work_of_nodes(nodes: Sequence[Any], *, existing_count: int) -> int:
    """Return a conservative estimate of the cost to check nodes, in units of `ComputeBudget`.

    Args:
        existing_count: number of nodes of the plan.
    """
    text = pydantic_core.to_json(nodes)
    work = _WORK_OF_CHECK + _WORK_OF_BYTE * len(text) + _WORK_OF_BRACES * text.count(b"{{")
    work += _WORK_OF_STUB * min(existing_count, MAX_STUBS) + _WORK_OF_EXISTING_NODE * existing_count
    for node in _all_nodes(nodes):
        condition, sub_plan = node.get("when"), node.get("plan")
        unknown_count = len(node.keys() - NODE_FIELDS)
        if isinstance(sub_plan, Mapping):
            unknown_count += len(sub_plan.keys() - PLAN_FIELDS)
        work += _WORK_OF_NODE + _WORK_OF_FIELD * unknown_count
        work += _WORK_OF_CONDITION * len(condition) if isinstance(condition, str) else 0
    return work


def _all_nodes(nodes: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes and the nodes of their sub-plans."""
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            if isinstance(node, Mapping):
                yield node
                sub_plan = node.get("plan")
                inner_nodes = sub_plan.get("nodes") if isinstance(sub_plan, Mapping) else None
                if isinstance(inner_nodes, list):
                    waiting.append(inner_nodes)
