"""Fingerprint of a node: a digest of everything on which its result depends, compared between a run and its fork.

The fingerprint covers the called tool and the values of everything that the node reads. For a call without effects, it
also covers the outcomes of dependencies that the node does not read, and the version of the tool. For a call with
effects, the outcomes and the version are omitted: an effect is repeated only if the arguments differ. Conditions, joins
and retry rules are not part of the fingerprint, because a fork applies the conditions, joins and rules of its own plan.
The module has no side effects.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.condition_parser import parse_checked_condition
from dagwright.core.expressions.references import (
    Index,
    Item,
    Reference,
    ResultOf,
    Template,
    references_in,
    resolve_bindings,
    resolve_template,
)
from dagwright.core.expressions.stored_values import DeferredText, Secret, StoredValue, paths_to_json
from dagwright.core.expressions.value_refs import format_value_refs
from dagwright.core.model.compiled import (
    CHANGING_EFFECTS,
    CompiledNode,
    CompiledPlan,
    has_side_effects,
    plan_to_json,
    tool_of,
)
from dagwright.core.model.states import NodeStatus, Record, TaskRef
from dagwright.core.scheduler.map_items import StoredList, items_of
from dagwright.features.fork_reuse.reuse import ReuseTable

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

_DIGEST_CHARACTERS = 32
"""Length of the digest in hexadecimal characters of the SHA-256: 128 bits distinguish all results of a run."""


def fingerprint_of(
    state: "RunState", ref: TaskRef, *, version: str | None = None, table: ReuseTable | None = None
) -> str:
    """Return the fingerprint of a node or item whose dependencies have all ended.

    Args:
        version: version of the tool that produced the result, instead of the current version.
        table: reuse data of a fork, with a cache of digests that many nodes need.

    Raises:
        UnresolvedReference, ComputeBudgetExceeded: the arguments cannot be resolved.
    """
    node = state.plan.nodes[ref.node]
    # Manual overrides of the arguments are not part of the plan.
    arguments = resolve_bindings(node.arguments, node.bindings, scope=state.scope_of(ref))
    return _digest(
        [
            *_definition(state, ref.node, version, table),
            _canonical_value(arguments),
            *_unread_outcomes(state, node, table),
        ]
    )


def fingerprint_of_map(
    state: "RunState", number: int, *, version: str | None = None, table: ReuseTable | None = None
) -> str:
    """Return the fingerprint of a node with `for_each`, without expanding its items.

    Raises:
        UnresolvedReference, ComputeBudgetExceeded: the list cannot be resolved.
    """
    node = state.plan.nodes[number]
    scope = state.scope
    items = items_of(node, scope)
    encoded_items: Any = None
    if isinstance(items, StoredList):
        encoded_items = [items.value.ref, paths_to_json(items.value.paths), items.first, len(items)]
    elif isinstance(items, list):
        encoded_items = _canonical_value(items)
    templates = [*(template for _, template in node.bindings), *([node.key] if node.key else [])]
    references = [part for part in references_in(templates) if _reads_outside_item(part)]
    values = [[str(part), _canonical_value(resolve_template((part,), scope=scope))] for part in references]
    template_texts = [
        node.arguments,
        [[list(path), list(map(str, template))] for path, template in node.bindings],
        node.when,
    ]
    condition_outcomes = [_cached_outcome(state, node_id, table) for node_id in _ids_in_condition(state, node)]
    definition = _definition(state, number, version, table)
    return _digest(
        [*definition, encoded_items, values, template_texts, condition_outcomes, *_unread_outcomes(state, node, table)]
    )


def _canonical_value(value: Any) -> Any:
    """Return a value as JSON in which an identifier replaces each stored part."""
    return format_value_refs(value, _identifier_of)


def digest_of(value: Any) -> str:
    """Return a digest of a value."""
    return _digest(_canonical_value(value))


def _identifier_of(part: Any) -> Any:
    if isinstance(part, StoredValue):
        return {"stored": part.ref, "paths": paths_to_json(part.paths)}
    if isinstance(part, DeferredText):
        return {"text": [_identifier_of(inner) for inner in part.parts]}
    if isinstance(part, Secret):
        return {"secret": part.name}
    return part if isinstance(part, str) else _canonical_value(part)


def _digest(value: Any) -> str:
    canonical_json = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical_json.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _definition(state: "RunState", number: int, version: str | None, table: ReuseTable | None) -> list[Any]:
    """Return the part of the fingerprint that identifies the call of a node."""
    node = state.plan.nodes[number]
    if node.sub_plan is not None:
        return ["plan", _definition_of_plan(number, node.sub_plan, table)]
    if node.kind == "human":
        return ["human"]
    if node.kind == "lookup":
        # The tool version is omitted, because a person may have resolved the lookup.
        return ["lookup", node.tool]
    tool = tool_of(node, state.plan.tools)
    version_part = None if tool.effects in CHANGING_EFFECTS else tool.version if version is None else version
    return ["tool", node.tool, node.is_worker, version_part]


def _definition_of_plan(number: int, plan: CompiledPlan, table: ReuseTable | None) -> str:
    if table is None:
        return _digest(plan_to_json(plan))
    cache = table.definitions
    if number not in cache:
        cache[number] = _digest(plan_to_json(plan))
    return cache[number]


def _unread_outcomes(state: "RunState", node: CompiledNode, table: ReuseTable | None) -> Iterable[str]:
    """Yield the outcomes of dependencies that a node without effects does not read."""
    if has_side_effects(node, state.plan.tools):
        return
    templates: list[Template] = [template for _, template in (*node.bindings, *node.item_bindings)]
    templates += [template for template in (node.for_each, node.key) if isinstance(template, tuple)]
    ids_read = {part.node_id for part in references_in(templates) if isinstance(part, ResultOf)}
    ids_read.update(_ids_in_condition(state, node))
    for dependency in node.dependencies:
        if state.plan.nodes[dependency].id not in ids_read:
            yield _cached_outcome(state, state.plan.nodes[dependency].id, table)


def _cached_outcome(state: "RunState", node_id: str, table: ReuseTable | None) -> str:
    number = state.number_of(node_id)
    if number is None:
        return ""
    if table is None:
        return _outcome_of(state.records[number])
    cache = table.digests
    if number not in cache:
        cache[number] = _outcome_of(state.records[number])
    return cache[number]


def _outcome_of(record: Record) -> str:
    if record.status is not NodeStatus.COMPLETED:
        return record.status.value
    return f"{record.status.value} {digest_of(record.result)}"


def _ids_in_condition(state: "RunState", node: CompiledNode) -> Sequence[str]:
    if node.when is None:
        return ()
    try:
        return parse_checked_condition(node.when, lambda name: state.number_of(name) is not None).nodes
    except ValueError:
        return ()


def _reads_outside_item(part: Reference) -> bool:
    """Return whether a reference reads a value other than the item, its index or a secret."""
    return not isinstance(part, Secret | Item | Index)
