"""Nodes of a parsed plan: their IDs in the run, and the extension that adds missing nodes.

Replay: IDs, order and content of the nodes are part of a run's history.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.features.plan_edits.extension_checks import free_id
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.plan_and_execute.goal_spec import (
    APPROVE,
    PlannedNodes,
    described_ids_of,
    is_empty,
    planned_nodes_from_json,
    role_of,
)
from dagwright.planning.plan_and_execute.replan_context import EXISTING_NODE, REPLACEABLE_STATUSES, is_stand_in
from dagwright.planning.plan_and_execute.replans import unreachable_ids

if TYPE_CHECKING:
    from dagwright.planning.plan_and_execute.goal_state import GoalState


def id_conflicts(run: "GoalState", parsed_plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the node IDs of a plan that the run already uses, as the `problems` of a parsed plan.

    Returns:
        An empty object if there is no such ID.
    """
    nodes = [node for node in _planned_nodes(parsed_plan).nodes if not is_stand_in(node)]
    ids = Counter(_new_id(run, node) for node in nodes)
    used_ids = [
        node.id
        for node in nodes
        if not _is_in_run(run, node) and (_is_taken(run, node.id) or ids[_new_id(run, node)] > 1)
    ]
    problems = [
        {"code": "duplicate_id", "message": f"the run has another node {node_id!r} already: choose another id"}
        for node_id in used_ids
    ]
    return {"problems": problems, "problem_count": len(problems)} if problems else {}


def _is_taken(run: "GoalState", node_id: str) -> bool:
    """Check whether an ID is used in the run by a node that cannot be replaced."""
    number = run.state.number_of(run.state.newest_id(node_id))
    if number is None or number > run.round_start:
        return run.state.find(node_id) is not None or task_of_call(run.state, node_id) is not None
    return run.state.records[number].status not in (*REPLACEABLE_STATUSES, NodeStatus.SUPERSEDED)


def _new_id(run: "GoalState", node: CompiledNode) -> str:
    """Return the ID that a node of a plan gets in the run: a new ID if it replaces another node."""
    number = run.state.number_of(run.state.newest_id(node.id))
    return node.id if number is None or _is_in_run(run, node) else free_id(run.state, number)


def has_all_nodes(run: "GoalState", parsed_plan: Mapping[str, Any]) -> bool:
    """Check whether all nodes of a plan are in the run. Streaming adds some of them before the plan is complete."""
    ids = [str(node["id"]) for node in parsed_plan["nodes"] if node.get("tool") != EXISTING_NODE.name]
    newest_ids = {node_id: run.state.newest_id(node_id) for node_id in ids}
    if any((run.state.number_of(newest_ids[node_id]) or 0) <= run.round_start for node_id in ids):
        return False
    # Nodes that people have added are different nodes, unless they make the same call.
    added_ids = {node_id for node_id in ids if run.state.is_added_by_person(newest_ids[node_id])}
    planned_nodes = _planned_nodes(parsed_plan).nodes if added_ids else ()
    return all(_makes_same_call(run, node) for node in planned_nodes if node.id in added_ids)


def _is_in_run(run: "GoalState", node: CompiledNode) -> bool:
    """Check whether a node was added to the run before its plan was complete, or is a stand-in for another node."""
    number = run.state.number_of(run.state.newest_id(node.id))
    if is_stand_in(node) or node.kind == "lookup":
        return number is not None
    return number is not None and number > run.round_start and run.goal.streams and _makes_same_call(run, node)


def _makes_same_call(run: "GoalState", node: CompiledNode) -> bool:
    number = run.state.number_of(run.state.newest_id(node.id))
    assert number is not None
    existing_node = run.state.plan.nodes[number]
    return (existing_node.tool, existing_node.arguments, existing_node.bindings) == (
        node.tool,
        node.arguments,
        node.bindings,
    )


