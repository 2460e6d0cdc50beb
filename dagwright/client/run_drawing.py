"""The drawing of a run in its current state: its graph with states, durations, attempts and counts of items."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dagwright.client.graph_folding import graph_of_boxes
from dagwright.plans.drawing import MAX_NODES, Drawing, draw_run

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView


async def read_drawing(runs: "Runs", run_id: str) -> Drawing:
    """Read a run and return its drawing; no results are loaded.

    For a run with more than `MAX_NODES` nodes, a box may represent several nodes.

    Raises:
        RunNotFound: there is no such run.
    """
    view = await runs.reader(run_id).read()
    nodes = view.document_with_refs()["nodes"]
    graph = await _graph_to_draw(runs, view)
    return draw_run(graph, nodes, title=view.title or run_id, status=view.status, now=datetime.now(UTC))


async def _graph_to_draw(runs: "Runs", view: "RunView") -> Mapping[str, Any]:
    """Return the graph of a run with its groups; fold a large graph."""
    has_groups = any("group" in node for node in view.graph()["nodes"])
    if view.scheduler is not None and (has_groups or (view.nodes_total or 0) > MAX_NODES):
        return graph_of_boxes(view.scheduler)
    complete_graph = runs.graph(view)
    return {
        "nodes": [node async for node in complete_graph.nodes()],
        "edges": [edge async for edge in complete_graph.edges()],
    }
