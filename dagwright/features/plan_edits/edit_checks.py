"""Whether a run takes nodes that somebody sends while it runs, and what it costs to find out.

Some hundreds of messages may come at one moment, after an outage, and a workflow has about 2 s for that moment. So what
reading nodes costs is estimated from their sizes before they are read, and taken off a budget. It changes nothing of
the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pydantic_core

from dagwright.core.expressions.compute_budget import WorkBudget
from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.model.plan import NODE_FIELDS, PLAN_FIELDS
from dagwright.core.model.requests import CHECK_BUDGET
from dagwright.core.model.tools import AGENT_PREFIX, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.features.plan_edits.edits import MOST_NODES, MOST_STAND_INS, extension_of, told
from dagwright.features.plan_edits.extension_checks import refusal_of_extension, refusal_of_own_ids

_TOOLS_TOLD = 20
_MOST_COMPARED = 20_000
"""Budget of all hints, about 5 ms; who sends nodes with the command has had the hints before."""

# In units of the work budget, each measured with what takes longest of its kind.
_WORK_OF_CHECK = 600
_WORK_OF_NODE = 100
_WORK_OF_BYTE = 2
_WORK_OF_CONDITION = 15
"""Of each character of a `when`."""
_WORK_OF_BRACES = 12
"""Of each `{{`, with which a reference begins."""
_WORK_OF_HINTS = _MOST_COMPARED // 2
"""Spent once it is known that something is wrong: few nodes need it, and it is more than most take."""
_WORK_OF_FIELD = 200
"""Of a field that no node has, which is compared with all that there are."""
_WORK_OF_STAND_IN = 50
_WORK_OF_NODE_THERE = 5


def growth_of(
    nodes: Sequence[Any], state: RunState, *, tools: Mapping[str, ToolDeclaration], budget: WorkBudget
) -> Extension | str:
    """Returns what a plan that runs grows by, or why it does not.

    Args:
        nodes: as in a plan, as JSON.
        tools: those that they may name beside the ones of the plan.
        budget: what is left of it for this moment.

    Raises:
        TooMuchWork: that is too little.
    """
    if (refusal := state.refusal_of_rebuild()) is not None:
        return refusal
    if len(nodes) <= MOST_NODES:
        work = work_of_nodes(nodes, count_there=len(state.plan.nodes))
        if work > CHECK_BUDGET:
            return "to check these nodes takes longer than a run has for them: send fewer or smaller ones at once"
        budget.spend(work)
    try:
        extension = extension_of(nodes, state, tools=tools, most_compared=_MOST_COMPARED)
    except PlanInvalid as invalid:
        budget.left = max(0, budget.left - _WORK_OF_HINTS)
        return told(PlanInvalid([_with_hint(problem, state, tools) for problem in invalid.problems]))
    return refusal_of_own_ids(state, extension) or refusal_of_extension(state, extension) or extension


def _with_hint(problem: Problem, state: RunState, tools: Mapping[str, ToolDeclaration]) -> Problem:
    """Add a hint to a problem with nodes that are sent to a run: no option of a command can help there."""
    if problem.code != "unknown_tool" or (problem.hint or "").startswith("did you mean"):
        return problem
    known = sorted(name for name in {**state.plan.tools, **tools} if not name.startswith(AGENT_PREFIX))
    left = f" and {len(known) - _TOOLS_TOLD} more" if len(known) > _TOOLS_TOLD else ""
    listed = f"{', '.join(known[:_TOOLS_TOLD])}{left}"
    hint = f"the run knows {listed or 'no tool'}; `dagwright feedback` and `dagwright append` bring others with --tools"
    return replace(problem, hint=hint)


def work_of_nodes(nodes: Sequence[Any], *, count_there: int) -> int:
    """Returns about what it takes to check nodes, in the units of `WorkBudget`; more rather than less.

    Args:
        count_there: nodes that the plan has.
    """
    text = pydantic_core.to_json(nodes)
    work = _WORK_OF_CHECK + _WORK_OF_BYTE * len(text) + _WORK_OF_BRACES * text.count(b"{{")
    work += _WORK_OF_STAND_IN * min(count_there, MOST_STAND_INS) + _WORK_OF_NODE_THERE * count_there
    for node in _all_nodes(nodes):
        condition, below = node.get("when"), node.get("plan")
        strange = len(node.keys() - NODE_FIELDS)
        if isinstance(below, Mapping):
            strange += len(below.keys() - PLAN_FIELDS)
        work += _WORK_OF_NODE + _WORK_OF_FIELD * strange
        work += _WORK_OF_CONDITION * len(condition) if isinstance(condition, str) else 0
    return work


def _all_nodes(nodes: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the nodes, and those of their sub-plans."""
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            if isinstance(node, Mapping):
                yield node
                below = node.get("plan")
                inside = below.get("nodes") if isinstance(below, Mapping) else None
                if isinstance(inside, list):
                    waiting.append(inside)
