"""Lineage of a call, an agent or a whole run: reported by tools and child runs, and decoded by the parent run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.lineage import LOCATION_CHARACTERS, NO_LINEAGE, LineageEntries, lineage_from_json
from dagwright.core.model.states import Record
from dagwright.core.model.tools import AGENT_KIND, MODEL_TOOL
from dagwright.core.text import cut_characters

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


def lineage_of_locations(locations: Iterable[str]) -> LineageEntries:
    """Return the lineage of a tool that has read files and URLs; locations with `://` are URLs."""
    short_locations = [cut_characters(location, LOCATION_CHARACTERS) for location in locations]
    files = [location for location in short_locations if "://" not in location]
    urls = [location for location in short_locations if "://" in location]
    return NO_LINEAGE.merged_with(LineageEntries(files, urls))


def lineage_of_run(scheduler: "RunScheduler") -> LineageEntries:
    """Return the files and URLs that a run has read. The run of an agent also has its model calls and tool calls."""
    lineage = scheduler.state.totals.lineage.files_and_urls()
    extender = scheduler.plan.extender
    if extender is None or extender.get("kind") != AGENT_KIND:
        return lineage
    model_calls = tuple(node.id for node, _ in _tool_nodes(scheduler) if node.tool == MODEL_TOOL)
    tool_calls = tuple(
        {"node_id": node.id, "tool": node.tool, "status": record.status.value}
        for node, record in _tool_nodes(scheduler)
        if node.tool != MODEL_TOOL
    )
    return NO_LINEAGE.merged_with(replace(lineage, model_calls=model_calls, tool_calls=tool_calls))


def _tool_nodes(scheduler: "RunScheduler") -> Iterator[tuple[CompiledNode, Record]]:
    return ((node, record) for node, record in scheduler.state.visible_nodes() if node.kind == "tool")


def lineage_from_metadata(metadata: Mapping[str, bytes]) -> LineageEntries:
    """Return the lineage in the metadata of a result; an unreadable lineage counts as empty."""
    if wire.METADATA_LINEAGE not in metadata:
        return NO_LINEAGE
    try:
        return lineage_from_json(json_from_bytes(metadata[wire.METADATA_LINEAGE]))
    except ValueError:
        return NO_LINEAGE


def lineage_from_details(details: Any) -> LineageEntries:
    """Return the lineage in the details of a failure, or in the report of a run."""
    return lineage_from_json(details.get(wire.DETAIL_LINEAGE)) if isinstance(details, Mapping) else NO_LINEAGE
