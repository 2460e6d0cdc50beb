"""What a run may grow by, from what is known of it: whether nodes fit in, and which node takes the place of another.

It changes nothing; `dagwright.core.scheduler.rebuild` adds them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagwright.core.model.task_ref import TaskRef
from dagwright.core.scheduler.extension import Extension, extended
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.scheduler.task_creation import calls_of_task, task_of_call


def refusal_of_extension(state: RunState, extension: Extension) -> str | None:
    """Returns why a run cannot grow by some nodes."""
    if (too_large := state.refusal_of_rebuild()) is not None:
        return too_large
    for node in extension.nodes:
        if state.find(node.id) is not None or task_of_call(state, node.id) is not None:
            return f"the run has a node or item {node.id!r} already"
    try:
        extended(state.plan, extension)
    except ValueError as error:
        return str(error)
    return None


def refusal_of_own_ids(state: RunState, extension: Extension) -> str | None:
    """Returns why nodes that come from outside cannot have their ids: by some of them the run finds its way."""
    own = next((node.id for node in extension.nodes if state.is_generated_id(node.id)), None)
    return None if own is None else f"the run itself gives ids such as {own!r}: choose another one"


def refusal_of_other_arguments(state: RunState, ref: TaskRef) -> str | None:
    """Returns why a node cannot be tried again with other arguments than those of the plan."""
    node = state.plan.nodes[ref.node]
    if (too_large := state.refusal_of_rebuild()) is not None:
        return too_large
    if node.for_each is not None or ref.item is not None:
        return f"the items of {node.id!r} take their arguments from the plan; try them again without others"
    if node.undoes is not None:
        return f"{node.id!r} takes back {node.undoes!r}, whose call its arguments tell"
    if node.kind == "human":
        return f"{node.id!r} asks a person, and has no arguments"
    if any(state.plan.nodes[each].inner is not None for each in state.dependents_of(ref.node)):
        return f"very many pure nodes that run together wait for {node.id!r}; it can only be tried again as it is"
    return None


def with_other_arguments(state: RunState, number: int, arguments: Mapping[str, Any]) -> Extension:
    """Returns the new node that takes the place of one and has other arguments."""
    old = state.plan.nodes[number]
    kind = "tool" if old.kind == "reported" else old.kind
    new = replace(old, id=free_id(state, number), kind=kind, arguments=dict(arguments), holes=(), supersedes=old.id)
    return Extension(state.plan.written_count, (new,))


def free_id(state: RunState, number: int) -> str:
    """Returns the id of the node that takes the place of one: `a#2` of `a` and of what superseded it.

    No call and no request has had it: answers to what it asks are found by its id.
    """
    name, count = state.name_of(number), 2
    while _is_taken(state, name, f"{name}#{count}"):
        count += 1
    return f"{name}#{count}"


def _is_taken(state: RunState, name: str, node_id: str) -> bool:
    is_known = state.is_request_id(node_id) or state.find(node_id) is not None
    return is_known or node_id in calls_of_task(state, name)
