"""Saga compensation: which calls of a run have to be undone, in which order, and which cannot be undone.

An incomplete run gets one compensation node for each call that may have changed something. The nodes run one after the
other, in reverse order of the calls. This order also respects undeclared dependencies. The nodes are derived from the
plan and the records, so continue-as-new, replay and history readers need no additional state.

Replay: the history of a run contains the ids, the order and the content of the nodes. If the rules here change them,
the replay of open runs breaks.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.errors import Note
from dagwright.core.model.compiled import (
    CompiledNode,
    CompiledPlan,
    RetryRule,
    agent_tools,
    default_retry,
    has_side_effects,
    tool_of,
)
from dagwright.core.model.graph import levels_of
from dagwright.core.model.states import NodeError, NodeStatus, Phase, Record, TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.core.text import format_count, join_first

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import NodeOverride, RunState

NOTE_COMPENSATED = "compensated"
"""Code of the note about compensated calls."""
NOTE_UNCOMPENSATED = "not_compensated"
"""Code of a note about a call that cannot be compensated, or was not compensated."""
NOT_COMPLETED = "not_completed"
"""Error code of a run that compensates its calls without being stopped or aborted."""
ERROR_COMPENSATED = "compensated"
"""Error code of a run that only compensates the calls of an earlier run."""
NOTHING_TO_COMPENSATE: Mapping[str, Any] = {}
"""Snapshot that a child run returns if it changed nothing."""
_MAX_NAMES, _MAX_NOTES = 5, 50
"""Maximum number of uncompensated calls that the summary names, and maximum number of notes about uncompensated
calls."""
_CHANGING_EFFECTS = (Effects.IDEMPOTENT, Effects.WRITE)
_CODES_BEFORE_CALL = frozenset(
    {"not_started", "invalid_arguments", "invalid_field", "missing_data", "tool_changed", "not_allowed"}
)
"""Codes of failures that happen before a tool could change anything."""
_UNKNOWN_OUTCOMES = frozenset({"outcome_unknown", "timeout", "terminated"})
"""Codes of failures after which it is unknown whether a tool changed something."""


@dataclass(frozen=True, slots=True)
class UncompensatedCall:
    """A call that was not compensated.

    Args:
        task: id of the node or item.
        reason: reason, as the predicate of a sentence whose subject is the id.
    """

    task: str
    reason: str


def is_result_of_call(record: Record, override: "NodeOverride | None") -> bool:
    """Return whether a result comes from the call of the node or item, not from a person or the plan."""
    is_manual = override is not None and override.has_manual_result
    return record.status is NodeStatus.COMPLETED and record.error is None and not is_manual


# Calls that changed something.


def may_have_effects(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Return whether a node, or a node of its sub-plan, calls a tool that changes something.

    Args:
        tools: tools of the plan.
    """
    if node.sub_plan is not None:
        agent_effects = agent_tools(node) or {}
        sub_plan = node.sub_plan
        return any(effects in _CHANGING_EFFECTS for effects in agent_effects.values()) or any(
            may_have_effects(inner_node, sub_plan.tools) for inner_node in sub_plan.nodes
        )
    # An `external` node runs outside of this run, and is compensated there.
    is_call = node.kind == "tool" and has_side_effects(node, tools)
    is_resolver = node.kind == "lookup" and tool_of(node, tools).effects in _CHANGING_EFFECTS
    return node.compensates is None and (is_call or is_resolver)


def _changing_tasks(state: "RunState") -> Iterator[tuple[TaskRef, Record]]:
    """Yield every node and item whose tool changes something, in plan order."""
    for number, (node, record) in enumerate(zip(state.plan.nodes, state.records, strict=True)):
        if may_have_effects(node, state.plan.tools):
            if node.for_each is None:
                yield state.items.node_ref(number), record
            for index, item in enumerate(record.items):
                if item.map_batch is None or item.map_batch.count:
                    yield TaskRef(number, index), item.record


