"""Main loop of the process of LangGraph or DBOS: read requests from stdin, one per line, and run their graphs.

A request is `{"graph": NAME, "id": ID}`, with `"resume": true` for a run that an earlier process left unfinished.
The response is `{"seconds": FLOAT, "result": INT}`; the first line of the output is `{"ready": true}`.
"""

import json
import sys
import time
from collections.abc import Callable

GraphRunner = Callable[[str, str, bool], int]
"""Function that runs a graph: graph name, run ID and whether an earlier process started the run -> result."""


def serve(run: GraphRunner) -> None:
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
