"""A worker of a faulty deployment: `worker.py` with a scheduler that reverses the priorities of nodes.

Run it as a program instead of `worker.py`; it has the same options.
"""

import runpy
from pathlib import Path

from dagwright.core.scheduler.readiness import Entry, ReadyQueue

_push = ReadyQueue.push


def _push_with_reversed_priority(self: ReadyQueue, entry: Entry) -> None:
    priority, ref = entry
    _push(self, (-priority, ref))


ReadyQueue.push = _push_with_reversed_priority  # type: ignore[method-assign]  # the defect of this worker

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[2] / "worker.py"), run_name="__main__")