def _may_have_changed_something(state: "RunState", ref: TaskRef, record: Record) -> bool:
    """Return whether this run called the tool of a node or item, and the call may have changed something. A reused
    result is not a call of this run."""
    if record.reused is not None or record.cached is not None or record.child_snapshot == NOTHING_TO_COMPENSATE:
        return False
    if state.plan.nodes[ref.node].kind == "lookup" and is_result_of_call(record, None):
        return state.options.resolver.changed_something(record.result)
    override = state.overrides.get(state.id_of(ref))
    attempts = record.attempts or (override.attempts if override is not None else 0)
    code = record.error.code if record.status is NodeStatus.FAILED and record.error is not None else ""
    return attempts > 1 or (attempts == 1 and code not in _CODES_BEFORE_CALL)


def run_may_have_effects(state: "RunState") -> bool:
    """Return whether a run may have changed something; false for a run that only compensates another run."""
    return not state.options.only_compensates and any(
        _may_have_changed_something(state, *call) for call in _changing_tasks(state)
    )


# Compensation nodes.


def compensation_extension(state: "RunState") -> Extension | None:
    """Return the compensation nodes of a run that has ended, or `None` if no call can be compensated."""
    nodes: list[CompiledNode] = []
    base = state.plan.visible_count
    for ref in _calls_to_compensate(state):
        task_id, previous_numbers = state.id_of(ref), [base + len(nodes) - 1] if nodes else []
        # A hidden node cannot be a dependency, because it comes after the added nodes.
        compensated_numbers = [ref.node] if ref.node < base else []
        node = _compensation_node(
            state, ref, _free_id(state, f"undo {task_id}"), dependencies=(*compensated_numbers, *previous_numbers)
        )
        nodes.append(node)
    return Extension(base, tuple(nodes)) if nodes else None


def _calls_to_compensate(state: "RunState") -> Sequence[TaskRef]:
    """Return the calls to compensate in reverse order of their ends; ties are ordered by level and number."""
    calls = [
        (ref, record)
        for ref, record in _changing_tasks(state)
        if _may_have_changed_something(state, ref, record) and _reason_not_compensable(state, ref, record) is None
    ]
    levels = levels_of([node.dependencies for node in state.plan.nodes]) or [] if calls else []
    calls.sort(key=lambda call: (call[1].ended_at or 0.0, levels[call[0].node], _order_of(call[0])), reverse=True)
    return [ref for ref, _ in calls]


def _order_of(ref: TaskRef) -> tuple[int, int]:
    """Return the sort key of a node or item by number; a node comes before its items."""
    return ref.node, -1 if ref.item is None else ref.item


def _compensation_node(state: "RunState", ref: TaskRef, node_id: str, *, dependencies: Sequence[int]) -> CompiledNode:
    compensated_node = state.plan.nodes[ref.node]
    title = f"Undo {compensated_node.title or state.id_of(ref)}"
    is_child_run = _is_child_run(state, ref)
    tool = ToolDeclaration("") if is_child_run else state.plan.tools[state.plan.tools[compensated_node.tool].undo or ""]
    return CompiledNode(
        node_id,
        kind="plan" if is_child_run else "tool",
        title=title,
        tool=tool.name,
        dependencies=tuple(dependencies),
        join=("all_done", 0),
        approval="never",
        retry=RetryRule() if is_child_run else default_retry(tool.effects, tool.max_attempts),
        timeout_s=0.0 if is_child_run else tool.timeout_s,
        compensates=state.id_of(ref),
    )


def _is_child_run(state: "RunState", ref: TaskRef) -> bool:
    return state.map_batch(ref) is not None or state.plan.nodes[ref.node].sub_plan is not None


def _free_id(state: "RunState", base_id: str) -> str:
    node_id, count = base_id, 1
    while state.find(node_id) is not None or task_of_call(state, node_id) is not None:
        count += 1
        node_id = f"{base_id}#{count}"
    return node_id


