"""A worker with leases of five seconds for its calls, and a timeout of one second for call limits that do not respond.

Run it as a program instead of `worker.py`; it has the same options.
"""

import runpy
from pathlib import Path

from dagwright.activities import limiter
from dagwright.features.call_limits import limit_state
from dagwright.server import call_limits

LEASE_S = 5.0
RESPONSE_TIMEOUT_S = 1.0

if __name__ == "__main__":
    for module in (limiter, limit_state):
        setattr(module, "LEASE_S", LEASE_S)  # noqa: B010 - the limiter imports the constant
    call_limits.RESPONSE_TIMEOUT_S = RESPONSE_TIMEOUT_S
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
