"""Data that a fork may reuse from its source run: results, idempotency keys, and data of child runs.

A result is reused if the fingerprint of its node is the same (`features.fork_reuse.fingerprint`). This is decided when
the node becomes ready, so a result is also reused if a dependency ran again and returned the same value. This
module must not import the scheduler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.states import NodeStatus, Record

MAX_REUSABLE_RESULTS = 10_000
"""Maximum number of nodes and items with reusable data: one workflow task may have to check all of them."""

_NOT_STARTED = ""


@dataclass(slots=True)
class ReusableResult:
    """Reusable data of one node or item in the source run.

    Args:
        fingerprint: fingerprint of the node or item; empty if the node or item had not started in the source run and
            does not depend on any change.
        scope: scope of the idempotency key that the fork keeps; `None` if the node has ended, or gets a new key.
        has_result: whether the result, in the following fields, may be reused.
        produced_by: `{"run_id", "node_id"}` of the run that produced the result.
        child_snapshot: reusable data of the child run of a sub-plan that has to run, as JSON.
    """

    fingerprint: str = _NOT_STARTED
    scope: str | None = None
    has_result: bool = False
    result: Any = None
    partial: bool = False
    message: str | None = None
    tool_version: str = ""
    produced_by: Mapping[str, Any] = field(default_factory=dict)
    child_snapshot: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return the data as JSON, without fields at their default."""
        encoded = {name: getattr(self, name) for name in _JSON_FIELDS if getattr(self, name) not in _EMPTY}
        if self.has_result:
            encoded["result"] = value_to_json(self.result)
        return encoded


_JSON_FIELDS = (
    "fingerprint",
    "scope",
    "has_result",
    "partial",
    "message",
    "tool_version",
    "produced_by",
    "child_snapshot",
)
_EMPTY: tuple[Any, ...] = ("", None, False, {})


def reusable_result_from_json(encoded: Mapping[str, Any]) -> ReusableResult:
    """Decode the result of `ReusableResult.to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: `encoded` has another form.
    """
    values = {name: encoded[name] for name in _JSON_FIELDS if name in encoded}
    if "result" in encoded:
        values["result"] = value_from_json(encoded["result"]["value"], encoded["result"].get("stored"))
    return ReusableResult(**values)


@dataclass(slots=True)
class ReuseTable:
    """Reusable data of all nodes and items of a run, by id.

    Args:
        digests: node number -> cached digest of the node's outcome, for dependents that do not read its result.
        definitions: node number -> cached digest of the node's sub-plan.
    """

    results: dict[str, ReusableResult] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    definitions: dict[int, str] = field(default_factory=dict)

    def entry_with_key(self, task_id: str, node_id: str) -> ReusableResult | None:
        """Return the entry with the idempotency key of a task, or the entry of its node if the node had not started."""
        task_entry = self.results.get(task_id)
        if task_entry is None and (node_entry := self.results.get(node_id)) is not None and not node_entry.fingerprint:
            return node_entry
        return task_entry


def reuse_table_from_json(encoded: Mapping[str, Any]) -> ReuseTable:
    """Decode a table from the JSON of its entries.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: `encoded` has another form.
    """
    return ReuseTable({str(task_id): reusable_result_from_json(result) for task_id, result in encoded.items()})


def apply_reusable_result(record: Record, reusable_result: ReusableResult) -> None:
    """Copy a reused result into a record; the caller has to end the record."""
    record.result, record.partial = reusable_result.result, reusable_result.partial
    record.message, record.tool_version = reusable_result.message, reusable_result.tool_version
    record.reused = dict(reusable_result.produced_by)


def has_reusable_result(record: Record) -> bool:
    """Return whether a node or item has a result that a fork could reuse.

    A node that failed and got the value of its `on_error` has no reusable result; it runs again.
    """
    return record.status is NodeStatus.COMPLETED and record.error is None