def _reason_not_compensable(state: "RunState", ref: TaskRef, record: Record) -> str | None:
    """Return why a call cannot be compensated, or `None`."""
    if _is_child_run(state, ref):
        return None if record.child_snapshot is not None else "its run did not report its calls"
    node = state.plan.nodes[ref.node]
    tool = state.plan.tools.get(node.tool)
    if tool is None or tool.undo is None:
        return f"the tool {node.tool!r} has no undo"
    return None if tool.undo in state.plan.tools else f"the run does not have its undo tool {tool.undo!r}"


# Forks of compensated runs


def without_compensation(plan: CompiledPlan) -> CompiledPlan:
    """Return the plan of a run without its compensation nodes, which are the last added nodes."""
    end = plan.visible_count
    count = sum(node.compensates is not None for node in plan.nodes)
    if not count:
        return plan
    renumbered_nodes = [
        replace(node, dependencies=tuple(number - count if number >= end else number for number in node.dependencies))
        for node in plan.nodes
    ]
    return replace(plan, nodes=(*renumbered_nodes[: end - count], *renumbered_nodes[end:]))


def compensated_tasks(state: "RunState") -> tuple[frozenset[str], list[str]]:
    """Return the ids of the compensated calls, and the ids of the calls whose compensation has an unknown outcome.

    A call counts as compensated unless its compensation node failed or was cancelled.
    """
    compensated_ids, unknown_outcome_ids = set[str](), list[str]()
    for node, record in state.visible_nodes():
        if node.compensates is None:
            continue
        if record.status not in (NodeStatus.FAILED, NodeStatus.CANCELLED):
            compensated_ids.add(node.compensates)
        elif record.attempts and (node.kind == "plan" or record.error is None or _has_unknown_outcome(record)):
            unknown_outcome_ids.append(node.compensates)
    return frozenset(compensated_ids), unknown_outcome_ids


def compensated_by(state: "RunState") -> dict[str, str]:
    """Return id of a compensated node or item -> id of its completed compensation node."""
    if not any(node.compensates is not None for extension in state.extensions for node in extension.nodes):
        return {}
    completed_nodes = (node for node, record in state.visible_nodes() if record.status is NodeStatus.COMPLETED)
    return {node.compensates: node.id for node in completed_nodes if node.compensates is not None}


# Reports.


def compensation_counts(state: "RunState") -> Counter[NodeStatus]:
    """Return status -> number of compensation nodes."""
    return Counter(record.status for node, record in state.visible_nodes() if node.compensates is not None)


def error_of_incomplete_run(state: "RunState") -> NodeError:
    """Return the error of a run that was not stopped but did not complete."""
    records_with_ids = [(node.id, record) for node, record in state.visible_nodes()]
    for status in (NodeStatus.FAILED, NodeStatus.CANCELLED, NodeStatus.BLOCKED):
        for node_id, record in records_with_ids:
            if record.status is status:
                reason = record.error.message if record.error is not None else record.reason
                return NodeError(NOT_COMPLETED, f"{node_id!r} {status.value}{f': {reason}' if reason else ''}")
    return NodeError(NOT_COMPLETED, "the plan did not complete")


def compensation_summary(state: "RunState") -> tuple[str, list[Note]]:
    """Return a summary of the compensation of a run, and a note for each uncompensated call.

    A call that did not complete is compensated as a precaution. It is not counted, because it usually had no effect.
    """
    calls = uncompensated_calls(state)
    compensated_ids = compensated_by(state)
    known_effect_count = sum(_has_known_effect(state, task_id) for task_id in compensated_ids)
    if not calls:
        message = "compensated calls with unknown outcome" if compensated_ids else "nothing to compensate"
        if known_effect_count:
            message = f"compensated {format_count(known_effect_count, 'call')}"
    else:
        ids_text = join_first([repr(call.task) for call in calls], _MAX_NAMES)
        message = f"compensated: {known_effect_count:,}; not compensated: {len(calls):,} ({ids_text})"
    return message, [Note(NOTE_UNCOMPENSATED, f"{call.task!r} {call.reason}", call.task) for call in calls[:_MAX_NOTES]]


