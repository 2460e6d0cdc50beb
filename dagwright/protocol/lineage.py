"""What a call, an agent or a whole run has looked at, as it crosses the boundary: for the lineage of its node."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.lineage import NO_LINEAGE, Lineage, lineage_from_json
from dagwright.core.model.states import Record
from dagwright.core.model.tools import AGENT_KIND, MODEL_TOOL
from dagwright.features.run_scheduler import RunScheduler


def seen_of_run(scheduler: RunScheduler) -> Lineage:
    """Returns the files and addresses that a run has looked at; of an agent also which models and tools it called."""
    seen = scheduler.state.totals.lineage.total()
    extender = scheduler.plan.extender
    if extender is None or extender.get("kind") != AGENT_KIND:
        return seen
    asked = tuple(node.id for node, _ in _called(scheduler) if node.tool == MODEL_TOOL)
    calls = tuple(
        {"node_id": node.id, "tool": node.tool, "status": record.status.value}
        for node, record in _called(scheduler)
        if node.tool != MODEL_TOOL
    )
    return NO_LINEAGE.with_more(replace(seen, model_calls=asked, tool_calls=calls))


def _called(scheduler: RunScheduler) -> Iterator[tuple[CompiledNode, Record]]:
    return ((node, record) for node, record in scheduler.state.shown() if node.kind == "tool")


def seen_of_metadata(metadata: Mapping[str, bytes]) -> Lineage:
    """Returns what the metadata of a result tell that the call has read; nothing if that cannot be read."""
    if wire.METADATA_LINEAGE not in metadata:
        return NO_LINEAGE
    try:
        return lineage_from_json(json_from_bytes(metadata[wire.METADATA_LINEAGE]))
    except ValueError:
        return NO_LINEAGE


def told_seen(told: Any) -> Lineage:
    """Returns what the details of a failure, or the end of a run, tell as their `lineage`."""
    return lineage_from_json(told.get(wire.DETAIL_LINEAGE)) if isinstance(told, Mapping) else NO_LINEAGE
