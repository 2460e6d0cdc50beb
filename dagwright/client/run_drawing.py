"""The drawing of a run as it is now: its graph with states, durations, attempts and counts of items."""

from datetime import UTC, datetime

from dagwright.client.runs import Runs
from dagwright.plans.drawing import MAX_NODES, Drawing, draw_run


async def read_drawing(runs: Runs, run_id: str) -> Drawing:
    """Read a run and return its drawing; no results are loaded.

    Raises:
        RunNotFound: there is no such run.
    """
    view = await runs.feed(run_id).read()
    if (view.nodes_total or 0) <= MAX_NODES:
        listing = runs.graph(view)
        graph = {
            "nodes": [node async for node in listing.nodes()],
            "edges": [edge async for edge in listing.edges()],
        }
    else:
        # Nodes inside of large regions would only be counted.
        graph = view.graph()
    nodes = view.unfilled_document()["nodes"]
    return draw_run(graph, nodes, title=view.title or run_id, status=view.status, now=datetime.now(UTC))