def precautionary_count(state: "RunState") -> int:
    """Return how many calls were compensated as a precaution, because it is unknown whether they had an effect."""
    return sum(not _has_known_effect(state, task_id) for task_id in compensated_by(state))


def _has_known_effect(state: "RunState", task_id: str) -> bool:
    """Return whether a compensated call is known to have had an effect: the call completed, or it ran as a child run,
    and the child run reported its calls."""
    ref, record = state.find(task_id), state.record_of(task_id)
    if ref is None or record is None:
        return False
    return record.status is NodeStatus.COMPLETED or _is_child_run(state, ref)


def uncompensated_calls(state: "RunState") -> list[UncompensatedCall]:
    """Return the calls of a run that had, or may have had, an effect and are not compensated, in plan order.

    For a run that has not ended, the result includes calls that are not compensated yet.
    """
    compensations = {
        node.compensates: (node, record) for node, record in state.visible_nodes() if node.compensates is not None
    }
    calls: list[UncompensatedCall] = []
    for ref, record in _changing_tasks(state):
        task_id = state.id_of(ref)
        override = state.overrides.get(task_id)
        if task_id in compensations:
            node, undo_record = compensations[task_id]
            if undo_record.status is not NodeStatus.COMPLETED:
                reason = undo_record.error.message if undo_record.error is not None else undo_record.reason
                outcome = f"{node.id!r} {undo_record.status.value}{f': {reason}' if reason else ''}"
                calls.append(UncompensatedCall(task_id, f"was not compensated: {outcome}"))
        elif _may_have_changed_something(state, ref, record):
            reason = _reason_not_compensable(state, ref, record)
            if reason is None:
                is_closed = state.phase is Phase.CLOSED
                reason = "the run was stopped immediately" if is_closed else "the run cannot get more nodes"
                calls.append(UncompensatedCall(task_id, f"was not compensated: {reason}"))
            elif record.status is not NodeStatus.FAILED or _has_unknown_outcome(record) or _is_child_run(state, ref):
                calls.append(UncompensatedCall(task_id, f"cannot be compensated: {reason}"))
        if _is_child_run(state, ref) and override is not None and override.retries:
            calls.append(UncompensatedCall(task_id, "was retried: effects of earlier attempts are not compensated"))
        if record.status is NodeStatus.COMPLETED and override is not None and not is_result_of_call(record, override):
            calls.append(UncompensatedCall(task_id, "has a manual result: manual changes are not compensated"))
    return calls


def _has_unknown_outcome(record: Record) -> bool:
    return record.error is not None and record.error.code in _UNKNOWN_OUTCOMES


def compensation_notes(plan: CompiledPlan) -> list[Note]:
    """Return a note for each node that could not be compensated. The ids of nodes in sub-plans have the form `a/b`."""
    return [
        Note(NOTE_UNCOMPENSATED, f"{node_id!r} cannot be compensated: the tool {tool!r} has no undo", node_id)
        for node_id, tool in _without_undo(plan)
    ]


def _without_undo(plan: CompiledPlan) -> Iterator[tuple[str, str]]:
    """Yield node id and tool of the nodes that change something and could not be compensated, in plan order."""
    for node in plan.nodes:
        if node.sub_plan is not None:
            for tool in (node.sub_plan.extender or {}).get("tools", ()) if agent_tools(node) is not None else ():
                if tool.get("effects", Effects.WRITE) in _CHANGING_EFFECTS and not tool.get("undo"):
                    yield node.id, str(tool.get("name"))
            yield from ((f"{node.id}/{inner_id}", tool) for inner_id, tool in _without_undo(node.sub_plan))
        elif has_side_effects(node, plan.tools) and plan.tools.get(node.tool, ToolDeclaration("")).undo is None:
            yield node.id, node.tool
