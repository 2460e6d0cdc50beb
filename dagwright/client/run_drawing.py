"""The drawing of a run in its current state: its graph with states, durations, attempts and counts of items."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dagwright.client.graph_folding import diagram_of
from dagwright.plans.drawing import MAX_NODES, Drawing, draw_run

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView


async def read_drawing(runs: "Runs", run_id: str) -> Drawing:
    """Read a run and return its drawing; no results are loaded.

    For a run with more than `MAX_NODES` nodes, a box represents several nodes of one tool.

    Raises:
        RunNotFound: there is no such run.
    """
    view = await runs.reader(run_id).read()
    nodes = view.document_with_refs()["nodes"]
    graph = await _graph_of(runs, view)
    return draw_run(graph, nodes, title=view.title or run_id, status=view.status, now=datetime.now(UTC))


async def _graph_of(runs: "Runs", view: "RunView") -> Mapping[str, Any]:
    graph = view.graph()
    has_groups = any("group" in node for node in graph["nodes"])
    if view.scheduler is not None and (has_groups or (view.nodes_total or 0) > MAX_NODES):
        return diagram_of(view.scheduler)
    listing = runs.graph(view)
    return {
        "nodes": [node async for node in listing.nodes()],
        "edges": [edge async for edge in listing.edges()],
    }
