"""The content of a node: a digest of all that its result hangs on, to tell in a fork whether that is the same.

That is what it calls and the values of all that it reads. What only looks at the world hangs also on what became of
nodes that it waits for and does not read, and on the version of its tool. What changes the world does not: an effect
is made again only when its arguments are others. A condition, a join or a retry rule is no part of it: a fork decides
by its own. It changes nothing.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from dagwright.core.expressions.conditions import read_condition
from dagwright.core.expressions.references import Index, Item, Reference, ResultOf, Secret, Template, references_in
from dagwright.core.expressions.resolution import resolve_holes, resolve_template
from dagwright.core.expressions.stored_values import StoredValue, WorkerText, paths_to_json
from dagwright.core.expressions.value_refs import with_shown
from dagwright.core.model.compiled import (
    CHANGING_EFFECTS,
    CompiledNode,
    CompiledPlan,
    has_side_effects,
    plan_to_json,
    tool_of,
)
from dagwright.core.model.items import StoredList, items_of
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.scheduler.run_state import RunState
from dagwright.features.fork_reuse.reuse import KeptBook

_DIGEST_CHARACTERS = 32
"""Of the hexadecimal sha256: 128 bits tell any results apart that a run can hold."""


def content_of(state: RunState, ref: TaskRef, *, version: str | None = None, book: KeptBook | None = None) -> str:
    """Returns the content of a node or of one of its items, of which all is known that it reads.

    Args:
        version: of the tool that made its result, in place of the one that is there now.
        book: of a fork; keeps digests that many nodes need.

    Raises:
        MissingData, TooMuchWork: its arguments cannot be resolved.
    """
    node = state.plan.nodes[ref.node]
    # What people gave in place of the arguments is no part of the plan.
    arguments = resolve_holes(node.arguments, node.holes, scope=state.scope_of(ref))
    return _digest([*_definition(state, ref.node, version, book), shown(arguments), *_order(state, node, book)])


def content_of_map(state: RunState, number: int, *, version: str | None = None, book: KeptBook | None = None) -> str:
    """Returns the content of a node with all its items, of which none needs to be there.

    Raises:
        MissingData, TooMuchWork: its list cannot be resolved.
    """
    node = state.plan.nodes[number]
    scope = state.scope
    items = items_of(node, scope)
    told: Any = None
    if isinstance(items, StoredList):
        told = [items.value.ref, paths_to_json(items.value.paths), items.first, len(items)]
    elif isinstance(items, list):
        told = shown(items)
    templates = [*(template for _, template in node.holes), *([node.key] if node.key else [])]
    read = [part for part in references_in(templates) if _is_outside(part)]
    values = [[str(part), shown(resolve_template((part,), scope=scope))] for part in read]
    written = [node.arguments, [[list(path), list(map(str, template))] for path, template in node.holes], node.when]
    condition = [_outcome(state, name, book) for name in _read_by_condition(state, node)]
    definition = _definition(state, number, version, book)
    return _digest([*definition, told, values, written, condition, *_order(state, node, book)])


def shown(value: Any) -> Any:
    """Returns a value as JSON, with a mark that tells one from another at each place that lies in the store."""
    return with_shown(value, _mark)


def digest_of(value: Any) -> str:
    """Returns a digest of a value that a run holds."""
    return _digest(shown(value))


def _mark(part: Any) -> Any:
    if isinstance(part, StoredValue):
        return {"stored": part.ref, "paths": paths_to_json(part.paths)}
    if isinstance(part, WorkerText):
        return {"text": [_mark(inner) for inner in part.parts]}
    if isinstance(part, Secret):
        return {"secret": part.name}
    return part if isinstance(part, str) else shown(part)


def _digest(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _definition(state: RunState, number: int, version: str | None, book: KeptBook | None) -> list[Any]:
    """Returns what a node calls."""
    node = state.plan.nodes[number]
    if node.sub_plan is not None:
        return ["plan", _definition_of_plan(number, node.sub_plan, book)]
    if node.kind == "human":
        return ["human"]
    if node.kind == "lookup":
        # Whatever version of the tool found it: a person may have been asked.
        return ["lookup", node.tool]
    tool = tool_of(node, state.plan.tools)
    made_by = None if tool.effects in CHANGING_EFFECTS else tool.version if version is None else version
    return ["tool", node.tool, node.is_worker, made_by]


def _definition_of_plan(number: int, plan: CompiledPlan, book: KeptBook | None) -> str:
    if book is None:
        return _digest(plan_to_json(plan))
    known = book.definitions
    if number not in known:
        known[number] = _digest(plan_to_json(plan))
    return known[number]


def _order(state: RunState, node: CompiledNode, book: KeptBook | None) -> Iterable[str]:
    """Yields what became of the nodes that one waits for without reading them, if it may hang on that."""
    if has_side_effects(node, state.plan.tools):
        return
    templates: list[Template] = [template for _, template in (*node.holes, *node.item_holes)]
    templates += [each for each in (node.for_each, node.key) if isinstance(each, tuple)]
    read = {part.node for part in references_in(templates) if isinstance(part, ResultOf)}
    read.update(_read_by_condition(state, node))
    for needed in node.dependencies:
        if state.plan.nodes[needed].id not in read:
            yield _outcome(state, state.plan.nodes[needed].id, book)


def _outcome(state: RunState, node_id: str, book: KeptBook | None) -> str:
    number = state.number_of(node_id)
    if number is None:
        return ""
    if book is None:
        return _outcome_of(state.records[number])
    known = book.digests
    if number not in known:
        known[number] = _outcome_of(state.records[number])
    return known[number]


def _outcome_of(record: Record) -> str:
    if record.status is not NodeStatus.COMPLETED:
        return record.status.value
    return f"{record.status.value} {digest_of(record.result)}"


def _read_by_condition(state: RunState, node: CompiledNode) -> Sequence[str]:
    if node.when is None:
        return ()
    try:
        return read_condition(node.when, lambda name: state.number_of(name) is not None).nodes
    except ValueError:
        return ()


def _is_outside(part: Reference) -> bool:
    """Tells whether a reference reads something beside the item."""
    return not isinstance(part, Secret | Item | Index)
