"""A client script that gives steps half a second to end when it stops, and leaves those that do not after two.

Run as a program in place of `starter.py`; it has the same commands.
"""

import runpy
from pathlib import Path

from activities import tool_runs
from dagwright.interfaces.cli import leaving
from dagwright.worker import drain

if __name__ == "__main__":
    drain.GRACE_S = 0.5
    tool_runs.SHUTDOWN_WAIT_S = 0.5
    leaving.LEAVING_S = 2.0
    runpy.run_path(str(Path(__file__).parents[2] / "starter.py"), run_name="__main__")
