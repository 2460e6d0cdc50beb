"""Main loop of another engine's process: run the graphs whose names are read from stdin, one per line.

A request is `{"graph": NAME, "id": ID}`, with `"resume": true` for a run that an earlier process left unfinished.
The response is `{"seconds": FLOAT, "result": INT}`; the first line is `{"ready": true}`.
"""

import json
import sys
import time
from collections.abc import Callable

RunGraph = Callable[[str, str, bool], int]
"""Run a graph: its name, the ID of the run, and whether an earlier process started it."""


def serve(run: RunGraph) -> None:
    """Serve requests until the end of stdin."""
    _respond({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        started_at = time.perf_counter()
        result = run(request["graph"], request["id"], request.get("resume", False))
        _respond({"seconds": time.perf_counter() - started_at, "result": result})


def _respond(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
