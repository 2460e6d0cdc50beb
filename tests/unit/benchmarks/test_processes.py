"""The processes of the benchmarks: a worker that several engines share."""

import sys
from pathlib import Path

from benchmarks.processes import KillableWorker


async def test_shared_worker_is_started_once_and_replaced_after_a_kill(tmp_path: Path) -> None:
    worker = KillableWorker([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    await worker.start()
    first_pid = worker.pid
    await worker.start()
    assert worker.pid == first_pid
    await worker.kill_and_start_again()
    assert worker.pid != first_pid
    await worker.kill()
