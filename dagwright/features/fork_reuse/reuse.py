"""What a run may take over of another one that it is a fork of: results, idempotency keys, and what sub-plans did.

A result counts as long as the content of its node is the same (`features.fork_reuse.fingerprint`). The scheduler
decides that when the node becomes ready, so a node behind one that ran anew is reused too if that had the same value
again. It must not import the scheduler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.states import NodeStatus, Record

MOST_KEPT = 10_000
"""Nodes and items of which one run can take something over: they may all be decided in one workflow task."""

_NOT_BEGUN = ""


@dataclass(slots=True)
class Kept:
    """What another run knows of one node or item.

    Args:
        content: digest of what it did; empty if it had not begun there, and nothing that it hangs on was changed.
        scope: of the idempotency key that it keeps; `None` if it has ended, or gets a new key.
        has_result: it may be taken for done, with the fields that follow.
        made: `{"workflow_id", "node"}` of the run that made the result.
        below: of a sub-plan that is to run, the carry of its run as JSON: what it takes over in its turn.
    """

    content: str = _NOT_BEGUN
    scope: str | None = None
    has_result: bool = False
    result: Any = None
    partial: bool = False
    message: str | None = None
    tool_version: str = ""
    made: Mapping[str, Any] = field(default_factory=dict)
    below: Any = None

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON, without what has its default value."""
        encoded = {name: getattr(self, name) for name in _PLAIN if getattr(self, name) not in _EMPTY}
        if self.has_result:
            encoded["result"] = value_to_json(self.result)
        return encoded


_PLAIN = ("content", "scope", "has_result", "partial", "message", "tool_version", "made", "below")
_EMPTY: tuple[Any, ...] = ("", None, False, {})


def kept_from_json(encoded: Mapping[str, Any]) -> Kept:
    """Returns what `Kept.to_json` told.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    values = {name: encoded[name] for name in _PLAIN if name in encoded}
    if "result" in encoded:
        values["result"] = value_from_json(encoded["result"]["value"], encoded["result"].get("stored"))
    return Kept(**values)


@dataclass(slots=True)
class KeptBook:
    """What one run may take over, by the ids of nodes and items.

    Args:
        digests: number of a node -> digest of what came of it, for those that only wait for it.
        definitions: number of a node -> digest of its sub-plan.
    """

    tasks: dict[str, Kept] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    definitions: dict[int, str] = field(default_factory=dict)

    def key_of(self, task_id: str, node_id: str) -> Kept | None:
        """Returns what tells the idempotency key of a task: its own entry, or that of a node that had not begun."""
        kept = self.tasks.get(task_id)
        if kept is None and (of_node := self.tasks.get(node_id)) is not None and not of_node.content:
            return of_node
        return kept


def book_of_kept(encoded: Mapping[str, Any]) -> KeptBook:
    """Returns the book of the JSON of its entries.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    return KeptBook({str(name): kept_from_json(kept) for name, kept in encoded.items()})


def take_kept(record: Record, kept: Kept) -> None:
    """Writes a result that is taken over into a record; whoever calls ends it."""
    record.result, record.partial, record.tool_version = kept.result, kept.partial, kept.tool_version
    record.message, record.reused = kept.message, dict(kept.made)


def is_result(record: Record) -> bool:
    """Tells whether what came of a node or item is a result that another run could take over.

    One that failed and went on with a given value, and a sub-plan of which a part failed, is to be done again.
    """
    return record.status is NodeStatus.COMPLETED and record.error is None
