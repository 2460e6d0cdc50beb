"""The onboarding demo, with short heartbeat timeouts, so that a lost worker is noticed within a second.

Run it as a program instead of `python -m examples.onboarding_demo`; it has the same options.
"""

import runpy

from dagwright.core.model.tools import Effects
from dagwright.workflows import activity_calls

HEARTBEAT_S = 1.0

if __name__ == "__main__":
    activity_calls.HEARTBEAT_S = dict.fromkeys(Effects, HEARTBEAT_S)
    runpy.run_module("examples.onboarding_demo", run_name="__main__", alter_sys=True)
