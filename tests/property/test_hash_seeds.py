"""The problems, the order of starts and the documents of fixed plans are the same for every hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.example_counts import example_count

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[2]
SEEDS = max(2, example_count(4))


def output_with(seed: int) -> str:
    command = [sys.executable, "-m", "tests.property.hash_seed_run"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def test_results_of_the_core_do_not_depend_on_the_hash_seed() -> None:
    first_output, *later_outputs = [output_with(seed) for seed in range(SEEDS)]
    assert later_outputs == [first_output] * (SEEDS - 1)
    outputs = json.loads(first_output)
    assert len(outputs) == 60
    # Some outputs are the problems of an invalid plan, the others are of a complete run.
    assert {type(output[0]["code"]) if "code" in output[0] else None for output in outputs} == {str, None}
