"""A worker whose calls have half a second instead of ten seconds to finish when the worker stops.

Run it as a program instead of `worker.py`; it has the same options.
"""

import runpy
from pathlib import Path

from dagwright.activities import tool_runs
from dagwright.process import drain

if __name__ == "__main__":
    drain.GRACE_S = 0.5
    tool_runs.SHUTDOWN_WAIT_S = 0.5
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
