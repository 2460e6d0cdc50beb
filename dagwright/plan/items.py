"""The items of a node with `for_each`: the list, their keys, and what their ends say of the node."""

from collections.abc import Callable, Sequence
from typing import Any

from dagwright.plan.compiled import CompiledNode
from dagwright.plan.errors import NodeError
from dagwright.plan.paths import describe_type, get_value
from dagwright.plan.resolution import Scope, as_text, resolve_holes, resolve_template
from dagwright.plan.states import NodeStatus, Record
from dagwright.plan.stored import StoredValue, TooLargeHere, is_whole

MAX_ITEMS = 10_000
"""Items of one `for_each`; each of them is a task of its own in the run."""

MAX_KEY_BYTES = 200
"""Longest key of an item in UTF-8, the same as for the id of a node."""


def items_of(node: CompiledNode, scope: Scope) -> list[Any] | NodeError | None:
    """Returns the items of a node, or why it has none; `None` where the list is null, so that the node is skipped.

    Raises:
        MissingData: a reference leads nowhere.
        TooMuchWork: a query would take too long.
    """
    if isinstance(node.for_each, list):
        items = resolve_holes(node.for_each, node.item_holes, scope=scope)
    else:
        items = resolve_template(node.for_each or (), scope=scope)
    if isinstance(items, StoredValue):
        items = _told_items(items)
    if items is None:
        return None
    if not isinstance(items, list):
        shown = repr(as_text(items)[:60]) if is_whole(items) else describe_type(items)
        return NodeError("invalid_for_each", f"for_each needs a list, not {shown}")
    if len(items) > MAX_ITEMS:
        return NodeError("too_large", f"for_each has {len(items)} items; at most {MAX_ITEMS} are allowed")
    return items


def _told_items(value: StoredValue) -> Any:
    """Returns the items of a list in the store: themselves if they were told, else a stored value for each."""
    told = value.told
    if told is None or told.shape is None:
        raise TooLargeHere(f"for_each: a part of {value.name}", None)
    if told.state == "whole":
        return told.value
    if told.shape.type != "list" or told.shape.length > MAX_ITEMS:
        return [None] * told.shape.length if told.shape.type == "list" else value
    return [get_value(value, (index,), start=value.name) for index in range(told.shape.length)]


def keys_of(
    node: CompiledNode, items: Sequence[Any], *, scope_of: Callable[[Any, int], Scope]
) -> list[str] | NodeError:
    """Returns the key of every item, or why one cannot be used.

    Args:
        scope_of: (item, index) -> the scope of its references.

    Raises:
        MissingData: a reference leads nowhere.
        TooMuchWork: a query would take too long.
    """
    if node.key is None:
        return [str(index) for index in range(len(items))]
    keys: list[str] = []
    for index, item in enumerate(items):
        found = resolve_template(node.key, scope=scope_of(item, index))
        if not is_whole(found):
            raise TooLargeHere(f"key: a part of item {index}", None)
        key = as_text(found)
        size = len(key.encode(errors="surrogatepass"))
        if size > MAX_KEY_BYTES:
            message = f"the key of item {index} has {size} bytes of UTF-8; at most {MAX_KEY_BYTES} are allowed"
            return NodeError("invalid_key", message)
        if any("\ud800" <= character <= "\udfff" for character in key):
            return NodeError("invalid_key", f"the key of item {index} holds a lone surrogate, which is no character")
        keys.append(key)
    return keys


def end_of_items(node: CompiledNode, record: Record) -> tuple[NodeStatus, NodeError | None]:
    """Returns how a node ends whose items have all ended, and its error."""
    if any(item.record.status is NodeStatus.CANCELLED for item in record.items):
        return NodeStatus.CANCELLED, None
    failed = [item for item in record.items if item.record.status is NodeStatus.FAILED]
    if not failed:
        return NodeStatus.COMPLETED, None
    first = failed[0].record.error
    told = f"{len(failed)} of {len(record.items)} items failed; the first: {node.id}[{failed[0].key}]: "
    return NodeStatus.FAILED, NodeError(first.code if first else "failed", told + (first.message if first else ""))
