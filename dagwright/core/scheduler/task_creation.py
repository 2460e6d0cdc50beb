"""Tasks of ready nodes and items, and the ids of their calls."""

from collections.abc import Sequence

from dagwright.core.expressions.reference_resolution import resolve_bindings, scope_of_item
from dagwright.core.model.tasks import Task, TaskRef, call_id
from dagwright.core.scheduler.node_override import NodeOverride
from dagwright.core.scheduler.run_state import RunState


def make_task(state: RunState, ref: TaskRef) -> Task:
    """Return the task of a ready node or item.

    Raises:
        UnresolvedReference, ComputeBudgetExceeded: the arguments cannot be resolved.
    """
    number, item = ref
    node = state.plan.nodes[number]
    if item is None:
        task_id, path, scope = node.id, [["node", node.id]], state.scope
    else:
        entry = state.records[number].items[item]
        task_id, path = f"{node.id}[{entry.key}]", [["node", node.id], ["item", entry.key]]
        if entry.map_batch is not None:
            return Task(task_id, node, ref, {}, path[:1], map_batch=entry.map_batch)
        scope = scope_of_item(state.scope, entry.item, index=item + node.first_index)
    if state.overrides and (override := state.overrides.get(task_id)) is not None:
        calls, answers = _last_call(state, task_id, override), [*override.answers]
        return Task(task_id, node, ref, state.arguments_of(ref), path, calls, answers=answers)
    arguments = resolve_bindings(node.arguments, node.bindings, scope=scope)
    calls = state.records[number].attempts + 1 if node.kind == "region" else 1
    return Task(task_id, node, ref, arguments, path, calls)


def call_of_task(state: RunState, task_id: str) -> str:
    """Return the id of the last call of a task that is not a region."""
    override = state.overrides.get(task_id)
    return task_id if override is None else call_id(task_id, _last_call(state, task_id, override))


def calls_of_task(state: RunState, task_id: str) -> Sequence[str]:
    """Return the possible ids of all calls of a task, first to last."""
    override = state.overrides.get(task_id)
    last = 1 if override is None else _last_call(state, task_id, override)
    return [call_id(task_id, number) for number in range(1, last + 1)]


def task_of_call(state: RunState, call: str) -> str | None:
    """Return the task whose last call has this id, or `None`, for example after a retry."""
    for task_id in (call, call.rpartition("#")[0]):
        if state.items.find(task_id) is not None and call_of_task(state, task_id) == call:
            return task_id
    return None


def _last_call(state: RunState, task_id: str, override: NodeOverride) -> int:
    """Return the number of the last call of a task; numbers whose call id equals a node id are skipped."""
    number = 1
    for _ in range(override.retries):
        number += 1
        while state.items.find(call_id(task_id, number)) is not None:
            number += 1
    return number
