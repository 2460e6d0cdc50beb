"""A worker with short heartbeat timeouts for model and tool calls, so that a lost worker is noticed within a second.

Run it as a program instead of `worker.py`; it has the same options.
"""

import runpy
from pathlib import Path

from dagwright.core.model.tools import Effects
from dagwright.planning.model_calls import model_requests
from dagwright.workflows import activity_calls

HEARTBEAT_S = 1.0

if __name__ == "__main__":
    model_requests.MODEL_HEARTBEAT_S = HEARTBEAT_S
    activity_calls.HEARTBEAT_S = dict.fromkeys(Effects, HEARTBEAT_S)
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
