"""A command line with short heartbeat timeouts for model calls, so that a lost worker is noticed in a few seconds.

Run it as a program instead of `starter.py`; it has the same commands.
"""

import runpy
from pathlib import Path

from dagwright.planning.model_calls import model_requests

HEARTBEAT_S = 4.0

if __name__ == "__main__":
    model_requests.MODEL_HEARTBEAT_S = HEARTBEAT_S
    runpy.run_path(str(Path(__file__).parents[2] / "starter.py"), run_name="__main__")
