"""Taking back what a run did that is to do all or nothing: what has to be undone, in which order, and what cannot be.

A run that ends otherwise than completed grows by a node for each call that may have changed something, the last call
first, one after the other: what depends on something that no plan says is taken back before that, too. Everything
follows from the plan and the records, so a run that goes on in a new execution, a replay and the feed need nothing.

Replay: ids, order and content of the nodes are part of the history of a run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.core.model.compiled import (
    CompiledNode,
    CompiledPlan,
    RetryRule,
    agent_tools,
    default_retry,
    has_side_effects,
    tool_of,
)
from dagwright.core.model.errors import NodeError, Note
from dagwright.core.model.graph import levels_of
from dagwright.core.model.states import NodeStatus, Phase, Record
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.node_override import NodeOverride
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.scheduler.task_creation import task_of_call

UNDONE = "undone"
"""Code of the note that tells what a run has taken back."""
STANDS = "stands"
"""Code of a note about what cannot be taken back, or was not."""
NOT_COMPLETED = "not_completed"
"""Code of the error of a run that takes back what it did, where nothing else ended it."""
TAKEN_BACK = "taken_back"
"""Code of the error of a run that only takes back what an earlier one did."""
NOTHING_BELOW: Mapping[str, Any] = {}
"""What stands for the state of a run that changed nothing."""
_NAMED, _TOLD = 5, 50
"""How much of what stands is named in a sentence, and told in notes."""
_CHANGING = (Effects.IDEMPOTENT, Effects.WRITE)
_NEVER_CALLED = frozenset(
    {"not_started", "invalid_arguments", "invalid_field", "missing_data", "tool_changed", "refused"}
)
"""Codes of failures that come before a tool could change anything."""
_UNKNOWN = frozenset({"outcome_unknown", "timeout", "terminated"})
"""Codes of failures after which nobody knows whether a tool changed something."""


@dataclass(frozen=True, slots=True)
class Left:
    """Something that a run did and that is not taken back.

    Args:
        task: id of the node or item.
        words: why, in a sentence that goes on from its id.
    """

    task: str
    words: str


def is_result_of_call(record: Record, override: NodeOverride | None) -> bool:
    """Tell whether the result of a node or item is that of its call, and not given by a person or the plan."""
    is_given = override is not None and override.has_given_result
    return record.status is NodeStatus.COMPLETED and record.error is None and not is_given


# What a run did.


def may_change_the_world(node: CompiledNode, tools: Mapping[str, ToolDeclaration]) -> bool:
    """Tells whether a node, or something inside of its sub-plan, calls a tool that changes something.

    Args:
        tools: those of its plan.
    """
    if node.sub_plan is not None:
        inside = agent_tools(node) or {}
        below = node.sub_plan
        return any(effects in _CHANGING for effects in inside.values()) or any(
            may_change_the_world(each, below.tools) for each in below.nodes
        )
    # What is reported was run elsewhere, and is taken back there.
    is_call = node.kind == "tool" and has_side_effects(node, tools)
    is_resolver = node.kind == "lookup" and tool_of(node, tools).effects in _CHANGING
    return node.undoes is None and (is_call or is_resolver)


def _calls(state: RunState) -> Iterator[tuple[TaskRef, Record]]:
    """Yields every node and item that may have changed something, in plan order."""
    for number, (node, record) in enumerate(zip(state.plan.nodes, state.records, strict=True)):
        if may_change_the_world(node, state.plan.tools):
            if node.for_each is None:
                yield state.items.node(number), record
            for index, item in enumerate(record.items):
                if item.chunk is None or item.chunk.count:
                    yield TaskRef(number, index), item.record


def _was_called(state: RunState, ref: TaskRef, record: Record) -> bool:
    """Tells whether a call was made that may have changed something here, and not in a run that this is a fork of."""
    if record.reused is not None or record.cached is not None or record.below == NOTHING_BELOW:
        return False
    if state.plan.nodes[ref.node].kind == "lookup" and is_result_of_call(record, None):
        return state.options.resolver.has_changed(record.result)
    override = state.overrides.get(state.id_of(ref))
    attempts = record.attempts or (override.attempts if override is not None else 0)
    code = record.error.code if record.status is NodeStatus.FAILED and record.error is not None else ""
    return attempts > 1 or (attempts == 1 and code not in _NEVER_CALLED)


def has_changed(state: RunState) -> bool:
    """Tells whether a run may have changed something, and does not only take back what another one did."""
    return not state.options.only_compensates and any(_was_called(state, *each) for each in _calls(state))


# What takes it back.


def undoing_of(state: RunState) -> Extension | None:
    """Returns the nodes that take back what a run did that has come to its end, or nothing if nothing can be."""
    nodes: list[CompiledNode] = []
    base = state.plan.written_count
    for ref in _last_first(state):
        name, after = state.id_of(ref), [base + len(nodes) - 1] if nodes else []
        # What is hidden stands behind all that can be added.
        shown = [ref.node] if ref.node < base else []
        node = _node(state, ref, _free_id(state, f"undo {name}"), needs=(*shown, *after))
        nodes.append(node)
    return Extension(base, tuple(nodes)) if nodes else None


def _last_first(state: RunState) -> Sequence[TaskRef]:
    """Returns what can be taken back, in reverse order of its ends; what ended at one moment goes by its place."""
    found = [
        (ref, record)
        for ref, record in _calls(state)
        if _was_called(state, ref, record) and _why_not(state, ref, record) is None
    ]
    levels = levels_of([node.dependencies for node in state.plan.nodes]) or [] if found else []
    found.sort(key=lambda each: (each[1].ended_at or 0.0, levels[each[0].node], _order_of(each[0])), reverse=True)
    return [ref for ref, _ in found]


def _order_of(ref: TaskRef) -> tuple[int, int]:
    """Return what orders nodes and items by their place; a node comes before its items."""
    return ref.node, -1 if ref.item is None else ref.item


def _node(state: RunState, ref: TaskRef, node_id: str, *, needs: Sequence[int]) -> CompiledNode:
    undone = state.plan.nodes[ref.node]
    title = f"Take back {undone.title or state.id_of(ref)}"
    is_run = _is_run(state, ref)
    tool = ToolDeclaration("") if is_run else state.plan.tools[state.plan.tools[undone.tool].undo or ""]
    return CompiledNode(
        node_id,
        kind="plan" if is_run else "tool",
        title=title,
        tool=tool.name,
        dependencies=tuple(needs),
        join=("all_done", 0),
        approval="never",
        retry=RetryRule() if is_run else default_retry(tool.effects, tool.max_attempts),
        timeout_s=0.0 if is_run else tool.timeout_s,
        undoes=state.id_of(ref),
    )


def _is_run(state: RunState, ref: TaskRef) -> bool:
    return state.chunk(ref) is not None or state.plan.nodes[ref.node].sub_plan is not None


def _free_id(state: RunState, name: str) -> str:
    node_id, count = name, 1
    while state.find(node_id) is not None or task_of_call(state, node_id) is not None:
        count += 1
        node_id = f"{name}#{count}"
    return node_id


def _why_not(state: RunState, ref: TaskRef, record: Record) -> str | None:
    """Returns why a call cannot be taken back, if it cannot."""
    if _is_run(state, ref):
        return None if record.below is not None else "its run did not tell what it did"
    node = state.plan.nodes[ref.node]
    tool = state.plan.tools.get(node.tool)
    if tool is None or tool.undo is None:
        return f"the tool {node.tool!r} has no undo"
    return None if tool.undo in state.plan.tools else f"its undo, the tool {tool.undo!r}, is not known to the run"


# What a fork has of it.


def without_undoing(plan: CompiledPlan) -> CompiledPlan:
    """Returns the plan of a run without the nodes that take back what it did, which are the last that were added."""
    end = plan.written_count
    added = sum(node.undoes is not None for node in plan.nodes)
    if not added:
        return plan
    moved = [
        replace(node, dependencies=tuple(number - added if number >= end else number for number in node.dependencies))
        for node in plan.nodes
    ]
    return replace(plan, nodes=(*moved[: end - added], *moved[end:]))


def taken_back(state: RunState) -> tuple[frozenset[str], list[str]]:
    """Returns the nodes and items that a run has taken back or will, and those of which nobody knows whether it has."""
    gone, unclear = set[str](), list[str]()
    for node, record in state.shown():
        if node.undoes is None:
            continue
        if record.status not in (NodeStatus.FAILED, NodeStatus.CANCELLED):
            gone.add(node.undoes)
        elif record.attempts and (node.kind == "plan" or record.error is None or _is_unknown(record)):
            unclear.append(node.undoes)
    return frozenset(gone), unclear


def undone_by(state: RunState) -> dict[str, str]:
    """Returns what a run has taken back: node or item -> the node that took it back."""
    if not any(node.undoes is not None for each in state.extensions for node in each.nodes):
        return {}
    completed = (node for node, record in state.shown() if record.status is NodeStatus.COMPLETED)
    return {node.undoes: node.id for node in completed if node.undoes is not None}


# What is told of it.


def undo_counts(state: RunState) -> Counter[NodeStatus]:
    """Returns how many of the nodes that take something back are in each state."""
    return Counter(record.status for node, record in state.shown() if node.undoes is not None)


def why_not_completed(state: RunState) -> NodeError:
    """Returns why a run has to be taken back that nothing stopped."""
    ended = [(node.id, record) for node, record in state.shown()]
    for wanted in (NodeStatus.FAILED, NodeStatus.CANCELLED, NodeStatus.BLOCKED):
        for name, record in ended:
            if record.status is wanted:
                why = record.error.message if record.error is not None else record.reason
                return NodeError(NOT_COMPLETED, f"{name!r} {wanted.value}{f': {why}' if why else ''}")
    return NodeError(NOT_COMPLETED, "not everything that the plan is for was completed")


def told_of_undoing(state: RunState) -> tuple[str, list[Note]]:
    """Returns what a run that was given up has taken back, in one sentence, and a note for each thing that stands.

    A call that did not complete is undone to be sure, and does not count: mostly there is nothing to take back.
    """
    left = left_standing(state)
    undone = undone_by(state)
    count = sum(_has_done_something(state, task_id) for task_id in undone)
    if not left:
        words = "what it may have done was taken back" if undone else "it had changed nothing"
        if count:
            words = f"what it did was taken back ({count:,} in all)"
    else:
        names = ", ".join(repr(each.task) for each in left[:_NAMED])
        more = f" and {len(left) - _NAMED:,} more" if len(left) > _NAMED else ""
        words = f"taken back: {count:,}; not taken back: {len(left):,} ({names}{more})"
    return words, [Note(STANDS, f"{each.task!r} {each.words}", each.task) for each in left[:_TOLD]]


def undone_to_be_sure(state: RunState) -> int:
    """Returns how many calls were undone that are not known to have done anything: they failed on the way."""
    return sum(not _has_done_something(state, task_id) for task_id in undone_by(state))


def _has_done_something(state: RunState, task_id: str) -> bool:
    """Tells whether what was taken back is known to have done something: it completed, or its run told so."""
    ref, record = state.find(task_id), state.record_of(task_id)
    if ref is None or record is None:
        return False
    return record.status is NodeStatus.COMPLETED or _is_run(state, ref)


def left_standing(state: RunState) -> list[Left]:
    """Returns what a run did, or may have done, and has not taken back, in plan order; of one that has come to its end.

    Of one that is still at it also what it has yet to take back.
    """
    nodes = {node.undoes: (node, record) for node, record in state.shown() if node.undoes is not None}
    found: list[Left] = []
    for ref, record in _calls(state):
        name = state.id_of(ref)
        override = state.overrides.get(name)
        if name in nodes:
            node, end = nodes[name]
            if end.status is not NodeStatus.COMPLETED:
                why = end.error.message if end.error is not None else end.reason
                ended = f"{node.id!r} {end.status.value}{f': {why}' if why else ''}"
                found.append(Left(name, f"was not taken back: {ended}"))
        elif _was_called(state, ref, record):
            why = _why_not(state, ref, record)
            if why is None:
                is_closed = state.phase is Phase.CLOSED
                why = "the run was ended at once" if is_closed else "the run could not grow any more"
                found.append(Left(name, f"was not taken back: {why}"))
            elif record.status is not NodeStatus.FAILED or _is_unknown(record) or _is_run(state, ref):
                found.append(Left(name, f"cannot be taken back: {why}"))
        if _is_run(state, ref) and override is not None and override.tries:
            found.append(Left(name, "was tried before: what only an earlier try of it did stands"))
        if record.status is NodeStatus.COMPLETED and override is not None and not is_result_of_call(record, override):
            found.append(Left(name, "was given its result by hand: what was done by hand stands"))
    return found


def _is_unknown(record: Record) -> bool:
    return record.error is not None and record.error.code in _UNKNOWN


def notes_of_undoing(plan: CompiledPlan) -> list[Note]:
    """Returns what a run of a plan that is to do all or nothing could not take back; nodes of sub-plans as `a/b`."""
    return [
        Note(STANDS, f"{node!r} cannot be taken back: the tool {tool!r} has no undo", node)
        for node, tool in _without_undo(plan)
    ]


def _without_undo(plan: CompiledPlan) -> Iterator[tuple[str, str]]:
    """Yields (id of a node, tool) of what changes something and could not be taken back, in plan order."""
    for node in plan.nodes:
        if node.sub_plan is not None:
            for tool in (node.sub_plan.pursuit or {}).get("tools", ()) if agent_tools(node) is not None else ():
                if tool.get("effects", Effects.WRITE) in _CHANGING and not tool.get("undo"):
                    yield node.id, str(tool.get("name"))
            yield from ((f"{node.id}/{name}", tool) for name, tool in _without_undo(node.sub_plan))
        elif has_side_effects(node, plan.tools) and plan.tools.get(node.tool, ToolDeclaration("")).undo is None:
            yield node.id, node.tool