def add_nodes(run: "GoalState", parser_number: int, parsed_plan: Mapping[str, Any]) -> Extension:
    """Return the extension with the nodes of a plan that are not yet in the run.

    Nodes without dependencies depend on the node that parsed the plan. In a replan, a node replaces the node with the
    same ID if the earlier node can no longer run.
    """
    base = run.state.plan.visible_count
    planned_nodes = _planned_nodes(parsed_plan)
    numbers = _numbers_of(run, planned_nodes, base=base)
    described_ids, is_approved = (
        described_ids_of(parsed_plan),
        role_of(run.state.plan.nodes[parser_number].id) == APPROVE,
    )
    nodes = []
    projections: dict[str, Sequence[Projection]] = {}
    for node in planned_nodes.nodes:
        if _is_in_run(run, node):
            existing_id = run.state.newest_id(node.id)
            projections |= {existing_id: node.projections} if node.projections else {}
            continue
        dependencies = tuple(numbers[number] for number in node.dependencies)
        if all(planned_nodes.nodes[number].kind == "lookup" for number in node.dependencies):
            dependencies = (*dependencies, parser_number)
        # The person who approved the plan has read about this node, so the node needs no approval of its own. The
        # policy can still deny the node.
        is_described = is_approved and node.id in described_ids
        approval = "never" if is_described and node.approval == "policy" else node.approval
        is_new = run.state.number_of(node.id) is None
        replaced_id = None if is_new else run.state.newest_id(node.id)
        nodes.append(
            replace(node, id=_new_id(run, node), dependencies=dependencies, approval=approval, supersedes=replaced_id)
        )
    replaced_ids = [node.supersedes for node in nodes if node.supersedes is not None]
    return Extension(
        base, tuple(nodes), planned_nodes.tools, projections, abandoned=_unreachable_ids(run, replaced_ids)
    )


def _numbers_of(run: "GoalState", planned_nodes: PlannedNodes, *, base: int) -> list[int]:
    numbers: list[int] = []
    next_number = base
    for node in planned_nodes.nodes:
        existing_number = run.state.number_of(run.state.newest_id(node.id)) if _is_in_run(run, node) else None
        numbers.append(next_number if existing_number is None else existing_number)
        next_number += existing_number is None
    # Generated nodes (`HIDDEN_KINDS`) follow all nodes that the author of the plan wrote.
    return [
        number + next_number - base if number >= base and _is_in_run(run, node) else number
        for node, number in zip(planned_nodes.nodes, numbers, strict=True)
    ]


def skip_unreachable(run: "GoalState", parsed_plan: Mapping[str, Any]) -> Extension | None:
    """Skip the nodes that can no longer run after a replan, if all new nodes were added while the model wrote the plan.

    The skipped nodes include those that failed before the replan, so a second call returns `None`.
    """
    replan_context = run.replan_context
    if replan_context is None or is_empty(parsed_plan):
        return None
    failed_ids = replan_context.ids_by_status.get(NodeStatus.FAILED.value, ())
    has_failed_nodes = any(
        node.id in failed_ids and record.status is NodeStatus.FAILED and node.on_error != "skip"
        for node, record in run.plan_steps()
    )
    return replace(run.extension(), abandoned=_unreachable_ids(run, ())) if has_failed_nodes else None


def _unreachable_ids(run: "GoalState", replaced_ids: Sequence[str]) -> tuple[str, ...]:
    replan_context = run.replan_context
    if replan_context is None:
        return ()
    ended_ids = frozenset(replan_context.not_referable_ids)
    return unreachable_ids(run.state, [step for step in run.plan_steps() if step[0].id in ended_ids], replaced_ids)


def _planned_nodes(parsed_plan: Mapping[str, Any]) -> PlannedNodes:
    """Decode the nodes of a parsed plan.

    Raises:
        GoalUnreachable: the result has no valid nodes.
    """
    try:
        return planned_nodes_from_json(parsed_plan)
    except ValueError as error:
        raise GoalUnreachable(NodeError("invalid_result", str(error))) from None
