"""The onboarding demo, whose calls are noticed within a second to have lost their worker.

Run as a program in place of `python -m examples.onboarding_demo`; it has the same options.
"""

import runpy

from dagwright.core.model.tools import Effects
from dagwright.workflows import calls

HEARTBEAT_S = 1.0

if __name__ == "__main__":
    calls._HEARTBEAT_S = dict.fromkeys(Effects, HEARTBEAT_S)
    runpy.run_module("examples.onboarding_demo", run_name="__main__", alter_sys=True)
