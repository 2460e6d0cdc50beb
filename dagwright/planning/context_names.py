"""Context names: names of values in a session, such as `@order`."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagwright.core.compiler.projections import IDENTITY_FIELDS
from dagwright.core.expressions.stored_values import ProjectedPart, StoredValue
from dagwright.core.model.states import NodeStatus
from dagwright.core.text import cut_bytes, one_line

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

IDENTITY_BYTES = 300
"""Maximum size of a named value's id and of its display name."""

_NAME = re.compile(r"(?!(?i:result))[A-Za-z_][A-Za-z0-9_.-]{0,79}")
"""Name of a value in a session; not `result…`, because planners read `@result_1` as the result of an intent."""


def is_context_name(name: Any) -> bool:
    """Return whether `name` is valid after an `@`."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def identity_of(result: Any) -> dict[str, Any] | None:
    """Return the identity of a named result, `{"id", "name", "kind"}`; `None` if the result has no id."""
    fields = _identity_of_stored_result(result) if isinstance(result, StoredValue) else result
    fields = fields if isinstance(fields, Mapping) else {"id": fields}
    entity_id = fields.get("id")
    entity_id = str(entity_id) if type(entity_id) is int else entity_id
    if not isinstance(entity_id, str) or not entity_id.strip() or len(entity_id.encode()) > IDENTITY_BYTES:
        return None
    return {
        "id": entity_id,
        **{key: line_or_none(fields.get(key), max_bytes=IDENTITY_BYTES) for key in IDENTITY_FIELDS[1:]},
    }


def _identity_of_stored_result(result: StoredValue) -> dict[str, Any]:
    """Return the identifying fields of a stored result, as far as they can be read without loading it."""
    parts = {key: result.part_at((key,)) for key in IDENTITY_FIELDS}
    return {
        key: part.value
        for key, (part, remaining_path) in parts.items()
        if isinstance(part, ProjectedPart) and not remaining_path
    }


def context_names_of(scheduler: "RunScheduler") -> dict[str, dict[str, Any]]:
    """Return the names that a run has set so far, in plan order: name -> identity.

    The field `sets` of a tool is the context name of its result. The result has this name after its node completes,
    until the node is compensated. If several nodes set the same name, the last node in plan order counts.
    """
    names: dict[str, dict[str, Any]] = {}
    if all(tool.sets is None for tool in scheduler.plan.tools.values()):
        # Skip the scan: a plan may have a hundred thousand nodes.
        return names
    compensated_ids = {
        node.compensates
        for node, record in scheduler.state.visible_nodes()
        if node.compensates and record.status is NodeStatus.COMPLETED
    }
    for node, record in scheduler.state.visible_nodes():
        tool = scheduler.plan.tools.get(node.tool)
        if tool is None or tool.sets is None or record.status is not NodeStatus.COMPLETED:
            continue
        if (
            node.for_each is None
            and node.id not in compensated_ids
            and (identity := identity_of(record.result)) is not None
        ):
            names.pop(tool.sets, None)
            names[tool.sets] = identity
    return names


def line_or_none(value: Any, *, max_bytes: int) -> str | None:
    """Return a string on one line, cut to `max_bytes`; `None` for an empty string or another type."""
    line = one_line(value) if isinstance(value, str) else ""
    return cut_bytes(line, max_bytes=max_bytes) or None
