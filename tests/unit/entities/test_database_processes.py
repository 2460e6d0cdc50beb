"""Several processes on one store: they may open it for the first time together, and one row is made."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.waits

PROCESSES = 4

CALL = """
import sys
import pytest

from dagwright.entities.database import EntityDatabase
from dagwright.entities.verb_results import CbuRequest
from dagwright.entities.verbs import OnboardingVerbs

url, process = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
verbs = OnboardingVerbs(EntityDatabase(url))
for number in range(10):
    print(verbs.ensure_cbu(f"{process}-{number}", CbuRequest(f"Fund {number}", "LU")).id)
"""


def test_processes_that_start_together_make_each_row_once(database_url: str) -> None:
    root = Path(__file__).parents[3]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", CALL, database_url, str(process)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(PROCESSES)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        ended = [(*worker.communicate(timeout=60), worker.returncode) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    # Who waits long for another one that makes the tables says so.
    errors = [[line for line in each.splitlines() if "brought to this version" not in line] for _, each, _ in ended]
    assert [*zip(errors, (code for *_, code in ended), strict=True)] == [([], 0)] * PROCESSES
    made = [stdout.split() for stdout, _, _ in ended]
    assert made == [made[0]] * PROCESSES
    assert len(set(made[0])) == 10
